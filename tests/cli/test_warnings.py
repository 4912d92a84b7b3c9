"""Warnings of runs that say nothing: on standard error, in `--json`, and in the report."""

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.api import simulate
from tests.cli.console import QUICK, call

SCENARIO = QUICK.read_text()
MISTYPED = "subscribe[0].filter: compares topic with a number, but publications give a string; that is never true"
LINE = f"carrycast: warning: {MISTYPED}"


@pytest.fixture
def mistyped(tmp_path: Path) -> Path:
    """The first example, with a number in place of a word."""
    path = tmp_path / "mistyped.toml"
    changed, times = re.subn(r"(?m)^filter = .*$", 'filter = "topic = 1"', SCENARIO)
    assert times == 1
    path.write_text(re.sub(r"(?m)^draw.*\n", "", changed))
    return path


@pytest.mark.parametrize("command", ["run", "check"])
def test_run_and_check_warn(mistyped: Path, command: str) -> None:
    told = call(command, mistyped)
    assert told.status == 0
    assert told.err.splitlines() == [LINE]
    assert "warning" not in told.out.replace("with warnings", "")
    as_json = call(command, mistyped, "--json")
    assert as_json.object()["warnings"] == [MISTYPED]
    assert as_json.err.splitlines() == [LINE]
    assert call("--quiet", command, mistyped).err == ""


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_good_scenario_is_not_warned_of(command: str) -> None:
    told = call(command, QUICK)
    assert told.err == ""
    assert call(command, QUICK, "--json").object()["warnings"] == []


def test_check_says_that_it_runs(mistyped: Path) -> None:
    assert call("check", mistyped).out.startswith(f"{mistyped}: runs, with warnings\n")
    assert call("check", QUICK).out.startswith(f"{QUICK}: fine\n")


def test_a_program_reads_them_too(mistyped: Path) -> None:
    assert simulate(mistyped).warnings == [MISTYPED]
    assert simulate(QUICK).warnings == []


def test_compare_warns_before_its_runs_and_in_its_report(mistyped: Path, tmp_path: Path, spark: SparkSession) -> None:
    out = tmp_path / "out"
    told = call("compare", mistyped, "--protocols", "flooding,epidemic", "--runs", "1", "--out", out)
    assert told.status == 0
    assert told.err.splitlines().count(LINE) == 1
    page = (out / "index.html").read_text()
    assert "<h3>Warnings</h3>" in page
    assert "compares topic with a number" in page
    as_json = call("compare", mistyped, "--protocols", "flooding,epidemic", "--runs", "1", "--out", out, "--json")
    assert as_json.object()["warnings"] == [MISTYPED]
    assert as_json.err.splitlines() == [LINE]
    # The report remembers, though the scenario is gone.
    mistyped.unlink()
    again = call("report", out, "--json")
    assert again.object()["warnings"] == [MISTYPED]
    assert again.err.splitlines() == [LINE]


def test_a_sweep_says_at_which_points(tmp_path: Path, spark: SparkSession) -> None:
    out = tmp_path / "out"
    arguments: list[str | Path] = ["sweep", QUICK, "--vary", "radio.range_m=0.001,60", "--runs", "1", "--out", out]
    said = "at range_m=0.001: radio.range_m: no two nodes ever come within 0.001 m of each other"
    told = call(*arguments)
    assert told.status == 0
    (line,) = [line for line in told.err.splitlines() if "warning" in line]
    assert line.endswith(said.split(": ", 1)[1])
    assert "0.001" in line.split(": ")[2]
    found = call(*arguments, "--json").object()["warnings"]
    assert isinstance(found, list)
    assert len(found) == 1
    kept = json.loads(next((out / "experiments").glob("*/warnings.json")).read_text())
    assert kept == found
    report = call("report", out)
    assert report.err.splitlines() == [line]
    assert "<h3>Warnings</h3>" in (out / "index.html").read_text()


def test_a_report_without_warnings_has_no_such_heading(tmp_path: Path, spark: SparkSession) -> None:
    out = tmp_path / "out"
    told = call("compare", QUICK, "--protocols", "flooding,epidemic", "--runs", "1", "--out", out)
    assert "warning" not in told.err
    assert "<h3>Warnings</h3>" not in (out / "index.html").read_text()
