"""Metrics that users write: in experiments, in claims, over any trace; what is wrong with one is told in a line."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.experiment import load_experiment
from carrycast.analysis.spark.own_metrics import compute_values, load_metrics, metric
from carrycast.analysis.spark.trace_tables import read_tables
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.trace import Level
from tests.cli.console import EXAMPLES, call
from tests.pipeline.scenarios import tiny

OWN = EXAMPLES / "metrics"
HEAD = "from carrycast.analysis.spark import metric\n\n"
NOTHING = "    pass\n"

pytestmark = pytest.mark.timeout(3600)


def test_an_experiment_uses_them_in_tables_and_claims(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = call("reproduce", OWN / "experiment.toml", "--runs", "1", "--out", out, "--json").object()
    [claim] = json.loads(json.dumps(found["claims"]))
    assert claim["statement"] == "Flooding delivers at once or never"
    assert claim["ours"] is not None
    question = "select point, seed, get_json_object(more, '$.late_share') as late from runs order by point, seed"
    rows = call("sql", out, question, "--json").object()["rows"]
    assert isinstance(rows, list)
    late = {(point, seed): float(value) for point, seed, value in rows}
    assert len(late) == 4
    [[key]] = json.loads(
        json.dumps(
            call("sql", out, "select key from runs where point = 'epidemic / 60' and seed = 1", "--json").object()
        )
    )["rows"]
    judged = call("metrics", out / "traces" / str(key), "--metrics-from", OWN / "late.py", "--json").object()
    [one] = json.loads(json.dumps(judged["runs"]))
    assert one["metrics"]["late_share"] == late["epidemic / 60", 1]
    assert late["epidemic / 60", 1] > late["flooding / 60", 1]
    # The report is made anew from what is kept, with the functions beside it.
    again = call("report", out, "--json").object()
    assert again["claims"] == found["claims"]
    assert "Share of deliveries that took longer than a second" in (out / "index.html").read_text()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("", "registers no metric; put @carrycast.analysis.spark.metric('name') above a function"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        (HEAD + "@metric('Late')\ndef late(t, e, s):\n" + NOTHING, "a metric cannot be called 'Late'"),
        (HEAD + "@metric('delivered')\ndef late(t, e, s):\n" + NOTHING, "there is a metric 'delivered' already"),
        (HEAD + ("@metric('late')\ndef late(t, e, s):\n" + NOTHING) * 2, "the metric 'late' is there twice"),
    ],
)
def test_a_file_that_registers_none_or_a_wrong_one_is_told(tmp_path: Path, code: str, told: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(code)
    assert told in call("metrics", tmp_path, "--metrics-from", file).refusal()


def test_names_are_taken_once(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(HEAD + "@metric('late')\ndef late(t, e, s):\n" + NOTHING)
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    with pytest.raises(UserError, match=r"b\.py: the metric 'late' is there in .*a\.py too"):
        load_metrics(files)
    with pytest.raises(UserError, match="there is no such Python file"):
        load_metrics([tmp_path / "c.py"])
    assert [one.name for one in load_metrics(files[:1])] == ["late"]


@pytest.mark.parametrize(
    ("replaced", "told"),
    [
        (('trace = "full" ', 'trace = "metrics" '), "metrics_from: is computed from traces; set trace = 'full'"),
        (('metrics_from = ["late.py"]', 'metrics_from = ["lost.py"]'), "lost.py: there is no such Python file"),
        (('metric = "late_share"', 'metric = "late_shar"'), "did you mean 'late_share'?"),
        (('["late.py"]', '["late.py", "x/late.py"]'), "two files are called the same"),
        (
            ("[[axes]]", '[[measures]]\nname = "late_share"\ncounts = "facts"\nfact = "x"\n\n[[axes]]'),
            "the metric 'late_share' is there in measures too",
        ),
    ],
)
def test_an_experiment_that_cannot_have_them_is_refused(tmp_path: Path, replaced: tuple[str, str], told: str) -> None:
    (tmp_path / "late.py").write_bytes((OWN / "late.py").read_bytes())
    text = (OWN / "experiment.toml").read_text().replace("../quick.toml", str(EXAMPLES / "quick.toml"))
    assert replaced[0] in text
    (tmp_path / "experiment.toml").write_text(text.replace(*replaced, 1))
    with pytest.raises(UserError) as refused:
        load_experiment(str(tmp_path))
    assert told in str(refused.value)


def test_what_is_returned_must_be_a_value_for_each_run(spark: SparkSession, tmp_path: Path) -> None:
    outcome = run(tiny(), 1, Level.FULL, tmp_path)
    outcome.trace.save(tmp_path)
    tables = read_tables(spark, [tmp_path])

    def told(code: str) -> str:
        own = metric("own")(lambda trace, events, subscriptions: eval(code, {**locals(), "spark": spark}))
        with pytest.raises(UserError) as refused:
            compute_values(own, *tables)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    ends = "return a DataFrame with the columns run and value"
    assert told("None") == f"the metric 'own' returned nothing; {ends}"
    assert told("3") == f"the metric 'own' returned int; {ends}"
    assert (
        told("trace.select('run', 'node')") == "the metric 'own' returned the columns run, node; it needs run and value"
    )
    assert "of type string; it must be a number" in told("events.selectExpr('run', 'event as value')")
    assert "has two values for the run 'tiny/flooding/1'" in told("events.selectExpr('run', '1 as value')")
    assert "is infinite" in told("spark.sql(\"select 'r' as run, double('inf') as value\")")
    assert "the metric 'own' failed:" in told("trace.select('nowhere')")
    assert "failed: NameError" in told("nobody")
    assert "failed:" in told(
        "spark.sql(\"select 'r' as run, raise_error('bad') as value\").selectExpr('run', 'int(value) as value')"
    )
    absent = metric("absent")(
        lambda trace, events, subscriptions: spark.sql("select 'r' as run, double('nan') as value")
    )
    assert compute_values(absent, *tables) == {"r": None}
