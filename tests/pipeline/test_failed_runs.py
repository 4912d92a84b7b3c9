"""A run that fails says why: which node, when, where in the code; in rows, on standard error, in the exit status."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.records import Record, failure_lines
from carrycast.analysis.spark.sweep import read_runs
from carrycast.sim.engine.failure import RunError
from carrycast.sim.engine.simulation import run
from tests.cli.console import QUICK, call
from tests.pipeline.scenarios import tiny

BROKEN = """
from carrycast.protocols.flooding.protocol import Flooding

class Broken(Flooding):
    name = "broken"
    summary = "divides by zero"

    def on_publish(self, now, event):
        super().on_publish(now, event)
        1 / 0

PROTOCOL = Broken
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol of the user's own that raises."""
    folder = tmp_path / "carrycast" / "protocols" / "broken"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(BROKEN)
    import carrycast.protocols

    monkeypatch.setattr(carrycast.protocols, "__path__", [*carrycast.protocols.__path__, str(folder.parent)])


def test_an_error_of_a_run_is_told_with_node_time_and_place(broken: None) -> None:
    with pytest.raises(RunError) as caught:
        run(tiny("broken"), 1)
    text = str(caught.value)
    assert text.startswith("tiny/broken/1: at ")
    assert " s node " in text
    assert "ZeroDivisionError: division by zero (broken/__init__.py:10 in on_publish) (replay with --seed 1)" in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "\n" not in text


def test_run_says_so_in_one_line(broken: None) -> None:
    assert "ZeroDivisionError: division by zero (broken/" in call("run", QUICK, "--protocol", "broken").refusal(1)


ROWS: list[Record] = [
    {"experiment": "e", "point": "p", "seed": seed, "error": error}
    for seed, error in enumerate(
        ["at 1.5 s node 3: A", None, "at 22 s node 14: A", "B", *(f"reason {letter}" for letter in "cdefg")]
    )
]


def test_reasons_that_differ_in_numbers_alone_are_one() -> None:
    lines = failure_lines(ROWS)
    assert lines[:3] == [
        "8 of 9 runs failed",
        "e, p, seed 0: at 1.5 s node 3: A (and 1 more like it)",
        "e, p, seed 3: B",
    ]
    assert len(lines) == 7
    assert lines[-1] == "2 other reasons: runs.parquet has them all, in the column error"
    assert failure_lines(ROWS[1:2]) == []


def replaying(folder: Path) -> Path:
    """A scenario whose contacts are not there."""
    path = folder / "gone.toml"
    path.write_text(
        'duration_s = 5.0\nnodes = 3\ncontacts = "gone.txt"\nprotocol.name = "flooding"\nsubscribe = [{}]\n'
        "publish = [{ count = 2 }]\n"
    )
    return path


def test_compare_says_why_and_shows_no_table_of_dashes(spark: SparkSession, tmp_path: Path) -> None:
    path, out = replaying(tmp_path), tmp_path / "out"
    done = call("compare", path, "--protocols", "flooding,gossip", "--runs", "2", "--out", out)
    assert done.status == 1
    assert done.out == ""
    lines = done.err.splitlines()
    assert "carrycast: 4 of 4 runs failed" in lines
    assert any(line.startswith("carrycast: compare, flooding, seed 1: ") and "gone.txt" in line for line in lines)
    assert (
        call("compare", path, "--protocols", "flooding", "--runs", "1", "--out", out, "--json").object(1)["failed"] == 1
    )
    # The row keeps the whole text, however long.
    assert all("gone.txt" in str(row["error"]) for row in read_runs(out))


def test_sweep_says_why(spark: SparkSession, tmp_path: Path) -> None:
    replaying(tmp_path)
    study = tmp_path / "study.toml"
    study.write_text('scenario = "gone.toml"\nruns = 1\n[[axes]]\nname = "protocol"\nvalues = ["flooding"]\n')
    done = call("sweep", study, "--out", tmp_path / "out", "--json")
    assert done.object(1)["failed"] == 1
    assert "carrycast: 1 of 1 runs failed\ncarrycast: study, flooding, seed 1: " in done.err
    again = call("report", tmp_path / "out")
    assert again.status == 1
    assert "carrycast: study, flooding, seed 1: " in again.err
