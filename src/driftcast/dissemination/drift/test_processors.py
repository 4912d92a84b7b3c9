"""Drift runs no processors: a subscription that names one is refused, and what nodes could run is not run."""

from pathlib import Path

import pytest

from driftcast.errors import UserError
from driftcast.scenario.scenario import Scenario, scenario_from
from driftcast.simulation.run import run

CONVERTER = """
def fahrenheit(event):
    return {"unit": "F", "value": event.attributes["value"] * 9 / 5 + 32}
"""


def converted(folder: Path, protocol: str, **subscribed: object) -> Scenario:
    """A sensor, a converter and a display in a row."""
    file = folder / "converter.py"
    file.write_text(CONVERTER)
    tables = {
        "name": "row",
        "nodes": 3,
        "duration_s": 20.0,
        "area_m": (300.0, 100.0),
        "mobility": {"model": "line"},
        "radio": {"model": "disk", "range_m": 150.0},
        "protocol": {"name": protocol},
        "processors": [{"id": "fahrenheit", "function": f"{file}:fahrenheit", "nodes": [1], "filter": "unit = 'C'"}],
        "subscribe": [{"nodes": [2], "filter": "unit = 'F'", **subscribed}],
        "publish": [
            {
                "nodes": [0],
                "interval_s": 2.0,
                "from_s": 5.0,
                "to_s": 15.0,
                "attributes": {"unit": "C", "value": {"uniform": [15.0, 25.0]}},
            }
        ],
    }
    return scenario_from(tables, "row")


def test_a_subscription_that_names_a_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"subscribe\[0\]\.processor: drift runs no processors for subscriptions"):
        converted(tmp_path, "drift", processor="fahrenheit", filter="unit = 'C'")


def test_who_wants_what_a_processor_would_make_gets_nothing(tmp_path: Path) -> None:
    assert run(converted(tmp_path, "processor_flooding"), 1).metrics["delivered"]
    found = run(converted(tmp_path, "drift"), 1).metrics
    assert found["delivered"] == 0
    # Nothing was made of what was published, so nobody was owed anything.
    assert found["delivery_ratio"] is None
