"""The community model: its ties, the choice of squares, and the resulting network."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.mobility.community import Community, attraction, social_matrix
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.trajectory import Floats, Trajectories

AREA = Area(2000, 2000)


def walk(nodes: int = 60, duration_s: float = 300.0, seed: int = 1, **settings: object) -> Trajectories:
    model = msgspec.convert(settings, Community)
    return model.trajectories(nodes, AREA, duration_s, np.random.default_rng(seed))


def squares(there: Trajectories, time_s: float, columns: int = 8) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    column, row = np.minimum(there.positions(time_s) // (2000 / columns), columns - 1).astype(np.int64).T
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = row * columns + column
    return found


def goals(there: Trajectories, node: int) -> list[int]:
    """The squares in which a node's legs end."""
    legs = range(int(there.first[node]), int(there.first[node + 1]))
    ends: list[Floats] = []
    for leg in legs:
        lasted_s = there.end_s[leg] - there.start_s[leg]
        x_m, y_m = there.x_m[leg] + there.vx_mps[leg] * lasted_s, there.y_m[leg] + there.vy_mps[leg] * lasted_s
        ends.append(np.array([x_m, y_m]))
    return [int(y_m // 250) * 8 + int(x_m // 250) for x_m, y_m in ends[:-1]]


def test_ties_are_strong_within_groups_and_weak_between_them() -> None:
    ties = social_matrix([0, 1, 0, 1, 0], 0.0, 0.1, np.random.default_rng(1))
    assert np.array_equal(ties, ties.T)
    assert (np.diag(ties) == 0).all()
    for one in range(5):
        for other in range(5):
            if one != other:
                assert (ties[one, other] > 0.9) == (one % 2 == other % 2)
                assert ties[one, other] > 0.9 or ties[one, other] < 0.1


def test_rewiring_moves_about_its_share_of_the_strong_ties_out_of_the_groups() -> None:
    group = [node % 10 for node in range(200)]
    together = np.equal.outer(group, group) & ~np.eye(200, dtype=np.bool_)
    plain = social_matrix(group, 0.0, 0.1, np.random.default_rng(1))
    rewired = social_matrix(group, 0.1, 0.1, np.random.default_rng(1))
    assert ((plain > 0.5) == together).all()
    lost = (together & (rewired < 0.5)).sum() / together.sum()
    assert lost == pytest.approx(0.1, abs=0.02)
    assert (rewired > 0.5).sum() == together.sum()


def test_attraction_is_the_mean_tie_to_those_who_go_there() -> None:
    # Nodes 1 and 2 go to square 3, node 0 itself and node 3 to square 1; nobody goes to 0 and 2.
    ties = np.array([0.0, 0.8, 0.4, 0.9])
    assert attraction(ties, np.array([1, 3, 3, 1]), 4).tolist() == pytest.approx([0, 0.45, 0, 0.6])


def test_everybody_starts_in_the_square_of_the_group() -> None:
    there = walk(groups=6, travelers=0)
    home = squares(there, 0.0)
    assert len(set(home[:6].tolist())) == 6
    assert all(home[node] == home[node % 6] for node in range(60))


def test_without_travelers_and_rewiring_nobody_leaves_home() -> None:
    there = walk(groups=6, travelers=0, rewiring=0.0)
    assert np.array_equal(squares(there, 0.0), squares(there, 250.0))


def test_a_traveler_never_goes_where_it_is() -> None:
    there = walk(groups=6, travelers=3)
    for node in range(3):
        visited = goals(there, node)
        assert len(visited) >= 4
        # The first leg is within the group's square; from then on each ends in another one.
        assert all(one != other for one, other in pairwise(visited))


def test_travelers_keep_their_speed_and_others_the_one_they_drew() -> None:
    there = walk(groups=6, travelers=5, duration_s=200.0)
    speed_mps = np.hypot(there.vx_mps, there.vy_mps)
    own = [speed_mps[there.first[node] : there.first[node + 1]] for node in range(60)]
    assert all(np.allclose(speeds, speeds[0]) for speeds in own)
    assert np.allclose([speeds[0] for speeds in own[:5]], 20.0)
    others = [speeds[0] for speeds in own[5:]]
    assert min(others) >= 1.0
    assert max(others) <= 10.0
    assert len(set(np.round(others, 6))) == 55


def test_a_speed_for_each_leg_can_be_asked_for() -> None:
    there = walk(groups=6, travelers=0, speed_drawn="leg")
    speed_mps = np.hypot(there.vx_mps, there.vy_mps)[there.first[7] : there.first[8]]
    assert len(set(np.round(speed_mps, 6))) == len(speed_mps) > 3


def test_a_traveler_with_nowhere_to_go_stays() -> None:
    there = walk(nodes=5, groups=1, travelers=2)
    assert len(set(goals(there, 0))) == 1


def test_probabilistic_choice_spreads_the_nodes() -> None:
    settled = walk(groups=6, travelers=0, rewiring=0.0)
    mixed = walk(groups=6, travelers=0, rewiring=0.0, choice="probabilistic")
    assert len(set(squares(mixed, 299.0).tolist())) > len(set(squares(settled, 299.0).tolist()))


def test_everybody_stays_in_the_area_for_the_whole_run() -> None:
    there = walk(travelers=16)
    assert there.nodes == 60
    for time_s in np.linspace(0, 300, 50):
        place = there.positions(float(time_s))
        assert np.isfinite(place).all()
        assert ((place >= 0) & (place <= 2000)).all()


def test_the_same_seed_gives_the_same_walk() -> None:
    one, same, other = walk(seed=4), walk(seed=4), walk(seed=5)
    assert np.array_equal(one.positions(123.0), same.positions(123.0))
    assert not np.array_equal(one.positions(123.0), other.positions(123.0))


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"groups": 65}, "groups (65) live in squares of their own, and there are 64"),
        ({"speed_min_mps": 5.0, "speed_max_mps": 4.0}, "must not exceed"),
        ({"travelers": -1}, ">= 0"),
        ({"threshold": 0.5}, "< 0.5"),
        ({"threshold": 0.0}, "> 0.0"),
    ],
)
def test_wrong_settings_are_refused_with_the_rule(settings: dict[str, object], rule: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(settings, Community, "scenario.toml", "mobility")
    assert rule in str(refused.value)


def test_more_travelers_or_groups_than_nodes_are_refused() -> None:
    with pytest.raises(UserError, match=r"travelers \(16\) must not exceed the number of nodes \(15\)"):
        walk(nodes=15)
    with pytest.raises(UserError, match=r"groups \(30\) must not exceed the number of nodes \(20\)"):
        walk(nodes=20, groups=30)
    with pytest.raises(UserError, match="every pair of them has a tie"):
        walk(nodes=5000)
