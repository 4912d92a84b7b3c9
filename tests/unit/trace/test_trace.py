"""The trace: three levels of detail, tables in memory and as Parquet on disk."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.sim.engine.simulation import RunResult, run
from carrycast.trace import Level, Row, Trace, writer
from carrycast.trace.schema import EVENT_COLUMNS, SUBSCRIPTION_COLUMNS, TRACE_COLUMNS, arrow_schema
from tests.simulation.worlds import line


def traced(level: Level, directory: Path | None = None) -> RunResult:
    scenario = line(
        subscribe=[{"nodes": [1, 2], "until_s": 8.0, "attributes": {"rank": 3}}],
        publish=[
            {
                "nodes": [0],
                "interval_s": 100.0,
                "from_s": 1.0,
                "payload_bytes": 10,
                "access": "rank > 1",
                "attributes": {"topic": "x"},
            }
        ],
    )
    return run(scenario, 1, level, directory)


def test_at_the_level_of_metrics_nothing_is_kept() -> None:
    trace = traced(Level.METRICS).trace
    assert [table.num_rows for table in (trace.table(), trace.events(), trace.subscriptions())] == [0, 0, 0]
    assert trace.table().schema == arrow_schema(TRACE_COLUMNS)


def test_at_the_level_of_deliveries_it_says_who_got_what() -> None:
    rows = traced(Level.DELIVERIES).trace.table().to_pylist()
    assert [(row["time_s"], row["node"], row["kind"]) for row in rows] == [
        (0.0, 1, "subscribe"),
        (0.0, 2, "subscribe"),
        (1.0, 0, "publish"),
        (1.001, 1, "deliver"),
        (1.002, 2, "deliver"),
        (8.0, 1, "unsubscribe"),
        (8.0, 2, "unsubscribe"),
    ]
    delivery = rows[4]
    assert (delivery["event"], delivery["subscription"], delivery["hops"]) == ("0:0", "2:0", 2)
    assert {row["run"] for row in rows} == {"line/flooding/1"}


def test_the_full_trace_has_every_transmission_and_reception_and_link() -> None:
    rows = traced(Level.FULL).trace.table().to_pylist()
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("send"), kinds.count("receive")) == (3, 4)
    assert (kinds.count("link_up"), kinds.count("link_down")) == (4, 0)
    assert (kinds.count("start"), kinds.count("stop")) == (3, 3)
    sent = next(row for row in rows if row["kind"] == "send")
    assert sent["class"] == "data"
    assert sent["message"] == "FloodedEvent"
    assert (sent["layer"], sent["interface"], sent["event"], sent["hops"]) == ("dissemination", "radio", "0:0", 1)
    heard = next(row for row in rows if row["kind"] == "receive")
    assert (heard["node"], heard["peer"], heard["size_bytes"]) == (1, 0, sent["size_bytes"])


def test_events_and_subscriptions_say_what_is_needed_to_judge_deliveries() -> None:
    trace = traced(Level.DELIVERIES).trace
    (event,) = trace.events().to_pylist()
    assert event == {
        "run": "line/flooding/1",
        "event": "0:0",
        "source": 0,
        "time_s": 1.0,
        "attributes": '{"topic": "x"}',
        "size_bytes": event["size_bytes"],
        "lease_s": 600.0,
        "access": "rank > 1",
        "derived_from": None,
        "counted": True,
        "processor": None,
    }
    subscription = trace.subscriptions().to_pylist()[0]
    assert subscription == {
        "run": "line/flooding/1",
        "subscription": "1:0",
        "node": 1,
        "filter": "true",
        "attributes": '{"rank": 3}',
        "from_s": 0.0,
        "to_s": 8.0,
        "processor": None,
    }


def read(directory: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted(directory.glob("*.parquet"))])


@pytest.mark.parametrize("part_rows", [5, 200_000])
def test_a_trace_on_disk_is_the_trace_in_memory_in_however_many_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_rows: int
) -> None:
    kept = traced(Level.FULL).trace
    monkeypatch.setattr(writer, "PART_ROWS", part_rows)
    written = traced(Level.FULL, tmp_path).trace
    parts_before = len(list((tmp_path / "trace").glob("*.parquet")))
    assert (parts_before > 2) == (part_rows == 5), "full parts are written while the run goes on"
    written.save(tmp_path)
    assert read(tmp_path / "trace") == kept.table()
    assert read(tmp_path / "events") == kept.events()
    assert read(tmp_path / "subscriptions") == kept.subscriptions()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_trace_kept_in_memory_can_be_saved_too(tmp_path: Path) -> None:
    trace = traced(Level.FULL).trace
    table = trace.table()
    trace.save(tmp_path)
    assert read(tmp_path / "trace") == table


def test_an_empty_trace_is_three_readable_tables(tmp_path: Path) -> None:
    Trace("nothing", Level.FULL).save(tmp_path)
    for name, columns in (("trace", TRACE_COLUMNS), ("events", EVENT_COLUMNS), ("subscriptions", SUBSCRIPTION_COLUMNS)):
        table = read(tmp_path / name)
        assert table.num_rows == 0
        assert table.schema == arrow_schema(columns)


def test_a_part_appears_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(table: pa.Table, path: Path, compression: str) -> None:
        path.write_bytes(b"half of i")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    trace = Trace("broken", Level.FULL)
    trace.add(Row(0.0, 0, "dissemination", "start"))
    with pytest.raises(OSError, match="disk full"):
        trace.save(tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_largest_ids_fit() -> None:
    trace = Trace("large", Level.FULL)
    trace.add(Row(1e8, 2**63 - 1, "dissemination", "drop", peer=2**63 - 1, reason="x"))
    assert trace.table().to_pylist()[0]["node"] == 2**63 - 1
