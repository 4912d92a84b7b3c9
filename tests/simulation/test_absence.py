"""Nodes that come and go: no position, no links, and nothing that is not a number."""

from math import dist
from pathlib import Path

import pytest

from carrycast.core.model import Position, Velocity
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.scenario import parse_scenario

# Node 1 is absent until 10 s; then it stands 50 m beside node 0.
MOVES = "0 20 0 100 0 100\n0 stays 0 0\n10 stays 0 0\n10 comes 50 0\n20 stays 0 0\n20 comes 50 0\n"


@pytest.mark.parametrize("radio", ["disk", "csma"])
def test_a_node_that_is_absent_has_no_position_and_no_neighbors(tmp_path: Path, radio: str) -> None:
    (tmp_path / "moves.txt").write_text(MOVES)
    scenario = parse_scenario(
        {
            "duration_s": 20.0,
            "nodes": 2,
            "base": str(tmp_path),
            "mobility": {"model": "one", "file": "moves.txt"},
            "radio": {"model": radio},
            "protocol": {"name": "flooding"},
        },
        "test",
    )
    simulation = Simulation(scenario, 1)
    simulation.start()
    host = simulation.network.nodes[1].protocol.host
    simulation.advance(5.0)
    assert (host.position(5.0), host.velocity(5.0)) == (None, None)
    assert host.global_view.position(1) is None
    assert list(host.global_view.neighbors(1)) == []
    simulation.advance(15.0)
    assert (host.position(15.0), host.velocity(15.0)) == (Position(50.0, 0.0), Velocity(0.0, 0.0))
    assert host.global_view.position(1) == Position(50.0, 0.0)
    assert list(host.global_view.neighbors(1)) == [0]


def test_an_absent_node_has_no_position_to_be_wrong_about(tmp_path: Path) -> None:
    (tmp_path / "moves.txt").write_text(MOVES)
    scenario = parse_scenario(
        {
            "duration_s": 20.0,
            "nodes": 2,
            "base": str(tmp_path),
            "mobility": {"model": "one", "file": "moves.txt"},
            "protocol": {"name": "flooding"},
            "faults": [{"kind": "gps_error", "error_m": 10.0}],
        },
        "test",
    )
    simulation = Simulation(scenario, 1)
    simulation.start()
    host = simulation.network.nodes[1].protocol.host
    simulation.advance(5.0)
    assert host.position(5.0) is None
    simulation.advance(15.0)
    there = host.position(15.0)
    assert there is not None
    assert 0 < dist(there, (50.0, 0.0)) <= 10.0
