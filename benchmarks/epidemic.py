"""W2: epidemic under random waypoint, 100 events of 1 kB, against the SimPy program with the same contact list."""

import math
import time

from benchmarks.simpy_epidemic import copies
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.scenario.workload import draw_workload

SEED = 1
EVENTS = 100


def scenario(nodes: int) -> Scenario:
    """W1's movement, whose area grows with the nodes, and W2's events."""
    side_m = 2000.0 * math.sqrt(nodes / 200)
    return parse_scenario(
        {
            "name": f"w2-{nodes}",
            "duration_s": 600,
            "nodes": nodes,
            "area_m": [side_m, side_m],
            "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 10},
            "radio": {"model": "disk", "range_m": 250, "delay_s": 0.001},
            "discovery": {"mode": "oracle"},
            "protocol": {"name": "epidemic"},
            "subscribe": [{"filter": "w = 2"}],
            "publish": [{"count": EVENTS, "from_s": 100, "to_s": 300, "payload_bytes": 1024, "attributes": {"w": 2}}],
        },
        "W2",
    )


def measure(nodes: int, yardstick: bool = True, repeat: int = 1) -> dict[str, float]:
    """CPU seconds of both, contacts computed beforehand, the best of some repetitions."""
    chosen = scenario(nodes)
    plan, _ = compute_movement(chosen, SEED)
    ours_s = math.inf
    for _ in range(repeat):
        begin = time.process_time()
        outcome = run(chosen, SEED)
        ours_s = min(ours_s, time.process_time() - begin)
    # Every node subscribes to every event, so each copy is a delivery, and the checkers look at each.
    transferred = outcome.metrics["delivered"]
    assert isinstance(transferred, int)
    figures = {"nodes": nodes, "copies": transferred, "cpu_s": ours_s, "us_per_copy": 1e6 * ours_s / transferred}
    if yardstick:
        played = draw_workload([], chosen.publish, {}, nodes, chosen.duration_s, SEED)
        publications = [(item.time_s, item.event.source, item.event.payload) for item in played.publishes]
        simpy_s = math.inf
        for _ in range(repeat):
            begin = time.process_time()
            theirs = copies(plan, publications)
            simpy_s = min(simpy_s, time.process_time() - begin)
        assert theirs == transferred, f"SimPy transferred {theirs} copies, carrycast {transferred}"
        figures |= {"simpy_cpu_s": simpy_s, "simpy_ratio": simpy_s / ours_s}
    return figures
