"""Stations that stand and nodes that move, in one scenario."""

from pathlib import Path

import numpy as np
import pytest

from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.mobility.composite import Mixed
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.random_waypoint import RandomWaypoint

AREA = Area(200.0, 500.0)
PLACES = ((100.0, 50.0), (100.0, 450.0))
WALK: dict[str, object] = {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 5.0}


def test_stations_stand_where_they_were_put_and_the_rest_walks_as_it_would_alone() -> None:
    mixed = Mixed(positions=PLACES, rest=WALK).trajectories(7, AREA, 100.0, np.random.default_rng(3))
    alone = RandomWaypoint(speed_min_mps=1.0, speed_max_mps=5.0).trajectories(5, AREA, 100.0, np.random.default_rng(3))
    assert mixed.nodes == 7
    for time_s in (0.0, 33.3, 100.0):
        assert [mixed.position(station, time_s) for station in (0, 1)] == list(PLACES)
        for walker in range(5):
            assert mixed.position(2 + walker, time_s) == alone.position(walker, time_s)
    assert mixed.velocity(0, 50.0) == (0.0, 0.0)


def test_somebody_must_be_left_to_move() -> None:
    with pytest.raises(UserError, match="leave nobody to move"):
        Mixed(positions=PLACES, rest=WALK).trajectories(2, AREA, 10.0, np.random.default_rng(0))


def test_a_station_outside_the_area_is_refused() -> None:
    with pytest.raises(UserError, match="outside the area"):
        Mixed(positions=((300.0, 0.0),), rest=WALK).trajectories(2, AREA, 10.0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ({}, "no movement model"),
        ({"model": "random_waypont"}, "did you mean 'random_waypoint'"),
        ({**WALK, "speed": 1}, "unknown key 'speed'"),
    ],
)
def test_what_is_wrong_with_the_other_model_is_told_when_the_scenario_is_loaded(
    rest: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        parse_settings({"positions": [[1.0, 1.0]], "rest": rest}, Mixed, "scenario.toml", "mobility")


def test_the_other_models_file_is_found_from_the_scenarios_folder() -> None:
    mixed = Mixed(positions=PLACES, rest={"model": "ns2", "file": "walk.tcl"}).resolved(Path("/somewhere"))
    assert mixed.rest == {"model": "ns2", "file": "/somewhere/walk.tcl"}
