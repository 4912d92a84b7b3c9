"""Playing external movement files of the ONE."""

from pathlib import Path

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.one import One
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories

TWO = """\
1000 1020 -50 950 100 600 0 0
# a comment
1000 7 -50 100
1000 p3 50 300

1010 7 -30 100
1010 p3 50 300
1020 7 -30 160
1020 p3 50 300
"""


def play(folder: Path, text: str, nodes: int = 2, duration_s: float = 40.0) -> Trajectories:
    (folder / "moves.txt").write_text(text)
    model = One(file="moves.txt").resolved(folder)
    return model.trajectories(nodes, Area(1000, 500), duration_s, np.random.default_rng(0))


def test_samples_are_joined_by_lines_and_count_from_the_minima(tmp_path: Path) -> None:
    there = play(tmp_path, TWO)
    for time_s, place in ((0, (0, 0)), (5, (10, 0)), (10, (20, 0)), (15, (20, 30)), (20, (20, 60)), (40, (20, 60))):
        assert there.position(0, time_s) == pytest.approx(place)
    assert there.position(1, 12.0) == (100, 200)


def test_a_rest_is_one_leg(tmp_path: Path) -> None:
    there = play(tmp_path, TWO)
    # The rest from 0 to 20 s ends with the last sample; from there the node stays.
    assert there.first[2] - there.first[1] == 2


def test_a_node_is_absent_before_its_first_sample(tmp_path: Path) -> None:
    text = TWO + "1030 7 0 100\n1030 late 0 200\n"
    there = play(tmp_path, text, nodes=3)
    assert np.isnan(there.positions(29.0)[2]).all()
    assert there.position(2, 30.0) == (50, 100)


def test_movement_is_cut_at_the_end_of_the_run(tmp_path: Path) -> None:
    there = play(tmp_path, TWO, duration_s=15.0)
    assert there.duration_s == 15.0
    assert there.position(0, 15.0) == pytest.approx((20, 30))


def test_the_first_nodes_of_a_larger_file_are_taken(tmp_path: Path) -> None:
    there = play(tmp_path, TWO, nodes=1)
    assert there.nodes == 1
    assert there.position(0, 5.0) == pytest.approx((10, 0))


def test_a_walk_sampled_for_the_one_is_met_at_the_samples(tmp_path: Path) -> None:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=20, pause_min_s=1, pause_max_s=9)
    walk = model.trajectories(10, Area(1000, 500), 60.0, np.random.default_rng(4))
    lines = ["0 60 0 1000 0 500"]
    for second in range(61):
        for node, (x_m, y_m) in enumerate(walk.positions(float(second)).tolist()):
            lines.append(f"{second} {node} {x_m:.9f} {y_m:.9f}")
    there = play(tmp_path, "\n".join(lines) + "\n", nodes=10, duration_s=60.0)
    for second in range(61):
        assert np.allclose(there.positions(float(second)), walk.positions(float(second)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TWO[: TWO.rindex("1020 p3")] + "1020 p", "moves.txt:9: expected time id x y"),
        (TWO.rstrip("\n"), "moves.txt:9: the file ends in the middle of a line"),
        (TWO[: TWO.index("1010 p3")], "moves.txt:6: the file ends before its maxTime with 1 samples where 2"),
        (TWO + "1015 7 0 100\n", "moves.txt:10: the time goes back"),
        (TWO + "1020 7 0 100\n", "moves.txt:10: node 7 has two samples"),
        (TWO + "999 7 0 100\n", "moves.txt:10: 999 is out of bounds; expected a time not before minTime"),
        (TWO + "1030 7 zero 100\n", "moves.txt:10: 'zero' is not a number; expected meters"),
        (TWO + "1030 7 nan 100\n", "moves.txt:10: nan is out of bounds"),
        ("0 10 0 10\n0 1 1 1\n", "moves.txt:1: expected minTime maxTime"),
        ("10 0 0 10 0 10\n0 1 1 1\n", "moves.txt:1: a minimum exceeds its maximum"),
        ("0 10 0 10 0 10\n", "moves.txt: no nodes; expected lines time id x y"),
        ("", "moves.txt: empty; expected the line minTime"),
    ],
)
def test_a_broken_file_is_named_with_line_and_what_is_expected(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        play(tmp_path, text)
    assert str(error.value).startswith(str(tmp_path / "moves.txt"))
    assert "\n" not in str(error.value)


def test_a_file_with_too_few_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the file has 2 nodes, but 5 are wanted"):
        play(tmp_path, TWO, nodes=5)
