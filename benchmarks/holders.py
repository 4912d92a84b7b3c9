"""W5: topic holders with the load of their paper [003, Table 1]: 60 vehicles for 900 s over AODV or GPSR, on `csma`
with the numbers of ns-2.

On the highway 2 topics with 1 publisher and 9 subscribers each, in the city 6 with 2 and 5; every publisher has an
event each 10 s, of 512 or 1024 bytes, and every subscriber tells its holder each second that it is there.
"""

import json
import sys
import time

from carrycast.sim.engine.simulation import run as simulate
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.scenario import Scenario, parse_scenario

SEED = 7
NODES = 60
DURATION_S = 900.0
ROADS: dict[str, dict[str, object]] = {
    "highway": {"model": "freeway", "map": "highway", "speed_min_mps": 10.0, "speed_max_mps": 30.0},
    "city": {"model": "manhattan", "map": "city", "speed_min_mps": 1.0, "speed_max_mps": 10.0},
}
# Topics, publishers and subscribers of each, bytes of an event.
LOADS = {"highway": (2, 1, 9, 512), "city": (6, 2, 5, 1024)}
CASES = (
    ("highway", "broker_aodv"),
    ("highway", "broker_gpsr_map"),
    ("city", "broker_aodv"),
    ("city", "broker_gpsr_map"),
)


def scenario(roads: str, scheme: str, duration_s: float = DURATION_S) -> Scenario:
    """One scheme on one map. Roles go round the nodes, so that none has two of them for the same topic."""
    topics, publishers, subscribers, size_bytes = LOADS[roads]
    subscribe, publish, first = [], [], 0
    for topic in range(topics):
        taken = [(first + offset) % NODES for offset in range(publishers + subscribers)]
        first += len(taken)
        subscribe.append({"nodes": taken[publishers:], "filter": f"topic = {topic}"})
        publish.append(
            {
                "nodes": taken[:publishers],
                "every_s": 10.0,
                "from_s": 10.0,
                "to_s": duration_s - 10.0,
                "payload_bytes": size_bytes,
                "attributes": {"topic": topic},
            }
        )
    return parse_scenario(
        {
            "name": f"w5-{roads}",
            "duration_s": duration_s,
            "nodes": NODES,
            "area_m": [1000.0, 1000.0],
            "mobility": ROADS[roads],
            "radio": {"model": "csma", "preset": "ns2"},
            "protocol": {"name": "topic_holder", "variant": scheme},
            "subscribe": subscribe,
            "publish": publish,
        },
        "W5",
    )


def run(roads: str, scheme: str) -> dict[str, float]:
    """CPU seconds of one run, and what became of the events."""
    chosen = scenario(roads, scheme)
    compute_movement(chosen, SEED)
    begin_s = time.process_time()
    metrics = simulate(chosen, SEED).metrics
    cpu_s = time.process_time() - begin_s
    transmissions, delivered = metrics["transmissions"], metrics["delivery_ratio"]
    assert transmissions is not None
    assert delivered is not None
    return {"cpu_s": cpu_s, "transmissions": transmissions, "delivery_ratio": delivered}


if __name__ == "__main__":
    json.dump({f"{roads} {scheme}": run(roads, scheme) for roads, scheme in CASES}, sys.stdout, indent=2)
    sys.stdout.write("\n")
