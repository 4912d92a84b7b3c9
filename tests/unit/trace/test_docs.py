"""The page on traces names every column with its type, and every kind; that on telemetry the columns of its tables."""

import re
from pathlib import Path

import pytest

from carrycast.analysis.spark.records import record_columns
from carrycast.analysis.telemetry.load import LEFT_OUT_COLUMNS, WAITING_COLUMNS
from carrycast.analysis.telemetry.minutes import FRAMES
from carrycast.analysis.telemetry.publications import TABLE_COLUMNS
from carrycast.sim.scenario.measures import METRIC_MEANINGS
from carrycast.trace.files import TABLES
from carrycast.trace.schema import Kind

PAGE = Path(__file__).parents[3] / "docs" / "traces.md"
SPARK = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}


def rows(title: str) -> list[tuple[str, str]]:
    """First and second cell of each row of the first table of a section, a row for each name."""
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    table = re.search(r"^\| column .*?(?=^$|\Z)", section, re.MULTILINE | re.DOTALL)
    assert table is not None
    cells = [line.strip("|").split("|") for line in table[0].splitlines()[2:]]
    return [(name, row[1].strip()) for row in cells for name in re.findall(r"`(\w+)`", row[0])]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_told_in_its_order_with_its_type(table: str) -> None:
    assert rows(f"The table `{table}`") == [(name, SPARK[kind]) for name, kind in TABLES[table]]


def test_every_kind_is_told() -> None:
    table = PAGE.read_text().split("| kind | what")[1].split("\n## ")[0]
    told = [name for line in table.splitlines()[2:] if line for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert set(Kind) == set(told)


def test_every_column_of_runs_is_told() -> None:
    section = PAGE.read_text().split("## The table `runs`\n")[1].split("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", section))
    metrics = set(METRIC_MEANINGS)
    assert {name for name, _ in record_columns()} - metrics <= told


def test_every_column_that_a_watch_keeps_is_told() -> None:
    page = (PAGE.parent / "telemetry.md").read_text()
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
