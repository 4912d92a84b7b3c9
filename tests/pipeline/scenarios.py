"""Small scenarios for the tests of the pipeline."""

from pathlib import Path

import msgspec

from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.sim.scenario.scenario import Scenario, parse_scenario


def tiny(name: str = "flooding", **changes: object) -> Scenario:
    """Twelve nodes that walk about for two minutes."""
    table: dict[str, object] = {
        "name": "tiny",
        "duration_s": 120.0,
        "nodes": 12,
        "area_m": [600.0, 600.0],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 2.0, "speed_max_mps": 15.0},
        "radio": {"model": "disk", "range_m": 200.0},
        "protocol": {"name": name},
        "subscribe": [{"filter": "topic = {topic}", "draw": {"topic": {"integers": [1, 3]}}, "each": 2}],
        "publish": [
            {
                "count": 15,
                "to_s": 90.0,
                "payload_bytes": 40,
                "lease_s": 60.0,
                "attributes": {"topic": {"integers": [1, 3]}},
            }
        ],
    }
    return parse_scenario({**table, **changes}, "tiny")


def tiny_experiment(
    protocols: tuple[str, ...] = ("flooding", "epidemic"), runs: int = 3, **changes: object
) -> Experiment:
    """A sweep of a few tiny runs."""
    table = msgspec.to_builtins(tiny("flooding", **changes))
    folder = Path(table.pop("base"))
    definition = Definition(
        name="tiny",
        scenario=table,
        runs=runs,
        axes=[Axis(name="protocol", values=list(protocols))],
    )
    return expand_experiment(definition, folder)
