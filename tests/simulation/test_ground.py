"""The ground that nodes move on, as protocols are told of it: the area and the map."""

import pytest

from carrycast.core.maps import read_map
from carrycast.core.model import Area
from carrycast.core.protocol import Host
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.scenario import parse_scenario
from carrycast.sim.testing import Net
from tests.simulation.worlds import line

DRIVING = {
    "duration_s": 10.0,
    "nodes": 3,
    "area_m": (2000.0, 2000.0),
    "mobility": {"model": "manhattan", "map": "city", "speed_min_mps": 1.0, "speed_max_mps": 9.0, "safety_m": 20.0},
    "protocol": {"name": "flooding"},
}


def hosts(simulation: Simulation) -> list[Host]:
    simulation.start()
    return [node.protocol.host for node in simulation.network.nodes]


def test_all_nodes_are_told_of_the_same_area_and_the_same_map() -> None:
    told = hosts(Simulation(parse_scenario(DRIVING, "driving"), 1))
    city = read_map("city")
    assert [host.area for host in told] == [Area(2000.0, 2000.0)] * 3
    assert {host.road_map().roads for host in told} == {city.roads}
    # As the model has it, and read once.
    assert told[0].road_map().safety_m == 20.0
    assert all(host.road_map() is told[0].road_map() for host in told)


def test_who_asks_for_a_map_without_having_declared_it_is_told() -> None:
    [host, *_] = hosts(Simulation(line(area_m=(300.0, 50.0)), 1))
    assert host.area == Area(300.0, 50.0)
    with pytest.raises(TypeError, match="no node moves on roads here"):
        host.road_map()


def test_where_contacts_are_replayed_there_is_neither() -> None:
    host = Net.graph([(0, 1)]).protocol(0).host
    with pytest.raises(TypeError, match="has no area"):
        _ = host.area
    with pytest.raises(TypeError, match="no node moves on roads here"):
        host.road_map()
