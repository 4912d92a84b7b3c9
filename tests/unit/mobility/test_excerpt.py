"""A later part of a movement: positions are those of the whole movement, shifted in time."""

import numpy as np
import pytest

from carrycast.core.settings import parse_settings
from carrycast.core.streams import array_stream
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, find_movement_model

WALK = {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 9.0, "pause_max_s": 4.0}
AREA = Area(300.0, 300.0)


def test_everybody_is_where_the_whole_movement_has_them() -> None:
    table = dict(WALK)
    whole = parse_settings(table, find_movement_model(str(table.pop("model"))), "test").trajectories(
        8, AREA, 100.0, array_stream(1, "m")
    )
    part = find_movement_model("excerpt")(from_s=40.0, of=WALK).trajectories(8, AREA, 60.0, array_stream(1, "m"))
    assert part.duration_s == pytest.approx(60.0)
    for time_s in (0.0, 0.5, 17.3, 59.9):
        assert np.allclose(part.positions(time_s), whole.positions(40.0 + time_s))


def test_from_the_beginning_it_is_the_whole() -> None:
    part = find_movement_model("excerpt")(from_s=0.0, of=WALK).trajectories(3, AREA, 50.0, array_stream(2, "m"))
    table = dict(WALK)
    whole = parse_settings(table, find_movement_model(str(table.pop("model"))), "test").trajectories(
        3, AREA, 50.0, array_stream(2, "m")
    )
    assert np.array_equal(part.start_s, whole.start_s)
    assert np.array_equal(part.x_m, whole.x_m)


def test_a_movement_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="there is no movement model 'flying'"):
        parse_settings({"from_s": 1.0, "of": {"model": "flying"}}, find_movement_model("excerpt"), "test")
