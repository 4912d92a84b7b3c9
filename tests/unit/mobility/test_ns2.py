"""Playing movement files of ns-2."""

from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.ns2 import Ns2
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories

PLACES = """\
# nodes: 2, pause: 0.00, max speed: 10.00
$node_(0) set X_ 10.0
$node_(0) set Y_ 20.0
$node_(0) set Z_ 0.0
$node_(1) set X_ 100.0
$node_(1) set Y_ 200.0
$node_(1) set Z_ 0.0
"""


def play(folder: Path, text: str, nodes: int = 2, duration_s: float = 100.0) -> Trajectories:
    (folder / "scen").write_text(text)
    model = Ns2(file="scen").resolved(folder)
    return model.trajectories(nodes, Area(500, 500), duration_s, np.random.default_rng(0))


def test_a_node_goes_straight_to_its_goal_and_stays(tmp_path: Path) -> None:
    there = play(tmp_path, PLACES + '$ns_ at 5.0 "$node_(0) setdest 40.0 60.0 10.0"\n')
    for time_s, place in ((0, (10, 20)), (5, (10, 20)), (7, (22, 36)), (10, (40, 60)), (100, (40, 60))):
        assert there.position(0, time_s) == pytest.approx(place, abs=1e-9)
    assert there.velocity(0, 7.0) == pytest.approx((6, 8))
    assert there.position(1, 50.0) == (100, 200)


def test_a_new_command_takes_over_from_where_the_node_is(tmp_path: Path) -> None:
    there = play(
        tmp_path,
        PLACES
        + '$ns_ at 0.0 "$node_(0) setdest 110.0 20.0 10.0"\n'
        + '$ns_ at 4.0 "$node_(0) setdest 50.0 120.0 5.0"\n',
    )
    assert there.position(0, 4.0) == pytest.approx((50, 20))
    assert there.position(0, 14.0) == pytest.approx((50, 70))
    assert there.position(0, 24.0) == pytest.approx((50, 120))


def test_speed_zero_stops_a_node(tmp_path: Path) -> None:
    there = play(
        tmp_path,
        PLACES
        + '$ns_ at 0.0 "$node_(0) setdest 110.0 20.0 10.0"\n'
        + '$ns_ at 4.0 "$node_(0) setdest 110.0 20.0 0.0"\n',
    )
    assert there.position(0, 90.0) == pytest.approx((50, 20))


def test_commands_may_stand_before_the_places_and_in_any_order(tmp_path: Path) -> None:
    there = play(
        tmp_path,
        '$ns_ at 20.0 "$node_(0) setdest 110.0 120.0 10.0"\n'
        '$ns_ at 0.0 "$node_(0) setdest 110.0 20.0 10.0"\n'
        "$god_ set-dist 0 1 2\n"
        '$ns_ at 3.0 "$god_ set-dist 0 1 1"\n' + PLACES,
    )
    assert there.position(0, 10.0) == pytest.approx((110, 20))
    assert there.position(0, 25.0) == pytest.approx((110, 70))


def test_of_two_commands_at_one_time_the_last_counts(tmp_path: Path) -> None:
    there = play(
        tmp_path,
        PLACES
        + '$ns_ at 1.0 "$node_(0) setdest 110.0 20.0 10.0"\n'
        + '$ns_ at 1.0 "$node_(0) setdest 10.0 120.0 10.0"\n',
    )
    assert there.position(0, 6.0) == pytest.approx((10, 70))


def test_movement_is_cut_at_the_end_of_the_run(tmp_path: Path) -> None:
    text = PLACES + '$ns_ at 1.0 "$node_(0) setdest 110.0 20.0 1.0"\n$ns_ at 50.0 "$node_(1) setdest 1.0 1.0 1.0"\n'
    there = play(tmp_path, text, duration_s=11.0)
    assert there.duration_s == 11.0
    assert there.position(0, 11.0) == pytest.approx((20, 20))


def test_a_last_command_needs_no_line_end(tmp_path: Path) -> None:
    there = play(tmp_path, PLACES + '$ns_ at 5.0 "$node_(0) setdest 40.0 60.0 10.0"')
    assert there.position(0, 10.0) == pytest.approx((40, 60))


def test_nodes_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    text = PLACES.replace("_(0)", "_(7)")
    assert play(tmp_path, text, nodes=1).position(0, 0.0) == (100, 200)


def test_a_random_walk_written_for_ns2_is_played_as_it_was(tmp_path: Path) -> None:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=20, pause_min_s=1, pause_max_s=9)
    walk = model.trajectories(10, Area(500, 500), 100.0, np.random.default_rng(4))
    lines = []
    for node in range(10):
        x_m, y_m = walk.positions(0.0)[node].tolist()
        lines += [f"$node_({node}) set X_ {x_m:.12f}", f"$node_({node}) set Y_ {y_m:.12f}"]
        for leg in range(walk.first[node], walk.first[node + 1]):
            lasting_s = walk.end_s[leg] - walk.start_s[leg]
            vx_mps, vy_mps = walk.vx_mps[leg], walk.vy_mps[leg]
            goal = f"{walk.x_m[leg] + vx_mps * lasting_s:.12f} {walk.y_m[leg] + vy_mps * lasting_s:.12f}"
            speed_mps = sqrt(vx_mps**2 + vy_mps**2)
            lines.append(f'$ns_ at {walk.start_s[leg]:.12f} "$node_({node}) setdest {goal} {speed_mps:.12f}"')
    there = play(tmp_path, "\n".join(lines) + "\n", nodes=10)
    for time_s in np.linspace(0, 100, 101).tolist():
        assert np.allclose(there.positions(time_s), walk.positions(time_s), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (PLACES + '$ns_ at 5.0 "$node_(0) setdest 40.0 6', r"scen:8: expected \$node_"),
        (PLACES + '$ns_ at 5.0 "$node_(0) setdest 40.0 60.0"\n', "scen:8: expected"),
        (PLACES + '$ns_ at five "$node_(0) setdest 4.0 6.0 1.0"\n', "scen:8: 'five' is not a number; expected a time"),
        (PLACES + '$ns_ at 5.0 "$node_(0) setdest 4.0 6.0 -1.0"\n', "scen:8: -1.0 is out of bounds; expected a speed"),
        (PLACES + '$ns_ at 5.0 "$node_(0) setdest inf 6.0 1.0"\n', "scen:8: inf is out of bounds"),
        (PLACES.rstrip("\n"), "scen:7: the file ends in the middle of a line"),
        (PLACES + "$god_ set-dist 0 1 2", "scen:8: the file ends in the middle of a line"),
        (PLACES + "\x00" * 5000, "scen:8: longer than 4096 bytes"),
        ("", "no nodes; expected"),
        ("# nothing\n", "no nodes; expected"),
        (PLACES + "$node_(2) set X_ 5.0\n", r"scen:8: node 2 has no place; expected \$node_\(2\) set Y_"),
        (PLACES + '$ns_ at 5.0 "$node_(2) setdest 1.0 1.0 1.0"\n', "scen:8: node 2 has no place"),
    ],
)
def test_a_broken_file_is_named_with_line_and_what_is_expected(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        play(tmp_path, text, nodes=3 if "_(2)" in text else 2)
    assert str(error.value).startswith(str(tmp_path / "scen"))
    assert "\n" not in str(error.value)


def test_a_file_with_too_few_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the file has 2 nodes, but 3 are wanted"):
        play(tmp_path, PLACES, nodes=3)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    model = Ns2(file="nowhere").resolved(tmp_path)
    with pytest.raises(UserError, match="nowhere: cannot be read: No such file"):
        model.trajectories(1, Area(5, 5), 1.0, np.random.default_rng(0))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scen").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(UserError, match="scen:1: not text"):
        Ns2(file="scen").resolved(tmp_path).trajectories(1, Area(5, 5), 1.0, np.random.default_rng(0))


def test_an_absolute_file_stays_where_it_is(tmp_path: Path) -> None:
    assert Ns2(file="/somewhere/scen").resolved(tmp_path).file == "/somewhere/scen"
