"""`metrics` judges any trace: a simulated one as its run did, those of live nodes as one network."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.trace_tables import read_tables
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.trace_files import TraceConfig
from carrycast.sim.engine.simulation import run as simulate
from carrycast.trace import Level
from carrycast.trace.files import read_rows, read_trace
from tests.cli.console import QUICK, call
from tests.live.conftest import MakeConfig, Run, config, run
from tests.pipeline.scenarios import tiny

__all__ = ["config", "run"]


def metrics(*arguments: str | Path) -> dict[str, dict[str, object]]:
    found = call("metrics", *arguments, "--json").object()["runs"]
    assert isinstance(found, list)
    return {one["run"]: one["metrics"] for one in found}


def test_a_simulated_trace_has_the_metrics_of_its_run(spark: SparkSession, tmp_path: Path) -> None:
    own = call("run", QUICK, "--protocol", "epidemic", "--trace", tmp_path / "trace", "--json").object()
    (found,) = metrics(tmp_path / "trace").values()
    assert found == own["metrics"]
    # The same by a file of it, and in a folder of folders; named twice it counts once.
    part = tmp_path / "trace" / "events" / "part-00000.parquet"
    assert list(metrics(part, tmp_path, tmp_path / "trace").values()) == [found]
    shown = call("metrics", tmp_path / "trace")
    assert shown.status == 0
    assert "delivery_ratio" in shown.out


def test_several_runs_are_judged_each_for_itself(spark: SparkSession, tmp_path: Path) -> None:
    own = {}
    for seed in (1, 2):
        outcome = simulate(tiny("flooding"), seed, Level.FULL)
        outcome.trace.save(tmp_path / str(seed))
        own[outcome.trace.run] = dict(outcome.metrics)
    assert metrics(tmp_path) == own


@pytest.mark.live
def test_the_traces_of_live_nodes_are_one_network(
    spark: SparkSession, tmp_path: Path, config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        trace = TraceConfig(Level.FULL, tmp_path, "field", 60.0)
        async with LoopbackNetwork(config(id, trace=trace) for id in range(3)) as network:
            network.line()
            await network.wait_until_discovered()
            inboxes = {id: Inbox() for id in network.nodes}
            for id, node in network.nodes.items():
                node.subscribe("n >= 0", inboxes[id])
            for n in range(4):
                network.nodes[0].publish({"n": n})
            network.nodes[2].publish({"n": -1})
            await until(lambda: all(len(inbox.events) == 4 for inbox in inboxes.values()))

    run(story())
    assert len(list(tmp_path.iterdir())) == 3
    found = metrics(*tmp_path.iterdir())
    assert list(found) == ["field"]
    field = found["field"]
    assert (field["published"], field["eligible"], field["delivered"], field["delivery_ratio"]) == (5, 8, 8, 1.0)
    assert field["hops_mean"] == 1.5
    # Five floods in a line of three: everybody sends each event once. Discovery is counted apart.
    assert (field["transmissions"], field["forwards"], field["receptions"]) == (15, 15, 20)
    delay_s = field["delay_mean_s"]
    assert isinstance(delay_s, float)
    assert 0 < delay_s < 5
    assert metrics(tmp_path) == found


def test_a_trace_that_keeps_too_little_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    outcome = simulate(tiny("flooding"), 1, Level.DELIVERIES)
    outcome.trace.save(tmp_path / "few")
    refusal = call("metrics", tmp_path / "few").refusal()
    assert f"{tmp_path / 'few'}: keeps deliveries, which tells nothing of frames and buffers" in refusal
    assert "--level deliveries" in refusal
    (found,) = metrics(tmp_path / "few", "--level", "deliveries").values()
    assert found == {name: outcome.metrics[name] for name in found}
    assert list(found)[-1] == "hops_mean"


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    assert f"{tmp_path}: holds no trace; give what" in call("metrics", tmp_path).refusal()
    assert "there is no such file or folder" in call("metrics", tmp_path / "gone").refusal()
    outcome = simulate(tiny("flooding"), 1, Level.FULL)
    outcome.trace.save(tmp_path / "trace")
    part = tmp_path / "trace" / "events" / "part-00000.parquet"
    table = pq.read_table(part)
    assert table.schema.metadata == {b"carrycast.trace": b"2", b"carrycast.level": b"full"}
    pq.write_table(table.replace_schema_metadata({b"carrycast.trace": b"3"}), part)
    newer = "part-00000.parquet: is of a newer carrycast: version 3 of traces, not 2; update carrycast"
    assert newer in call("metrics", tmp_path / "trace").refusal()
    pq.write_table(table.drop_columns(["counted"]), part)
    assert "part-00000.parquet: has no column counted; record" in call("metrics", tmp_path / "trace").refusal()
    part.write_bytes(b"PAR1 cut")
    assert "part-00000.parquet: cannot be read: " in call("metrics", tmp_path / "trace").refusal()


def test_traces_are_found_from_where_the_program_is_now(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("run", QUICK, "--trace", tmp_path / "trace").status == 0
    monkeypatch.chdir(tmp_path)
    assert read_tables(spark, [Path("trace")])[0].count() > 0


def test_an_older_trace_is_read_with_nulls_in_columns_that_it_does_not_have(tmp_path: Path) -> None:
    outcome = simulate(tiny("flooding"), 1, Level.FULL)
    outcome.trace.save(tmp_path / "trace")
    for table in ("events", "subscriptions", "trace"):
        for part in (tmp_path / "trace" / table).glob("*.parquet"):
            rows = pq.ParquetFile(part).read()
            older = rows.drop_columns(["processor"]) if "processor" in rows.column_names else rows
            said = {b"carrycast.trace": b"1", b"carrycast.level": b"full"}
            pq.write_table(older.replace_schema_metadata(said), part)
    assert list(metrics(tmp_path / "trace").values()) == [dict(outcome.metrics)]
    events = read_trace(tmp_path / "trace")[1]
    assert events["processor"].null_count == events.num_rows > 0
    [event] = read_rows(tmp_path / "trace", "events", most=1)
    assert event["processor"] is None
