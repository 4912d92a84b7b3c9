"""BonnMotion's files: a line of waypoints for each node."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.bonnmotion import BonnMotion
from carrycast.sim.mobility.model import Area

TWO = "0.0 0.0 0.0 10.0 100.0 0.0 30.0 100.0 0.0\n5.0 7.0 8.0 15.0 7.0 28.0\n"


def test_nodes_go_from_waypoint_to_waypoint_and_stay_at_the_last(tmp_path: Path) -> None:
    (tmp_path / "two.movements").write_text("# made by hand\n" + TWO)
    player = BonnMotion(file=str(tmp_path / "two.movements"))
    assert player.extent() == (2, 30.0)
    moving = player.trajectories(2, Area(1, 1), 40.0, np.random.default_rng(1))
    assert moving.position(0, 5.0) == (50.0, 0.0)
    assert moving.position(0, 35.0) == (100.0, 0.0)
    assert moving.position(1, 4.0) is None
    assert moving.position(1, 10.0) == (7.0, 18.0)
    assert moving.position(1, 40.0) == (7.0, 28.0)


def test_a_packed_file_moves_the_same(tmp_path: Path) -> None:
    (tmp_path / "two.gz").write_bytes(gzip.compress(TWO.encode()))
    names, moving, records, used, superseded = BonnMotion(file=str(tmp_path / "two.gz")).recorded()
    assert names == ["0", "1"]
    assert (records, used, superseded) == (5, 5, 0)
    assert moving.position(1, 30.0) == (7.0, 28.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no nodes"),
        ("0 1 2 3\n", ":1: 4 numbers are no whole waypoints"),
        ("0 1 2\n0 1 x\n", ":2: has a word that is no number"),
        ("5 0 0 4 0 0\n", ":1: the time goes back"),
        ("0 0 nan\n", ":1: a time or place is out of bounds"),
        ("0 0 1e99\n", ":1: a time or place is out of bounds"),
        ("0 0 0 10 1", "middle of a line"),
    ],
)
def test_a_bad_file_is_refused_in_a_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.movements").write_text(text)
    with pytest.raises(UserError, match=told):
        BonnMotion(file=str(tmp_path / "bad.movements")).extent()


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TWO.encode() * 100)[:-12])
    with pytest.raises(UserError, match="cut or broken"):
        BonnMotion(file=str(tmp_path / "cut.gz")).extent()
    (tmp_path / "two.movements").write_text(TWO)
    player = BonnMotion(file=str(tmp_path / "two.movements"))
    with pytest.raises(UserError, match="the file has 2 nodes, but 3 are wanted"):
        player.trajectories(3, Area(1, 1), 1.0, np.random.default_rng(1))
