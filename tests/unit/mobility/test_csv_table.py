"""Playing movement from a CSV table."""

from pathlib import Path

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.csv_table import CsvTable
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.trajectory import Trajectories

# By bus, not by time, with a column that says nothing of movement, and times of a clock.
BUSES = """\
# a comment
time_s,node,speed,x_m,y_m
1000,bus 7,9,0,100
1010,bus 7,9,100,100

1020,bus 7,0,100,100
1020,"bus, 3",1,50,0
1005,"bus, 3",1,-50,0
"""


def play(folder: Path, text: str, nodes: int = 2, duration_s: float = 40.0) -> Trajectories:
    (folder / "moves.csv").write_text(text, encoding="utf-8")
    model = CsvTable(file="moves.csv").resolved(folder)
    return model.trajectories(nodes, Area(1000, 500), duration_s, np.random.default_rng(0))


@pytest.mark.parametrize("text", [BUSES, "\ufeff" + BUSES.partition("\n")[2], BUSES.replace("\n", "\r\n")])
def test_samples_are_joined_by_lines_and_count_from_the_earliest(tmp_path: Path, text: str) -> None:
    there = play(tmp_path, text)
    for time_s, place in ((0.0, (0, 100)), (5.0, (50, 100)), (10.0, (100, 100)), (40.0, (100, 100))):
        assert there.position(0, time_s) == pytest.approx(place)
    assert np.isnan(there.positions(4.0)[1]).all(), "absent before its first sample"
    for time_s, place in ((5.0, (-50, 0)), (12.5, (0, 0)), (20.0, (50, 0)), (40.0, (50, 0))):
        assert there.position(1, time_s) == pytest.approx(place)


def test_a_file_says_how_many_nodes_it_has_and_how_long_it_lasts(tmp_path: Path) -> None:
    (tmp_path / "moves.csv").write_text(BUSES)
    assert CsvTable(file="moves.csv").resolved(tmp_path).extent() == (2, 20.0)


def test_the_first_nodes_of_a_larger_file_are_taken_and_a_smaller_one_is_refused(tmp_path: Path) -> None:
    assert play(tmp_path, BUSES, nodes=1).position(0, 5.0) == pytest.approx((50, 100))
    with pytest.raises(UserError, match="has 2 nodes, but 3 are wanted; lower the number of nodes to 2"):
        play(tmp_path, BUSES, nodes=3)


HEADER = "time_s,node,x_m,y_m\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "moves.csv: empty; expected a first line with the columns time_s,node,x_m,y_m"),
        ("# nothing\n", "moves.csv: empty"),
        (HEADER, "moves.csv: no nodes"),
        ("time,node,x_m,y_m\n0,a,0,0\n", r"moves.csv:1: there is no column time_s; expected a first line"),
        ("time_s,node,lat,lon\n0,a,0,0\n", "no column x_m or y_m; .* turn degrees into meters first"),
        ("time_s;node;x_m;y_m\n0;a;0;0\n", "separated by commas"),
        (HEADER + "0,a,0\n", "moves.csv:2: 3 fields; expected 4"),
        (HEADER + "0,a,0,0\n1,a,0,0,0\n", "moves.csv:3: 5 fields; expected 4"),
        (HEADER + "12:30,a,0,0\n", "moves.csv:2: '12:30' is not a number; expected seconds"),
        (HEADER + "0,a,5km,0\n", "'5km' is not a number; expected meters"),
        (HEADER + "0,a,nan,0\n", "nan is out of bounds; expected meters"),
        (HEADER + "0,a,0,1e300\n", "1e300 is out of bounds"),
        (HEADER + "inf,a,0,0\n", "inf is out of bounds; expected seconds"),
        (HEADER + "0, ,0,0\n", "moves.csv:2: a sample of nobody"),
        (
            HEADER + "5,a,0,0\n0,b,1,1\n5.0,a,9,9\n",
            "moves.csv:4: node a has another sample .*, in line 2",
        ),
        (HEADER + '0,"a,0,0\n', "expected fields separated by commas"),
        (HEADER + "0,a,0,0\n1,a,0,1", "the file ends in the middle of a line"),
        (HEADER + "0,a\0,0,0\n" * 2, "moves.csv:3: node a.* has another sample|expected fields"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        play(tmp_path, text, nodes=1)


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "moves.csv").write_bytes(b"\xff\xfe\x00t")
    with pytest.raises(UserError, match="not text"):
        CsvTable(file="moves.csv").resolved(tmp_path).extent()
