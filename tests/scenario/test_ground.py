"""A scenario that needs positions, an area or a map but has none is rejected in one line."""

import pytest

from carrycast.errors import UserError
from carrycast.sim.scenario.scenario import parse_scenario

WALK = {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 2.0}


def scenario(variant: str, **tables: object) -> dict[str, object]:
    return {
        "duration_s": 10.0,
        "nodes": 4,
        "radio": {"model": "disk", "range_m": 100.0},
        "protocol": {"name": "topic_holder", "variant": variant},
        **tables,
    }


@pytest.mark.parametrize("variant", ["broker_gpsr_map", "rendezvous_gpsr_map"])
def test_without_roads_there_is_no_map(variant: str) -> None:
    with pytest.raises(UserError, match="map") as refusal:
        parse_scenario(scenario(variant, mobility=WALK), "walk")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("variant", ["broker_aodv", "rendezvous_aodv", "broker_gpsr", "rendezvous_gpsr"])
def test_who_needs_no_map_walks(variant: str) -> None:
    parse_scenario(scenario(variant, mobility=WALK), "walk")
