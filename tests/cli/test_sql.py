"""`sql` asks what runs and traces hold; what cannot be asked is refused in a line."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.console import QUICK, call


@pytest.fixture(scope="module")
def swept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two protocols, one run each, with full traces."""
    folder = tmp_path_factory.mktemp("sql")
    study = folder / "study.toml"
    study.write_text(
        f'scenario = "{QUICK}"\nruns = 1\ntrace = "full"\n'
        '[[axes]]\nname = "protocol"\nvalues = ["flooding", "epidemic"]\n'
    )
    assert call("sweep", study, "--out", folder / "out", "--json").object()["failed"] == 0
    return folder / "out"


def rows(folder: Path, question: str) -> list[list[object]]:
    found = call("sql", folder, question, "--json").object()["rows"]
    assert isinstance(found, list)
    return found


def test_runs_and_their_traces_are_joined_by_the_run(swept: Path) -> None:
    question = """
        select r.point, r.transmissions, count_if(t.kind in ('send', 'retry') and t.class <> 'discovery'),
               r.published, first(e.published)
        from runs r join trace t on t.run = r.run
        join (select run, count(*) as published from events where counted group by run) e on e.run = r.run
        group by r.point, r.run, r.transmissions, r.published order by r.point desc
    """
    flooding, epidemic = rows(swept, question)
    assert [flooding[0], epidemic[0]] == ["flooding", "epidemic"]
    for _, transmissions, counted, published, events in (flooding, epidemic):
        assert transmissions == counted
        assert published == events
    assert rows(swept, "select count(distinct node) from subscriptions") == [[10]]


def test_an_answer_is_a_table_and_says_when_there_is_more(swept: Path) -> None:
    done = call("sql", swept, "select node, node from subscriptions order by node", "--most", "3")
    assert done.status == 0
    assert [line.split() for line in done.out.splitlines()[:4]] == [
        ["node", "node"],
        ["0", "0"],
        ["0", "0"],
        ["1", "1"],
    ]
    assert done.out.splitlines()[-1] == "there are more rows than these 3: say --most N"


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("select nothing from trace", "`nothing` cannot be resolved"),
        ("select * from traces", "`traces` cannot be found"),
        ("select (", "Syntax error"),
    ],
)
def test_what_spark_does_not_understand_is_told_in_a_line(swept: Path, question: str, told: str) -> None:
    line = call("sql", swept, question).refusal()
    assert told in line
    assert line.endswith("; there are runs, trace, events, subscriptions, metrics")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{}", "drop table runs"], "a question begins with select"),
        (["{}", "select 1"], "holds neither a runs.parquet nor a trace"),
        (["{}/none", "select 1"], "there is no such file or folder"),
        (["{}", "select 1", "--most", "0"], "at least one row is shown"),
    ],
)
def test_what_cannot_be_asked_is_told_before_spark_starts(
    tmp_path: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carrycast.analysis.spark.spark_session.session", None)
    assert told in call("sql", *(argument.format(tmp_path) for argument in arguments)).refusal()
