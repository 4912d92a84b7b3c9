"""Nodes that stand still: in a row, in a grid, at random and at given places."""

import msgspec
import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.stationary import GivenPlaces, GridModel, LineModel, RandomStatic

AREA = Area(900, 600)


def places(model: MobilityModel, nodes: int) -> list[tuple[float, float]]:
    there = model.trajectories(nodes, AREA, 50.0, np.random.default_rng(1))
    assert np.array_equal(there.positions(0.0), there.positions(50.0))
    return [(x_m, y_m) for x_m, y_m in there.positions(25.0).tolist()]


def test_a_line_fills_the_width() -> None:
    assert places(LineModel(), 4) == [(0, 300), (300, 300), (600, 300), (900, 300)]


def test_a_line_keeps_its_spacing() -> None:
    assert places(LineModel(spacing_m=250), 3) == [(0, 300), (250, 300), (500, 300)]


def test_a_single_node_on_a_line_stands_in_the_middle() -> None:
    assert places(LineModel(), 1) == [(450, 300)]


def test_a_line_longer_than_the_area_is_refused() -> None:
    with pytest.raises(UserError, match="take 1000 m, but the area is 900 m wide"):
        places(LineModel(spacing_m=250), 5)


def test_a_grid_fills_the_area_with_cells() -> None:
    assert places(GridModel(), 4) == [(225, 150), (675, 150), (225, 450), (675, 450)]


def test_a_grid_goes_row_by_row() -> None:
    assert places(GridModel(columns=3, spacing_m=100), 5) == [(0, 0), (100, 0), (200, 0), (0, 100), (100, 100)]


def test_a_grid_larger_than_the_area_is_refused() -> None:
    with pytest.raises(UserError, match="take 200 m x 700 m, but the area is 900 m x 600 m"):
        places(GridModel(columns=3, spacing_m=100), 24)


def test_random_places_are_uniform_in_the_area() -> None:
    place = np.array(places(RandomStatic(), 4000))
    assert place.min() >= 0
    # The mean of 4000 uniform draws from 900 m has a standard error of 4.1 m.
    assert place.mean(axis=0) == pytest.approx([450, 300], abs=16)
    assert (place.max(axis=0) <= [900, 600]).all()


def test_more_nodes_leave_the_first_random_ones_where_they_were() -> None:
    assert places(RandomStatic(), 9)[:5] == places(RandomStatic(), 5)


def test_given_places_are_kept() -> None:
    assert places(GivenPlaces(positions=((1, 2), (900, 600))), 2) == [(1, 2), (900, 600)]


def test_given_places_must_be_as_many_as_nodes() -> None:
    with pytest.raises(UserError, match="2 positions for 3 nodes"):
        places(GivenPlaces(positions=((1, 2), (3, 4))), 3)


@pytest.mark.parametrize("place", [(901.0, 0.0), (0.0, -1.0), (float("nan"), 0.0)])
def test_a_given_place_outside_the_area_is_refused(place: tuple[float, float]) -> None:
    with pytest.raises(UserError, match=r"position 1 .* outside the area"):
        places(GivenPlaces(positions=((1, 2), place)), 2)


@pytest.mark.parametrize("side", [0, -5, float("nan"), float("inf"), "wide"])
def test_an_area_needs_positive_sides(side: object) -> None:
    with pytest.raises(msgspec.ValidationError, match="width_m"):
        msgspec.convert({"width_m": side, "height_m": 10}, Area)
