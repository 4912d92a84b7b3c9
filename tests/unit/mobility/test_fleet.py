"""Playing the folder of a fleet, and reproducing a movement from its samples."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.errors import UserError
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.mobility.fleet import FleetMovement
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.movement_file import extract_waypoints, join_samples
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories
from carrycast.sim.scenario.inputs import input_digest
from carrycast.sim.scenario.scenario import load_scenario
from tests.cli.movements import SCENARIO

RNG = np.random.default_rng(1)


def save(folder: Path, moving: Trajectories) -> None:
    """Save a fleet as `carrycast ingest` does, in two files by time."""
    (folder / "legs").mkdir(parents=True)
    node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
    names = ("start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")
    order = np.argsort(moving.start_s)
    columns = {"number": node[order], **{name: getattr(moving, name)[order] for name in names}}
    half = moving.legs // 2
    for part, rows in enumerate((slice(None, half), slice(half, None))):
        table = pa.table({name: column[rows] for name, column in columns.items()})
        pq.write_table(table, folder / "legs" / f"part-{part}.parquet")
    facts = {"version": 1, "nodes": moving.nodes, "legs": moving.legs, "duration_s": moving.duration_s}
    longest_s = float((moving.end_s - moving.start_s).max())
    (folder / "fleet.json").write_text(json.dumps({**facts, "longest_leg_s": longest_s, "digest": "1"}))


@pytest.fixture
def moving() -> Trajectories:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=10, pause_max_s=20)
    return model.trajectories(20, Area(500, 500), 300.0, np.random.default_rng(3))


def test_a_folder_is_played_exactly(tmp_path: Path, moving: Trajectories) -> None:
    save(tmp_path / "buses", moving)
    played = FleetMovement(folder=str(tmp_path / "buses")).trajectories(20, Area(1, 1), 300.0, RNG)
    for name in ("first", "start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps"):
        assert np.array_equal(getattr(played, name), getattr(moving, name))


def test_a_run_may_begin_in_the_middle_with_the_legs_that_are_under_way(tmp_path: Path, moving: Trajectories) -> None:
    save(tmp_path / "buses", moving)
    played = FleetMovement(folder=str(tmp_path / "buses"), start_s=123.0).trajectories(7, Area(1, 1), 50.0, RNG)
    assert played.nodes == 7
    for time_s in (0.0, 20.5, 50.0):
        assert np.allclose(played.positions(time_s), moving.positions(time_s + 123.0)[:7], atol=1e-9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nodes": 3}, "has 3 nodes, but 20 are wanted"),
        ({"version": 9}, "another version"),
        ({"legs": 5}, "of its 5 legs are there"),
        ({"duration_s": 10}, "beyond its end"),
        ({"digest": 7}, "says nothing of a fleet"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    tmp_path: Path, moving: Trajectories, change: dict[str, object], told: str
) -> None:
    save(tmp_path / "buses", moving)
    facts = json.loads((tmp_path / "buses" / "fleet.json").read_text())
    (tmp_path / "buses" / "fleet.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(UserError, match=told):
        FleetMovement(folder=str(tmp_path / "buses"), start_s=100.0).trajectories(20, Area(1, 1), 100.0, RNG)


def test_what_is_no_folder_of_a_fleet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no fleet; `carrycast ingest"):
        FleetMovement(folder=str(tmp_path)).trajectories(1, Area(1, 1), 1.0, RNG)


def test_a_scenario_finds_its_folder_and_counts_what_is_in_it(tmp_path: Path, moving: Trajectories) -> None:
    save(tmp_path / "buses", moving)
    scenario = tmp_path / "fleet.toml"
    scenario.write_text(SCENARIO.format(movement='[mobility]\nmodel = "fleet"\nfolder = "buses"\n'))
    before = input_digest(load_scenario(scenario))
    facts = (tmp_path / "buses" / "fleet.json").read_text()
    (tmp_path / "buses" / "fleet.json").write_text(facts.replace('"digest": "1"', '"digest": "2"'))
    assert before != input_digest(load_scenario(scenario)) != ""


def test_waypoints_give_the_movement_again(moving: Trajectories) -> None:
    rows = extract_waypoints(moving)
    again = join_samples(20, 300.0, rows.node, rows.time_s, rows.x_m, rows.y_m, np.arange(len(rows.node)) + rows.track)
    one, other = compute_contacts(moving, 60.0, 300.0), compute_contacts(again, 60.0, 300.0)
    assert len(one) > 50
    assert np.array_equal(one.a, other.a)
    assert np.array_equal(one.start_s, other.start_s)
    assert np.array_equal(one.end_s, other.end_s)


def test_waypoints_keep_an_absence_and_a_leap_apart() -> None:
    zeros = np.zeros(3)
    legs = Trajectories(
        np.array([0, 3]), np.array([0.0, 10.0, 30.0]), np.array([10.0, 20.0, 40.0]), np.array([0.0, 50.0, 60.0]), zeros,
        np.array([1.0, 1.0, 0.0]), zeros,
    )  # fmt: skip
    rows = extract_waypoints(legs)
    assert list(zip(rows.track, rows.time_s, rows.x_m, strict=True)) == [
        (0, 0.0, 0.0), (0, 10.0, 10.0), (1, 10.0, 50.0), (1, 20.0, 60.0), (2, 30.0, 60.0), (2, 40.0, 60.0)
    ]  # fmt: skip
    assert len(extract_waypoints(Trajectories(np.array([0, 0]), *[np.zeros(0)] * 6)).node) == 0
