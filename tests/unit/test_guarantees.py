"""Every guarantee of docs/guarantees.md is named by a test, and tests name no others."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NAMED = re.compile(r"\bG-[0-9]+\b")


def guarantee_ids() -> list[str]:
    page = (REPOSITORY / "docs" / "guarantees.md").read_text()
    return re.findall(r"^\| (G-[0-9]+) \|", page, re.MULTILINE)


def ids_in_tests() -> set[str]:
    """The ids in tests, this file aside."""
    files = [*(REPOSITORY / "tests").rglob("test_*.py"), *(REPOSITORY / "src").rglob("test_*.py")]
    return {id for path in files if path != Path(__file__) for id in NAMED.findall(path.read_text())}


def test_each_guarantee_has_its_own_id_and_a_test() -> None:
    ids = guarantee_ids()
    assert ids == [f"G-{number}" for number in range(1, len(ids) + 1)]
    assert len(ids) > 15
    assert ids_in_tests() == set(ids)
