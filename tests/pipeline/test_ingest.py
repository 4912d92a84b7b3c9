"""Ingest reads, cleans and numbers a fleet's files; a scenario plays the fleet as it was recorded."""

import gzip
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.fleets import ingestion as ingesting, partitions
from carrycast.analysis.fleets.cleaning import FINE, REASONS, CleaningRules, FleetRows, clean_rows
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.partitions import clean_dataframe, mark_rows, number_logs
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.analysis.fleets.schema import (
    LEGS,
    NODES,
    POSITIONS,
    RAW,
    REJECTED,
    TableSchema,
    arrow_schema,
    column_names,
    spark_ddl,
)
from carrycast.analysis.fleets.survey import FleetNaming, log_indices
from carrycast.analysis.fleets.tables import TrackPositions, resample
from carrycast.analysis.fleets.workers import refuse_full_disk
from carrycast.analysis.fleets.writers import write_fleet
from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.mobility.fleet import FleetMovement
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.ns2 import Ns2
from carrycast.sim.mobility.one import One
from tests.cli.movements import NS2, ONE
from tests.unit.fleets.test_readers import FEATURES, GPX

pytestmark = pytest.mark.spark
RNG = np.random.default_rng(1)
AREA = Area(1, 1)
NOON = 1777896000.0


def raw_rows(rows: Iterable[tuple[float, float]], **fixed: object) -> list[dict[str, object]]:
    """Raw rows of one node from (time, x), in the order of its log."""
    return [
        {
            **dict.fromkeys(column_names(RAW)),
            "file": "log",
            "fleet": "f",
            "node": "n",
            "place": place,
            "y_m": 0.0,
            **fixed,
        }
        | {"clock_s": NOON + time_s, "x_m": x_m}
        for place, (time_s, x_m) in enumerate(rows)
    ]


class Cleaned:
    """Rows after the cleaning that workers run."""

    def __init__(self, rows: list[dict[str, object]], rules: CleaningRules | None = None) -> None:
        rules, naming = rules or CleaningRules(), FleetNaming("f", by_file=False)
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RAW))
        _, names, counts = log_indices(batch, naming)
        self.logs, _ = number_logs(dict(zip(names, counts.tolist(), strict=True)))
        known = {log: number for number, log in enumerate(self.logs.names)}
        marked = mark_rows(batch, known, naming, NOON, None)
        self.rows, self._track = clean_rows(marked, self.logs.node, rules)

    def wrong(self) -> list[tuple[str | None, int, str]]:
        """The node, place and reason of each rejected row."""
        rows: FleetRows = self.rows.take(self.rows.reason != FINE)
        nodes = [self.logs.names[log][1] for log in rows.log.tolist()]
        reasons = [list(REASONS)[code - 1] for code in rows.reason.tolist()]
        return list(zip(nodes, rows.place.tolist(), reasons, strict=True))

    def tracks(self) -> list[int]:
        """The track of each kept row, sorted by time."""
        found: list[int] = self._track[self.rows.reason == FINE].tolist()
        return found


def reasons(rows: list[dict[str, object]], rules: CleaningRules | None = None) -> dict[int, str]:
    return {place: reason for _, place, reason in Cleaned(rows, rules).wrong()}


def walk(*changes: tuple[int, tuple[float, float]], rows: int = 40) -> list[tuple[float, float]]:
    """A log at 10 m/s with a row every ten seconds; `changes` replace some rows."""
    log = [(10.0 * k, 100.0 * k) for k in range(rows)]
    for place, row in changes:
        log[place] = row
    return log


def days(*changes: tuple[int, tuple[float, float]]) -> list[tuple[float, float]]:
    """Two logs of twenty rows with a night between them, in which a node may move anywhere."""
    return walk(*((20 + k, (30_000.0 + 10.0 * k, 2_000.0 + 100.0 * k)) for k in range(20)), *changes)


CASES: list[tuple[list[tuple[float, float]], dict[int, str]]] = [
    (walk(), {}),
    (walk((5, (40.0, 400.0))), {5: "duplicate"}),
    (walk((5, (40.0, 410.0))), {5: "conflict"}),
    (walk((5, (50.0, 99_999.0))), {5: "jump"}),
    (walk((5, (50.0, 99_999.0)), (6, (60.0, 99_999.0))), {5: "jump", 6: "jump"}),
    (walk((0, (0.0, 99_999.0))), {0: "jump"}),
    # One or two rows next to a jump are kept if they connect to the rest.
    (walk((5, (50.0, 99_999.0)), (8, (80.0, 99_999.0))), {5: "jump", 8: "jump"}),
    (walk((5, (50.0, 99_999.0)), (7, (70.0, 88_888.0)), (9, (90.0, 77_777.0))), {5: "jump", 7: "jump", 9: "jump"}),
    (walk((37, (370.0, 99_999.0))), {37: "jump"}),
    (walk((2, (20.0, 99_999.0))), {2: "jump"}),
    (days((17, (170.0, 99_999.0))), {17: "jump"}),
    (days((22, (30_020.0, 99_999.0))), {22: "jump"}),
    (walk((39, (390.0, 99_999.0))), {39: "jump"}),
    (days(), {}),
    (days((19, (190.0, 99_999.0))), {19: "jump"}),
    (days((20, (30_000.0, 99_999.0))), {20: "jump"}),
    (days((18, (180.0, 99_999.0)), (19, (190.0, 99_999.0))), {18: "jump", 19: "jump"}),
    # Too few rows between two nights to decide.
    (days((19, (9_000.0, 1_900.0))), {}),
    (walk((5, (-NOON, 500.0))), {5: "clock"}),
    (walk((5, (35.0, 500.0))), {5: "clock"}),
    (walk((5, (7000.0, 500.0))), {5: "clock"}),
    (walk((5, (float("nan"), 500.0))), {5: "clock"}),
    (walk((5, (50.0, float("nan")))), {5: "no_place"}),
    (walk((5, (50.0, 1e12))), {5: "no_place"}),
    # An unsorted log is fine.
    (walk()[::-1], {}),
    ([row for pair in zip(walk()[20:], walk()[:20], strict=True) for row in pair], {}),
]


def test_each_step_finds_what_is_wrong_and_nothing_else() -> None:
    rows = [row for case, (log, _) in enumerate(CASES) for row in raw_rows(log, node=str(case))]
    found: dict[int, dict[int, str]] = {case: {} for case in range(len(CASES))}
    for node, place, reason in Cleaned(rows).wrong():
        found[int(str(node))][place] = reason
    assert found == {case: wrong for case, (_, wrong) in enumerate(CASES)}


def test_a_dataframe_of_spark_is_cleaned_by_the_same_kernel(spark: SparkSession) -> None:
    rows = [row for case, (log, _) in enumerate(CASES) for row in raw_rows(log, node=str(case))]
    cleaned = clean_dataframe(spark.createDataFrame(rows, spark_ddl(RAW)), CleaningRules(), NOON).collect()
    assert len(cleaned) == len(rows)
    found = {(row["node"], row["place"]): row["reason"] for row in cleaned if row["reason"] is not None}
    assert found == {
        (str(case), place): reason for case, (_, wrong) in enumerate(CASES) for place, reason in wrong.items()
    }
    assert all((row["track"] is None) == (row["reason"] is not None) for row in cleaned)
    night = {row["place"]: row["track"] for row in cleaned if row["node"] == str(CASES.index((days(), {})))}
    assert [night[place] for place in range(40)] == [0] * 20 + [1] * 20


def test_what_was_not_read_or_not_asked_for_has_its_reason() -> None:
    assert reasons(raw_rows([(0.0, 0.0)], text="oops")) == {0: "unreadable"}
    assert reasons(raw_rows([(0.0, 0.0)], longitude=0.0, latitude=0.0)) == {0: "no_place"}
    assert reasons(raw_rows([(0.0, 0.0)], longitude=181.0, latitude=5.0)) == {0: "no_place"}
    rules = CleaningRules(from_s=NOON + 10, until_s=NOON + 20)
    assert reasons(raw_rows(walk(rows=4)), rules) == {0: "outside", 2: "outside", 3: "outside"}


def test_a_silent_node_is_absent_and_one_that_turns_up_elsewhere_too() -> None:
    rows = [(0.0, 0.0), (10.0, 5.0), (400.0, 9.0), (410.0, 9.0), (420.0, 9e5), (430.0, 9e5), (440.0, 9e5)]
    rows = [*rows[:3], (405.0, 9.0), *rows[3:]]
    assert Cleaned(raw_rows(rows)).tracks() == [0, 0, 1, 1, 1, 2, 2, 2]


def test_what_a_simulator_states_is_taken_as_it_is() -> None:
    assert Cleaned(raw_rows([(0.0, 0.0), (9000.0, 9e8)], stated=3)).tracks() == [0, 0]


def test_what_two_files_state_is_not_joined() -> None:
    one, other = raw_rows([(0.0, 0.0), (5.0, 1.0)], stated=0), raw_rows([(9.0, 2.0)], stated=0, file="other")
    assert Cleaned([*one, *other]).tracks() == [0, 0, 1]


def test_rows_are_resampled_on_the_line_and_never_between_tracks() -> None:
    track, rest = np.array([0, 0, 1, 2]), [np.full(4, np.nan)] * 2
    time_s, x_m = np.array([1.0, 6.0, 14.0, 21.0]), np.array([10.0, 60.0, 0.0, 0.0])
    y_m = np.array([0.0, 5.0, 0.0, 0.0])
    made = resample(TrackPositions(np.zeros(4, dtype=np.int64), track, time_s, x_m, y_m, *rest), 2.0)
    assert list(zip(*(column.tolist() for column in made[1:5]), strict=True)) == [
        (0, 2.0, 20.0, 1.0), (0, 4.0, 40.0, 3.0), (0, 6.0, 60.0, 5.0), (1, 14.0, 0.0, 0.0)
    ]  # fmt: skip


def log_of(path: Path, header: str = "bus,time,lon,lat") -> Path:
    """Two buses that meet in Zurich, a gap of one of them, and wrong rows."""
    lines = [header]
    for second in range(0, 1200, 10):
        lines.append(f"bus 10,{NOON + second:.0f},{8.5 + second * 1e-5:.6f},47.4")
        if not 300 < second < 900:
            lines.append(f"bus 9,{NOON + second:.0f},{8.51 - second * 1e-5:.6f},47.4")
    lines += ["bus 9,1777896000,0,0", "bus 9,soon,8.5,47.4", "bus 9,17778"]
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder / name, format="parquet").to_table().to_pylist()
    return rows


@pytest.fixture(scope="module")
def buses(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    ingest([log_of(folder / "buses.csv.gz")], folder / "buses")
    return folder / "buses"


def test_a_log_becomes_a_folder_with_every_row_accounted_for(buses: Path) -> None:
    facts = json.loads((buses / "fleet.json").read_text())
    assert facts["rejected"] == {"no_place": 1, "unreadable": 2}
    assert facts["rows"] == facts["positions"] + 3 == len(table(buses, "positions")) + len(table(buses, "rejected"))
    assert (facts["nodes"], facts["start_s"], facts["duration_s"]) == (2, NOON, 1190.0)
    assert {row["text"] for row in table(buses, "rejected")} == {
        None, "bus 9,17778", '{"bus":"bus 9","time":"soon","lon":"8.5","lat":"47.4"}'
    }  # fmt: skip
    shapes: tuple[tuple[str, TableSchema], ...] = (
        ("positions", POSITIONS), ("legs", LEGS), ("nodes", NODES), ("rejected", REJECTED)
    )  # fmt: skip
    for name, columns in shapes:
        assert ds.dataset(buses / name, format="parquet").schema.names == column_names(columns)
    assert [row["node"] for row in sorted(table(buses, "nodes"), key=lambda row: row["number"])] == ["bus 9", "bus 10"]
    assert sorted(path.name for path in buses.parent.iterdir()) == ["buses", "buses.csv.gz"], "nothing else is left"


def test_degrees_become_meters_that_are_meters_on_the_ground(buses: Path) -> None:
    rows = [row for row in table(buses, "positions") if row["node"] == "bus 10"]
    first, last = min(rows, key=lambda row: row["time_s"]), max(rows, key=lambda row: row["time_s"])
    # A degree of longitude on the ellipsoid: pi / 180 * a cos(lat) / sqrt(1 - e2 sin(lat)^2).
    latitude = np.radians(47.4)
    degree_m = np.radians(6_378_137.0 * np.cos(latitude) / np.sqrt(1 - 0.00669438 * np.sin(latitude) ** 2))
    ground_m = degree_m * (last["longitude"] - first["longitude"])
    assert np.hypot(last["x_m"] - first["x_m"], last["y_m"] - first["y_m"]) == pytest.approx(ground_m, rel=1e-5)
    assert min(row["x_m"] for row in table(buses, "positions")) >= 0


def test_a_scenario_plays_the_folder_with_its_gap(buses: Path) -> None:
    moving = FleetMovement(folder=str(buses)).trajectories(2, AREA, 1190.0, RNG)
    assert moving.position(0, 300.0) is not None
    assert moving.position(0, 600.0) is None, "bus 9 is absent, not parked"
    assert moving.position(0, 900.0) is not None
    assert moving.position(1, 600.0) is not None
    plan = compute_contacts(moving, 50.0, 1190.0)
    assert len(plan) == 0, "they would have met at 500 s"


def test_the_page_needs_nothing_but_itself(buses: Path) -> None:
    text = (buses / "index.html").read_text()
    assert "data:image/png;base64," in text
    assert "unreadable" in text
    assert 'href="http' not in text
    assert (buses / "fleet.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["ns2", "one", "csv"])
def test_a_fleet_is_written_for_others_and_read_again(
    spark: SparkSession, buses: Path, tmp_path: Path, name: str
) -> None:
    unsaid = write_fleet(buses, tmp_path / "out", name)
    played = FleetMovement(folder=str(buses)).trajectories(2, AREA, 1190.0, RNG)
    if name == "csv":
        assert unsaid == 0
        facts = ingest([tmp_path / "out"], tmp_path / "again", ReadOptions(format=name))
        assert facts["positions"] == len(table(buses, "positions"))
        moving = FleetMovement(folder=str(tmp_path / "again")).trajectories(2, AREA, 1190.0, RNG)
        assert moving.position(0, 600.0) is None
    else:
        assert unsaid == 1
        player = Ns2(file=str(tmp_path / "out")) if name == "ns2" else One(file=str(tmp_path / "out"))
        moving = player.recorded().moving
    for time_s in (0.0, 105.0, 299.0, 1000.0, 1185.0):
        there, here = played.positions(time_s), moving.positions(time_s)
        # The ONE has positions relative to the minimum, and numbers nodes in order of appearance.
        assert np.allclose(np.diff(here, axis=0), np.diff(there, axis=0), atol=1e-6) or name == "one"


def test_simulators_files_move_as_when_they_are_played(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "fleet.ns_movements").write_text(NS2)
    ingest([tmp_path / "fleet.ns_movements"], tmp_path / "ns")
    (tmp_path / "fleet.txt.gz").write_bytes(gzip.compress(ONE.encode()))
    ingest([tmp_path / "fleet.txt.gz"], tmp_path / "one")
    for folder, player in (
        ("ns", Ns2(file=str(tmp_path / "fleet.ns_movements"))),
        ("one", One(file=str(tmp_path / "fleet.txt.gz"))),
    ):
        made = compute_contacts(
            FleetMovement(folder=str(tmp_path / folder)).trajectories(3, AREA, 40.0, RNG), 50.0, 40.0
        )
        meant = compute_contacts(player.trajectories(3, AREA, 40.0, RNG), 50.0, 40.0)
        assert [*zip(made.a, made.b, made.start_s, made.end_s, strict=True)] == [
            *zip(meant.a, meant.b, meant.start_s, meant.end_s, strict=True)
        ]
        assert len(made) == 1


def test_points_of_gpx_and_geojson_are_one_fleet(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "day.gpx").write_text(GPX)
    line = {**FEATURES[1], "properties": {"times": [1777874400, 1777874430]}}
    (tmp_path / "ships.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [line]}))
    facts = ingest(
        [tmp_path / "day.gpx", tmp_path / "ships.geojson"], tmp_path / "out", rules=CleaningRules(max_speed_mps=5e3)
    )
    assert facts["files"] == {"day.gpx": "gpx", "ships.geojson": "geojson"}
    assert facts["rejected"] == {"unreadable": 1}
    assert [row["node"] for row in table(tmp_path / "out", "nodes")] == ["ferry", "tram 3"]


def test_names_that_clash_are_told_and_both_answers_work(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"id,t,x,y\n7,{NOON},0,0\n7,{NOON + 10},10,0\n7,{NOON + 20},20,0\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(UserError, match=r"node '7' is in a.csv and in b.csv at the same time"):
        ingest(files, tmp_path / "out")
    assert ingest(files, tmp_path / "apart", ReadOptions(by_file=True))["nodes"] == 2
    assert ingest(files, tmp_path / "one", ReadOptions(merge=True))["rejected"] == {"duplicate": 3}
    # The second file is of another hour. Equal rows with clock 0 in both are not a clash.
    (tmp_path / "a.csv").write_text((tmp_path / "a.csv").read_text() + "7,0,0,0\n")
    (tmp_path / "b.csv").write_text(f"id,t,x,y\n7,0,0,0\n7,{NOON + 3600},0,0\n7,{NOON + 3610},5,0\n")
    assert ingest(files, tmp_path / "hours")["rejected"] == {"clock": 2}


@pytest.mark.parametrize(
    ("text", "source", "told"),
    [
        ("id,time,lon,lat\n1,0,500000,5200000\n1,9,500010,5200000\n", {}, "place on earth.*swapped"),
        ("id,time,lon,lat\n1,0,8,47\n1,9,9,48\n1,18,8,49\n", {}, "faster than the limit; are the units right"),
        ("id,time,lon,lat\n1,0,8,47\n1,9,-120,10\n2,0,60,-40\n", {}, "too far for one map"),
        ("id,time,lon,lat\n1,soon,8,47\n", {}, "none of the rows can be read"),
        ("id,time,lon,lat\n1,0,8,47\n2,0,8,47\n", {}, "no node has two rows within 300 s"),
        ("id,time,lon\n1,0,8\n", {}, "needs columns for time"),
        ("id,time,x,x\n1,0,8,9\n", {"columns": {"y": "x"}}, "same name"),
        ("id,time,lon,lat\n1,0,8,47\n1,9,8,47\n", {"crs": "EPSG:4326"}, "no map in meters"),
        ("id,time,lon,lat\n1,0,8,47\n1,9,8,47\n", {"crs": "nowhere"}, "knows no such map"),
    ],
)
def test_bad_files_are_refused_in_a_line_and_leave_nothing(
    spark: SparkSession, tmp_path: Path, text: str, source: dict[str, Any], told: str
) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(UserError, match=told):
        ingest([tmp_path / "log.csv"], tmp_path / "out", ReadOptions(**source))
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_a_cut_gzip_log_and_a_cut_parquet_file_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    log_of(tmp_path / "log.csv.gz")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes((tmp_path / "log.csv.gz").read_bytes()[:-300])
    with pytest.raises(UserError, match="gzip file is cut or broken"):
        ingest([cut], tmp_path / "out")
    pq.write_table(pq.read_table(_parquet_log(tmp_path)), tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "cut.parquet").read_bytes()[:-40])
    with pytest.raises(UserError, match="not Parquet, or cut off"):
        ingest([tmp_path / "cut.parquet"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _parquet_log(folder: Path) -> Path:
    import pyarrow as pa

    path = folder / "log.parquet"
    pq.write_table(pa.table({"id": [1, 1], "time": [0, 9], "x": [0.0, 9.0], "y": [0.0, 0.0]}), path)
    return path


def test_a_folder_that_is_not_empty_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(UserError, match="is there already"):
        ingest([_parquet_log(tmp_path)], tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "kept"


def awkward_log(folder: Path) -> list[Path]:
    """Two files with all kinds of wrong rows, and node names whose order differs from that of their numbers."""
    rng = np.random.default_rng(5)
    lines: list[list[str]] = [[], []]
    for node in ("bus-10", "bus-9", "tram", "", "bus-2"):
        time_s, x = NOON, 8.5
        for _ in range(60):
            time_s += float(rng.choice([10.0, 10.0, 10.0, 0.0, 400.0, -30.0], p=[0.4, 0.2, 0.3, 0.04, 0.04, 0.02]))
            x += float(rng.choice([0.0, 0.001, -0.0005, 0.3], p=[0.3, 0.4, 0.25, 0.05]))
            clock = rng.choice([f"{time_s:.1f}", "0", "soon"], p=[0.96, 0.02, 0.02])
            place = rng.choice([f"{x:.6f},47.4", "0,0", "200,47", ",47"], p=[0.94, 0.02, 0.02, 0.02])
            lines[node == "tram"].append(f"{node},{clock},{place}")
    paths = [folder / "buses.csv", folder / "trams.csv"]
    for path, rows in zip(paths, lines, strict=True):
        path.write_text("id,time,lon,lat\n" + "\n".join(rows) + "\n")
    return paths


@pytest.mark.timeout(3600)
def test_one_partition_and_several_make_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, rules = awkward_log(tmp_path), CleaningRules(disordered=0.3)
    one = ingest(files, tmp_path / "one", rules=rules)
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 150)
    several = ingest(files, tmp_path / "several", rules=rules)
    assert len(list((tmp_path / "several" / "positions").iterdir())) > 1
    assert one == several
    assert set(one["rejected"]) == {"unreadable", "no_place", "clock", "duplicate", "conflict", "jump"}

    def rows(folder: str, table: str, columns: TableSchema) -> list[dict[str, Any]]:
        found = ds.dataset(tmp_path / folder / table, format="parquet").to_table(columns=column_names(columns))
        return sorted(found.to_pylist(), key=lambda row: [str(value) for value in row.values()])

    for table, columns in (("positions", POSITIONS), ("legs", LEGS), ("rejected", REJECTED), ("nodes", NODES)):
        assert rows("one", table, columns) == rows("several", table, columns)


def test_a_node_whose_rows_do_not_fit_into_memory_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "CLEANING_BYTES_PER_ROW", 1 << 50)
    with pytest.raises(UserError, match="GB of memory to clean"):
        ingest([log_of(tmp_path / "buses.csv")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"^[^\n]*fleet: not written, the disk is full[^\n]*$"):
        refuse_full_disk(OSError(28, "No space left on device"), tmp_path / "fleet")
    refuse_full_disk(OSError(5, "Input/output error"), tmp_path / "fleet")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is made by root alone")
def test_a_disk_that_fills_up_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(WorkError, match="the disk is full"):
            ingest([Path("examples/fleet/gps.csv").absolute()], disk / "fleet")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_columns_are_resampled_as_rows_are() -> None:
    """As `test_rows_are_resampled_on_the_line_and_never_between_tracks` has it."""
    track = np.array([0, 0, 0, 1, 1])
    time_s, x_m = np.array([0.0, 15.0, 20.0, 100.0, 110.0]), np.array([0.0, 150.0, 200.0, 0.0, 50.0])
    rest = [np.full(5, np.nan)] * 2
    rows = TrackPositions(np.zeros(5, dtype=np.int64), track, time_s, x_m, np.zeros(5), *rest)
    found = resample(rows, 10.0)
    assert list(zip(found.track.tolist(), found.time_s.tolist(), found.x_m.tolist(), strict=True)) == [
        (0, 0.0, 0.0),
        (0, 10.0, 100.0),
        (0, 20.0, 200.0),
        (1, 100.0, 0.0),
        (1, 110.0, 50.0),
    ]
    assert resample(rows, 7.0).time_s.tolist() == [0.0, 7.0, 14.0, 105.0]
