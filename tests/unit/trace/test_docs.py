"""The reference has the meaning of every column and kind; the pages on traces and telemetry name all columns."""

import re
from pathlib import Path

import pytest

from carrycast.analysis.spark.records import record_columns
from carrycast.analysis.telemetry.load import LEFT_OUT_COLUMNS, WAITING_COLUMNS
from carrycast.analysis.telemetry.minutes import FRAMES
from carrycast.analysis.telemetry.publications import TABLE_COLUMNS
from carrycast.sim.scenario.measures import METRIC_MEANINGS
from carrycast.trace.files import TABLES
from carrycast.trace.schema import COLUMN_MEANINGS, KIND_MEANINGS, Kind

PAGE = Path(__file__).parents[3] / "docs" / "traces.md"


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_meaning(table: str) -> None:
    assert list(COLUMN_MEANINGS[table]) == [name for name, _ in TABLES[table]]
    assert all(COLUMN_MEANINGS[table].values())


def test_every_kind_has_a_meaning() -> None:
    assert list(KIND_MEANINGS) == list(Kind)
    assert all(KIND_MEANINGS.values())


def test_every_metric_is_defined() -> None:
    table = (PAGE.parent / "metrics.md").read_text().split("## Definitions\n")[1].split("\n## ")[0]
    defined = [
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    assert defined == list(METRIC_MEANINGS)


def test_every_column_of_runs_is_told() -> None:
    section = PAGE.read_text().split("## The table `runs`\n")[1].split("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", section))
    metrics = set(METRIC_MEANINGS)
    assert {name for name, _ in record_columns()} - metrics <= told


def test_every_column_that_a_watch_keeps_is_told() -> None:
    page = (PAGE.parent / "telemetry-tables.md").read_text()
    told = {
        table: re.findall(r"`(\w+)`", columns)
        for table, columns in re.findall(r"^\| `(\w+)` \| (`run`.*) \|$", page, re.M)
    }
    frames = ["nodes", *FRAMES]
    assert told == {
        "deliveries": [*(name for name, _ in TABLE_COLUMNS), "final"],
        "load": ["run", "minute_s", *frames, "final"],
        "drops": ["run", "minute_s", "reason", "drops", "final"],
        "left_out": [name for name, _ in LEFT_OUT_COLUMNS],
        "waiting": [name for name, _ in WAITING_COLUMNS],
    }
