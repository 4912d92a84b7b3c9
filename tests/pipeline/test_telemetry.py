"""A watch over the traces of live nodes: its tables equal those of the batch job, also if it is killed."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.trace_metrics import metrics_of_traces
from carrycast.analysis.telemetry.arrivals import find_first_change
from carrycast.analysis.telemetry.folder import SETTINGS_FILE, TelemetrySettings, WatchFolder
from carrycast.analysis.telemetry.minutes import compute_minutes
from carrycast.analysis.telemetry.picture import Minute, clock_text, read_minutes
from carrycast.analysis.telemetry.stream import Steps, Watcher
from carrycast.errors import UserError, WorkError
from carrycast.trace import Level
from carrycast.trace.schema import EVENT_COLUMNS, SUBSCRIPTION_COLUMNS, TRACE_COLUMNS, arrow_schema
from tests.cli.console import COMMAND, call, environment
from tests.patience import PATIENCE_S
from tests.pipeline.live_parts import BEGUN_S, LiveParts, write_part
from tests.pipeline.scenarios import tiny

COMING_AND_GOING: list[dict[str, object]] = [
    {"filter": "topic >= 2", "at_s": 30.0, "until_s": 70.0},
    {"nodes": "50%", "filter": "topic in (1, 2)", "until_s": 45.0},
]
# A step takes seconds of two free cores, and these tests take several; on a machine that is busy that is long.
pytestmark = pytest.mark.timeout(3600)
LOSSY = {"model": "disk", "range_m": 200.0, "loss": 0.2}


@pytest.fixture(scope="module")
def parts() -> LiveParts:
    """Ten minutes, in six flushes."""
    scenario = tiny("flooding", subscribe=COMING_AND_GOING, radio=LOSSY, discovery={"mode": "beacon", "period_s": 2.0})
    return LiveParts(scenario, flushes=6, pace=5.0)


def open_folder(out: Path, traces: Path, late_s: float = 120.0, wait_s: float = 240.0) -> WatchFolder:
    out.mkdir(exist_ok=True)
    return WatchFolder(out, TelemetrySettings(folders=[str(traces)], late_s=late_s, wait_s=wait_s))


def run_watch(spark: SparkSession, folder: WatchFolder) -> None:
    """Process all files that exist."""
    watcher = Watcher(spark, folder)
    watcher.start(1.0, once=True)
    watcher.run(threading.Event(), lambda: None)


def raise_killed(*_: object) -> None:
    raise WorkError("killed")


def read_tables(out: Path) -> list[Minute]:
    """Read the tables without the column `final`, which the batch job does not have."""
    return [{key: value for key, value in row.items() if key != "final"} for row in read_minutes(out, None)]


def test_killed_in_any_step_it_ends_with_the_numbers_of_the_batch_job(
    spark: SparkSession, tmp_path: Path, parts: LiveParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    parts.flush(traces, 0)
    run_watch(spark, open_folder(out, traces))
    # Killed after the tables are written and before the commit: the step is repeated from the previous state.
    for number in (1, 2, 3):
        parts.flush(traces, number)
    with monkeypatch.context() as killed:
        killed.setattr(WatchFolder, "commit_step", raise_killed)
        with pytest.raises(WorkError, match="killed"):
            run_watch(spark, open_folder(out, traces))
    assert open_folder(out, traces).commit.step == 0
    for number in (4, 5):
        parts.flush(traces, number)
    run_watch(spark, open_folder(out, traces))
    folder = open_folder(out, traces)
    assert (folder.commit.left_out, folder.commit.refused) == (0, 0)
    assert folder.commit.files == 12 * 6 * 2
    assert read_tables(out) == compute_minutes([traces])
    minutes = read_minutes(out, None)
    finals = [minute["final"] for minute in minutes if "published" in minute]
    assert finals == sorted(finals, reverse=True)
    assert {True, False} == set(finals)
    assert any(minute.get("drops", {}).get("loss") for minute in minutes)
    [whole] = metrics_of_traces([traces]).values()
    for metric in ("published", "eligible", "delivered", "transmissions", "total_bytes", "airtime_us"):
        assert sum(minute.get(metric, 0) for minute in minutes) == whole[metric], metric
    assert 0 < int(str(whole["delivered"])) < int(str(whole["eligible"]))


def row(time_s: float | None, node: int | None = 1, kind: str = "send", **more: object) -> dict[str, object]:
    frame = {"class": "data", "size_bytes": 100} if kind == "send" else {}
    return {"run": "live", "time_s": time_s, "node": node, "layer": "dissemination", "kind": kind, **frame, **more}


def event(name: str, time_s: float, source: int = 1) -> dict[str, object]:
    known = {"attributes": "{}", "size_bytes": 10, "counted": True}
    return {"run": "live", "event": name, "source": source, "time_s": time_s, **known}


def subscription(node: int, from_s: float, to_s: float | None = None, text: str = "true") -> dict[str, object]:
    id = f"{node}:{from_s}"
    return {
        "run": "live",
        "subscription": id,
        "node": node,
        "filter": text,
        "attributes": "{}",
        "from_s": from_s,
        "to_s": to_s,
    }


class TraceWriter:
    """Writes traces, and lists the files that no step has processed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[Path, int] = {}
        self.new: list[Path] = []

    def add(self, node: str, table: str, rows: list[dict[str, object]], level: Level = Level.FULL) -> Path:
        columns = {"trace": TRACE_COLUMNS, "events": EVENT_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}[table]
        place = self._folder / node / table
        number = self._numbers.get(place, 0)
        if table != "subscriptions":
            self._numbers[place] = number + 1
        path = write_part(place, number, pa.Table.from_pylist(rows, schema=arrow_schema(columns)), level)
        self.new.append(path)
        return path

    def take(self) -> list[Path]:
        taken, self.new = self.new, []
        return taken


def test_what_no_table_can_take_is_counted_and_told(spark: SparkSession, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    written = TraceWriter(traces)
    steps = Steps(spark, open_folder(out, traces, late_s=60.0, wait_s=60.0))
    at = BEGUN_S
    # In the first step, a delivery may precede its event, a clock may be slow, and a frame may be old.
    delivered: dict[str, object] = {"event": "1:1", "subscription": "2:0", "hops": 1}
    written.add(
        "a", "trace", [row(at - 600), row(at + 1), row(None), row(float("nan")), row(1e300), row(at, node=None)]
    )
    written.add(
        "b", "trace", [row(at + 1.5, 2, "deliver", **delivered), row(at + 6, kind="drop", reason="full: 3 of 3")]
    )
    written.add("b", "subscriptions", [subscription(2, at - 10)])
    written.add("quiet", "trace", [row(at + 2, node=3, kind="publish")], Level.DELIVERIES)
    broken = written.add("a", "trace", [])
    broken.write_bytes(broken.read_bytes()[:100])
    other = written.add("a", "trace", [])
    pq.write_table(pa.table({"x": [1]}), other)
    steps.take(0, written.take())
    written.add("a", "events", [event("1:1", at + 2)])
    steps.take(1, written.take())
    # The watermark is a minute before the last row: rows of earlier minutes are late.
    written.add("a", "trace", [row(at + 400)])
    steps.take(2, written.take())
    written.add("a", "trace", [row(at + 3), row(at + 4), row(at + 1000, 2, "deliver", **{**delivered, "event": "9:9"})])
    written.add("a", "events", [event("1:2", at + 3)])
    written.add("a", "trace", [row(3e9)])
    steps.take(3, written.take())
    folder = open_folder(out, traces, late_s=60.0, wait_s=60.0)
    # A row of a fast clock counts at its own time, and does not make the rows of other nodes late.
    assert folder.commit.watermark_s is not None
    assert folder.commit.watermark_s <= time.time()
    lost = pq.read_table(out / "left_out").to_pylist()
    assert sorted((one["reason"], one["node"] or 0, one["rows"]) for one in lost) == [
        ("event_unknown", 2, 1),
        ("late", 1, 1),
        ("late", 1, 2),
        ("malformed", 0, 1),
        ("malformed", 1, 3),
    ]
    assert folder.commit.left_out == 8
    refused = {Path(one["file"]).name: one["reason"] for one in pq.read_table(out / "refused").to_pylist()}
    assert refused[broken.name].startswith("cannot be read")
    assert refused[other.name] == "has no column run; record the trace again"
    by_minute = {minute["minute_s"]: minute for minute in read_minutes(out, None)}
    first = by_minute[int(at)]
    assert (first["published"], first["eligible"], first["delivered"], first["final"]) == (1, 1, 1, True)
    assert (first["delays_negative"], first["delay_p50_s"]) == (1, -0.5)
    # A trace of deliveries has no frames: its node does not count among the nodes of a minute.
    assert (first["transmissions"], first["nodes"], first["drops"]) == (1, 2, {"full": 1})
    assert by_minute[int(at) - 600]["transmissions"] == 1
    assert by_minute[3_000_000_000]["final"] is False


def test_deliveries_of_events_whose_minute_is_final_are_in_a_table(spark: SparkSession, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    written = TraceWriter(traces)
    at = BEGUN_S
    arguments = ("watch", traces, "--out", out, "--late", "60", "--wait", "60", "--once", "--json")
    delivered: dict[str, object] = {"event": "1:1", "hops": 1}

    def waiting() -> list[tuple[int, int, int]]:
        return [(row["minute_s"], row["node"], row["rows"]) for row in pq.read_table(out / "waiting").to_pylist()]

    written.add("b", "subscriptions", [subscription(2, at - 10), subscription(3, at - 10)])
    written.add("a", "events", [event("1:1", at + 2)])
    written.add("b", "trace", [row(at + 3, 2, "deliver", subscription=f"2:{at - 10}", **delivered), row(at + 600)])
    found = call(*arguments).object()
    assert (found["left_out"], found["waiting"], waiting()) == (0, 0, [])
    # The event's minute is final and has left the state. A recent delivery of the event to another node waits.
    written.add("c", "trace", [row(at + 590, 3, "deliver", subscription=f"3:{at - 10}", **delivered)] * 2)
    written.add("c", "trace", [row(at + 4, 4, "deliver", subscription="4:0", **delivered)])
    found = call(*arguments).object()
    assert (found["left_out"], found["waiting"]) == (0, 2)
    assert sorted(waiting()) == [(int(at), 4, 1), (int(at + 540) // 60 * 60, 3, 1)]
    assert found["rows"] == 5
    # When the wait for the event ends, the delivery is left out.
    written.add("a", "trace", [row(at + 1200)])
    found = call(*arguments).object()
    assert (found["left_out"], found["waiting"], waiting()) == (2, 0, [])
    lost = pq.read_table(out / "left_out").to_pylist()
    assert [(one["reason"], one["node"]) for one in sorted(lost, key=lambda one: one["node"])] == [
        ("event_unknown", 3), ("event_unknown", 4)
    ]  # fmt: skip


def test_a_step_looks_again_at_minutes_in_which_other_subscriptions_stood() -> None:
    schema = arrow_schema(SUBSCRIPTION_COLUMNS)

    def subscription_table(*rows: dict[str, object]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=schema)

    one, ended = subscription(1, 10.0), subscription(1, 10.0, to_s=50.0)
    assert find_first_change(subscription_table(one), subscription_table(one), 0.0) is None
    assert find_first_change(subscription_table(), subscription_table(one), 0.0) == 10.0
    assert find_first_change(subscription_table(one), subscription_table(ended), 0.0) == 50.0
    assert find_first_change(subscription_table(one), subscription_table(one, subscription(2, 30.0)), 0.0) == 30.0
    # Subscriptions that ended before all open minutes are ignored.
    assert find_first_change(subscription_table(ended, one), subscription_table(one), 60.0) is None


def test_minutes_are_named_by_the_clock_of_the_trace() -> None:
    assert clock_text(120) == "2 min"
    assert ":" in clock_text(int(BEGUN_S))


@pytest.fixture
def before_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that Spark does not start: mistakes are rejected before."""
    monkeypatch.setattr("carrycast.analysis.spark.spark_session.session", None)


@pytest.mark.usefixtures("before_spark")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{}/none"], "there is no such folder"),
        (["{}", "--out", "{}/out"], "which is watched; give another"),
        (["{}/a", "{}", "--out", "{}-out"], "lies in another folder that is watched"),
        (["{}/a", "--out", "{}/out", "--late", "0"], "--late 0: give from 1 to 604800 seconds"),
        (["{}/a", "--out", "{}/out", "--wait", "inf"], "--wait inf: give from 0 to 604800 seconds"),
        (["{}/a", "--out", "{}/out", "--every", "nan"], "--every nan: give from 0.1 to 604800 seconds"),
        (["{}/b[1]", "--out", "{}/out"], "which Spark takes for a pattern"),
        (["{}/a", "--out", "{}/b[1]"], "holds something that no watch wrote; give --out another folder"),
    ],
)
def test_what_cannot_be_watched_is_told_in_a_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    for name in ("a", "b[1]"):
        (tmp_path / name).mkdir()
    (tmp_path / "b[1]" / "notes.txt").touch()
    assert told in call("watch", *(argument.format(tmp_path) for argument in arguments)).refusal()


@pytest.mark.usefixtures("before_spark")
def test_tables_of_another_version_or_of_other_settings_are_left_as_they_are(tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    open_folder(out, traces, late_s=300.0, wait_s=3600.0)
    way_out = "give --out another folder: the traces are read again from their beginning, and these tables stay"
    line = call("watch", traces, "--out", out, "--late", "10").refusal()
    assert line == f"carrycast: {out}: was begun with --late 300; say the same, or {way_out}"
    settings = msgspec.json.decode((out / SETTINGS_FILE).read_bytes())
    (out / SETTINGS_FILE).write_bytes(msgspec.json.encode({**settings, "version": 0, "new": 1}))
    line = call("watch", traces, "--out", out).refusal()
    assert "was kept by a carrycast with version 0 of these tables, and this one has 1" in line
    assert line.endswith(way_out)
    (out / SETTINGS_FILE).write_bytes(b"{")
    assert "cannot be read" in call("watch", traces, "--out", out).refusal()


def test_tables_and_checkpoint_must_belong_together(spark: SparkSession, tmp_path: Path, parts: LiveParts) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    parts.flush_node(traces, 0, 1)
    run_watch(spark, open_folder(out, traces))
    (out / "committed.json").unlink()
    parts.flush_node(traces, 1, 1)
    with pytest.raises(WorkError, match="do not belong together: give --out another folder"):
        run_watch(spark, open_folder(out, traces))
    (out / "committed.json").write_bytes(b"{")
    with pytest.raises(UserError, match="another folder"):
        open_folder(out, traces)


def test_it_ends_between_two_steps_when_asked_to(spark: SparkSession, tmp_path: Path, parts: LiveParts) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    watcher = Watcher(spark, open_folder(out, traces))
    ended = threading.Event()
    watcher.start(0.2, once=False)
    # The folder of a node that starts later is found, too.
    threading.Timer(0.5, lambda: parts.flush_node(traces, 0, 1)).start()
    watcher.run(ended, ended.set)
    assert watcher.commit.step >= 0
    assert read_tables(out) == compute_minutes([traces])


def test_a_step_that_is_over_before_anybody_waits_for_it_is_looked_at(
    spark: SparkSession, tmp_path: Path, parts: LiveParts
) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    parts.flush(traces, 0)
    watcher = Watcher(spark, open_folder(out, traces))
    ended = threading.Event()
    watcher.start(0.2, once=False)
    while watcher.commit.step < 0:
        time.sleep(0.05)
    impatient = threading.Timer(PATIENCE_S, ended.set)
    impatient.start()
    looks: list[int] = []

    def look() -> None:
        looks.append(watcher.commit.step)
        ended.set()

    watcher.run(ended, look)
    impatient.cancel()
    assert looks == [watcher.commit.step]


@pytest.mark.slow
def test_killed_for_good_and_started_again(tmp_path: Path, parts: LiveParts) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    parts.flush(traces, 0)
    command = [
        *COMMAND,
        "watch",
        str(traces),
        "--out",
        str(out),
        "--json",
        "--late",
        "120",
        "--wait",
        "240",
        "--every",
        "0.5",
    ]

    def start_watch() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)

    first = start_watch()
    assert first.stdout is not None
    assert '"step":0' in first.stdout.readline()
    for number in (1, 2):
        parts.flush(traces, number)
    # By now, none, some or all of the step's files are written.
    time.sleep(2.0)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    for number in (3, 4, 5):
        parts.flush(traces, number)
    second = start_watch()
    assert second.stdout is not None
    wanted = 12 * 6 * 2
    while (line := second.stdout.readline()) and msgspec.json.decode((out / "committed.json").read_bytes())[
        "files"
    ] < wanted:
        assert '"left_out":0' in line
    second.send_signal(signal.SIGINT)
    assert second.wait() == 0
    assert read_tables(out) == compute_minutes([traces])
