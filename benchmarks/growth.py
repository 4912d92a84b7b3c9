"""Whether state grows with simulated time: what is left in memory after a run and after one four times as long."""

from driftcast.simulation.run import Simulation
from driftcast.simulation.scenario import scenario_from

SEED = 1


def sizes(protocol: str, duration_s: float) -> dict[str, int]:
    """How many entries the queue, the checkers and the protocols hold at the end, with leases of 30 s."""
    scenario = scenario_from(
        {
            "name": "growth",
            "duration_s": duration_s,
            "nodes": 30,
            "area_m": [600, 600],
            "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 5},
            "protocol": {"name": protocol},
            "subscribe": [{"nodes": "50%", "filter": "w = 4"}],
            "publish": [{"interval_s": 2.0, "lease_s": 30, "payload_bytes": 100, "attributes": {"w": 4}}],
        },
        "growth",
    )
    simulation = Simulation(scenario, SEED)
    simulation.start()
    simulation.advance(duration_s)
    return simulation.sizes()
