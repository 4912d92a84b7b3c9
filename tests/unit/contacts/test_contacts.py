"""Contacts solved by hand, and what must not change them."""

from math import sqrt

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories

Leg = tuple[float, float, float, float, float, float]


def moving(*nodes: list[Leg]) -> Trajectories:
    """Trajectories of nodes given as lists of (start_s, end_s, x_m, y_m, vx_mps, vy_mps)."""
    first = np.cumsum([0, *(len(legs) for legs in nodes)])
    table = np.array([leg for legs in nodes for leg in legs], dtype=np.float64).reshape(-1, 6)
    return Trajectories(first, *(table[:, k] for k in range(6)))


def listed(plan: ContactPlan) -> list[tuple[int, int, float, float]]:
    return list(zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True))


def test_nodes_that_pass_head_on_are_linked_from_range_to_range() -> None:
    # 1000 m apart, closing at 20 m/s: within 200 m from (1000 - 200) / 20 s to (1000 + 200) / 20 s.
    there = moving([(0, 100, 0, 0, 10, 0)], [(0, 100, 1000, 0, -10, 0)])
    assert listed(compute_contacts(there, 200, 100)) == [(0, 1, 40.0, 60.0)]


def test_a_node_that_passes_a_standing_one_is_linked_on_the_chord() -> None:
    # At 30 m from a circle's center the chord of radius 50 m is 80 m long: 8 s at 10 m/s around the closest time, 20 s.
    there = moving([(0, 40, 0, 0, 0, 0)], [(0, 40, -200, 30, 10, 0)])
    assert listed(compute_contacts(there, 50, 40)) == [(0, 1, 16.0, 24.0)]


def test_a_tangent_is_no_contact() -> None:
    there = moving([(0, 40, 0, 0, 0, 0)], [(0, 40, -200, 50, 10, 0)])
    assert listed(compute_contacts(there, 50, 40)) == []


def test_a_hair_inside_the_tangent_is_a_contact() -> None:
    there = moving([(0, 40, 0, 0, 0, 0)], [(0, 40, -200, 49.9999, 10, 0)])
    half_s = sqrt(50**2 - 49.9999**2) / 10
    ((_, _, start_s, end_s),) = listed(compute_contacts(there, 50, 40))
    assert [start_s, end_s] == pytest.approx([20 - half_s, 20 + half_s], abs=1e-6)


def test_a_touch_at_the_turning_point_is_no_contact() -> None:
    there = moving([(0, 20, 0, 0, 0, 0)], [(0, 10, 150, 0, -10, 0), (10, 20, 50, 0, 10, 0)])
    assert listed(compute_contacts(there, 50, 20)) == []


def test_nodes_that_start_within_range_are_in_contact_at_zero() -> None:
    there = moving([(0, 100, 0, 0, 0, 0)], [(0, 100, 30, 0, 1, 0)])
    assert listed(compute_contacts(there, 50, 100)) == [(0, 1, 0.0, 20.0)]


def test_a_contact_open_at_the_end_ends_with_the_run() -> None:
    there = moving([(0, 100, 0, 0, 0, 0)], [(0, 100, 100, 0, -1, 0)])
    assert listed(compute_contacts(there, 50, 80)) == [(0, 1, 50.0, 80.0)]


def test_a_contact_open_at_the_end_of_a_run_of_odd_length_ends_with_it_too() -> None:
    there = moving([(0, 100, 0, 0, 0, 0)], [(0, 100, 10, 0, 1, 0)])
    assert listed(compute_contacts(there, 50, 1 / 3)) == [(0, 1, 0.0, 1 / 3)]


def test_nodes_as_fast_as_light_stay_linked_side_by_side() -> None:
    there = moving([(0, 1, 0, 0, 3e8, 0)], [(0, 1, 0, 1, 3e8, 0)])
    assert listed(compute_contacts(there, 2, 0.01)) == [(0, 1, 0.0, 0.01)]


def test_nodes_that_stand_still_are_linked_all_the_time_or_never() -> None:
    x_m = np.array([0.0, 100.0, 201.0])
    there = Trajectories.standing(x_m, np.zeros(3), 60.0)
    assert listed(compute_contacts(there, 100, 60)) == [(0, 1, 0.0, 60.0)]


def test_a_spacing_of_exactly_the_range_links_all_neighbors() -> None:
    # 0.1 is no binary fraction, so some of these distances come out a rounding error above 0.1.
    x_m = np.arange(50, dtype=np.float64) * 0.1
    plan = compute_contacts(Trajectories.standing(x_m, np.zeros(50), 10.0), 0.1, 10)
    assert listed(plan) == [(k, k + 1, 0.0, 10.0) for k in range(49)]


def test_nodes_on_the_same_leg_stay_linked() -> None:
    there = moving([(0, 100, 0, 0, 3, 4)], [(0, 100, 20, 0, 3, 4)], [(0, 100, 90, 0, 3, 4)])
    assert listed(compute_contacts(there, 50, 100)) == [(0, 1, 0.0, 100.0)]


def test_nodes_at_the_same_place_are_linked() -> None:
    there = moving([(0, 10, 5, 5, 1, 0)], [(0, 10, 5, 5, 1, 0)], [(0, 10, 5, 5, 0, 0)])
    assert listed(compute_contacts(there, 2, 10)) == [(0, 1, 0.0, 10.0), (0, 2, 0.0, 2.0), (1, 2, 0.0, 2.0)]


def test_a_contact_goes_on_across_the_ends_of_legs() -> None:
    # The second node walks in, rests, turns and walks out; the first one moves by turns too small to matter.
    there = moving(
        [(0, 15, 0, 0, 0, 0), (15, 16, 0, 0, 1, 0), (16, 60, 1, 0, -0.01, 0)],
        [(0, 10, 100, 0, -9, 0), (10, 30, 10, 0, 0, 0), (30, 60, 10, 0, 0, 9)],
    )
    ((a, b, start_s, end_s),) = listed(compute_contacts(there, 50, 60))
    assert (a, b) == (0, 1)
    assert start_s == pytest.approx(50 / 9, abs=1e-6)
    assert 35 < end_s < 36


def test_a_node_that_appears_late_and_leaves_early_is_linked_only_meanwhile() -> None:
    there = moving([(0, 60, 0, 0, 0, 0)], [(10, 20, 5, 0, 0, 0), (30, 40, 5, 0, 0, 0)])
    assert listed(compute_contacts(there, 50, 60)) == [(0, 1, 10.0, 20.0), (0, 1, 30.0, 40.0)]


def test_a_leap_ends_a_contact_at_once() -> None:
    there = moving([(0, 20, 0, 0, 0, 0)], [(0, 10, 5, 0, 0, 0), (10, 20, 500, 0, 1, 0)])
    assert listed(compute_contacts(there, 50, 20)) == [(0, 1, 0.0, 10.0)]


def test_a_node_without_legs_meets_nobody() -> None:
    there = moving([(0, 10, 0, 0, 0, 0)], [], [(0, 10, 1, 0, 0, 0)])
    assert listed(compute_contacts(there, 5, 10)) == [(0, 2, 0.0, 10.0)]


def test_nobody_meets_nobody() -> None:
    plan = compute_contacts(moving(), 5, 10)
    assert (plan.nodes, plan.duration_s, len(plan)) == (0, 10.0, 0)


def test_movement_before_zero_and_after_the_end_does_not_count() -> None:
    there = moving([(-50, 100, 0, 0, 0, 0)], [(-50, 100, -450, 0, 10, 0)])
    # The second node is at the first one at -5 s and out of its range at 0.
    assert listed(compute_contacts(there, 40, 10)) == []
    assert listed(compute_contacts(there, 60, 10)) == [(0, 1, 0.0, 1.0)]


def test_one_leap_across_the_world_costs_neither_memory_nor_exactness() -> None:
    # 10^7 m in a second, along two walkers: seen for 2 * 50 m / 10^7 m/s, ten microseconds around 500.5 s.
    walker: list[Leg] = [(0, 1000, 0, 0, 1, 0)]
    there = moving(walker, [(0, 500, -5e6 + 500.5, 0, 0, 0), (500, 501, -5e6 + 500.5, 0, 1e7, 0)], walker)
    plan = compute_contacts(there, 50, 1000)
    assert listed(plan)[0] == (0, 2, 0.0, 1000.0)
    assert [(a, b) for a, b, _, _ in listed(plan)[1:]] == [(0, 1), (1, 2)]
    assert np.allclose(plan.start_s[1:], 500.499995, rtol=0, atol=2e-6)
    assert np.allclose(plan.end_s[1:], 500.500005, rtol=0, atol=2e-6)


def test_a_few_short_legs_in_a_long_run_cost_little() -> None:
    # A slice as short as these legs would make ten billion slices.
    nodes: list[list[Leg]] = [
        [(0, 5e4, 10 * k, 0, 0, 0), (5e4, 5e4 + 1e-4, 10 * k, 0, 1e4, 0), (5e4 + 1e-4, 1e6, 10 * k + 1, 0, 0, 0)]
        for k in range(10)
    ]
    there = moving(*nodes)
    assert len(compute_contacts(there, 10, 1e6)) == 9


@pytest.mark.parametrize(("range_m", "duration_s"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)])
def test_a_range_or_duration_that_is_not_positive_is_refused(range_m: float, duration_s: float) -> None:
    with pytest.raises(UserError, match="positive range and duration"):
        compute_contacts(moving([(0, 1, 0, 0, 0, 0)]), range_m, duration_s)


def test_a_range_in_the_wrong_unit_is_refused() -> None:
    with pytest.raises(UserError, match="check the units"):
        compute_contacts(moving([(0, 1e6, 0, 0, 1e6, 0)]), 1e-6, 1e6)


@pytest.fixture(scope="module")
def walk() -> Trajectories:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=10, pause_max_s=20, start="steady")
    return model.trajectories(60, Area(1000, 600), 200.0, np.random.default_rng(5))


def test_naming_the_nodes_otherwise_names_the_contacts_otherwise(walk: Trajectories) -> None:
    plan = compute_contacts(walk, 120, 200)
    turned = moving(
        *(
            [
                (walk.start_s[k], walk.end_s[k], walk.x_m[k], walk.y_m[k], walk.vx_mps[k], walk.vy_mps[k])
                for k in range(walk.first[node], walk.first[node + 1])
            ]
            for node in reversed(range(walk.nodes))
        )
    )
    expected = sorted((59 - b, 59 - a, start_s, end_s) for a, b, start_s, end_s in listed(plan))
    assert len(plan) > 500
    assert sorted(listed(compute_contacts(turned, 120, 200))) == [pytest.approx(row, abs=1.1e-6) for row in expected]


def test_moving_and_turning_the_whole_map_changes_no_contact(walk: Trajectories) -> None:
    plan = compute_contacts(walk, 120, 200)
    shifted = Trajectories(
        walk.first, walk.start_s, walk.end_s, 7e3 - walk.y_m, walk.x_m - 3e4, -walk.vy_mps, walk.vx_mps
    )
    moved = compute_contacts(shifted, 120, 200)
    assert sorted(listed(moved)) == [pytest.approx(row, abs=1.1e-6) for row in sorted(listed(plan))]


def test_contacts_come_in_the_order_of_start_and_nodes(walk: Trajectories) -> None:
    plan = compute_contacts(walk, 120, 200)
    rows = [(start_s, a, b) for a, b, start_s, _ in listed(plan)]
    assert rows == sorted(rows)
    assert plan.fault() is None


def test_times_are_whole_microseconds(walk: Trajectories) -> None:
    plan = compute_contacts(walk, 120, 200)
    times_s = np.concatenate((plan.start_s, plan.end_s))
    assert np.array_equal(times_s, np.round(times_s, 6))
