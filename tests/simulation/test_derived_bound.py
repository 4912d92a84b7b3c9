"""What bounds a run whose processors multiply events."""

import subprocess
import sys
from pathlib import Path

import pytest

from carrycast.errors import WorkError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.testing.fuzz import FuzzCase

FUNCTIONS = Path(sys.modules[FuzzCase.__module__].__file__ or "").with_name("processors.py")


def multiplying(protocol: str, most: int) -> Scenario:
    """Ten nodes that make two of each event, and of those again."""
    return parse_scenario(_table(protocol, most), "multiplying")


def _table(protocol: str, most: int) -> dict[str, object]:
    return {
        "duration_s": 60.0,
        "nodes": 10,
        "area_m": [100.0, 100.0],
        "mobility": {"model": "random_static"},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": protocol},
        "subscribe": [{}],
        "publish": [{"count": 20, "attributes": {"topic": 1}}],
        "processors": [{"id": id, "function": f"{FUNCTIONS}:split_in_two", "nodes": "all"} for id in ("p", "q")],
        "computer": {"max_derived_events": most},
    }


@pytest.mark.parametrize("protocol", ["asp", "drift", "processor_flooding"])
def test_a_run_whose_processors_multiply_events_ends_with_one_line_that_says_why(protocol: str) -> None:
    with pytest.raises(WorkError, match=r"processors have made more than 2,000 events, .* of them [pq]: .*max_stages"):
        run(multiplying(protocol, 2000), 1)


def test_a_run_may_make_exactly_as_many_as_it_is_allowed() -> None:
    """One node, so that each of three events is made into two and no more: six are allowed, five are not."""
    table = {**_table("processor_flooding", 6), "nodes": 1, "publish": [{"count": 3}]}
    table["processors"] = [
        {"id": "p", "function": f"{FUNCTIONS}:split_in_two", "nodes": "all", "filter": "part is null"}
    ]
    assert run(parse_scenario(table, "six"), 1).metrics["published"] == 9
    with pytest.raises(WorkError, match="more than 5 events"):
        run(parse_scenario({**table, "computer": {"max_derived_events": 5}}, "five"), 1)


def test_the_command_line_says_it_in_one_line_and_ends_with_status_1(tmp_path: Path) -> None:
    path = FuzzCase(_table("drift", 500), {}, 1).write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "carrycast", "run", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "max_derived_events" in done.stderr
