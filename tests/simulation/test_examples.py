"""Each protocol has an example, each example stands in the docs, and those that are small run and deliver."""

import re
from pathlib import Path

import pytest

from carrycast.core.protocol.registry import protocol_names
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|", re.MULTILINE)
FILES = sorted(path for path in EXAMPLES.rglob("*.toml") if "\nduration_s = " in f"\n{path.read_text('utf-8')}")
SMALL_NODE_S = 6000.0
"""Nodes times seconds of what a test runs."""


def listed() -> dict[Path, list[str]]:
    """The files of the page, and of which protocols it says they are."""
    page = (REPOSITORY / "docs" / "examples.md").read_text("utf-8")
    found: dict[Path, list[str]] = {}
    for protocols, links in ROW.findall(page):
        for target in re.findall(r"\]\(\.\./(examples/[^)]+)\)", links):
            found[REPOSITORY / target] = re.findall(r"`(\w+)`", protocols)
    return found


def test_every_example_is_listed_under_its_protocol() -> None:
    page = listed()
    assert sorted(page) == FILES
    for path, protocols in page.items():
        assert load_scenario(path).protocol["name"] in protocols, path


def test_every_protocol_has_an_example() -> None:
    shipped = {path.name for path in (REPOSITORY / "src" / "carrycast" / "protocols").iterdir() if path.is_dir()}
    names = [name for name in protocol_names() if name in shipped]
    assert {load_scenario(path).protocol["name"] for path in FILES} >= set(names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_small_example_delivers(path: Path) -> None:
    scenario = load_scenario(path)
    if scenario.nodes * scenario.duration_s <= SMALL_NODE_S:
        ratio = run(scenario, seed=1).metrics["delivery_ratio"]
        assert ratio is not None
        assert ratio > 0.5
