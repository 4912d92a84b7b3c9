"""Metrics computed by Spark from a full trace are those that the run counted itself, bit for bit."""

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.records import METRICS
from carrycast.analysis.spark.trace_metrics import eligible_pairs, folder_metrics
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Level
from tests.pipeline.scenarios import tiny
from tests.simulation.modulating import Modulating
from tests.simulation.worlds import register

LOSSY = {"model": "disk", "range_m": 200.0, "loss": 0.3, "retries": 2, "rate_bps": 20_000.0, "queue": 4}
BEACONS = {"mode": "beacon", "period_s": 2.0, "missed": 2}
CRASHES = [{"kind": "crash", "nodes": "50%", "every_s": 40.0, "down_s": 15.0}]
FAULTS = [*CRASHES, {"kind": "duplication", "probability": 0.2}, {"kind": "corruption", "probability": 0.1}]
LATE_AND_LEAVING = [
    {"filter": "topic >= 2", "at_s": 30.0, "until_s": 70.0},
    {"nodes": "50%", "filter": "topic in (1, 2)", "until_s": 45.0},
    {"nodes": 3, "filter": "topic <> 3", "at_s": 60.0},
]
MEMBERS_ONLY = [
    {"nodes": "50%", "filter": "true", "attributes": {"rank": {"integers": [1, 5]}}},
    {"nodes": "50%", "filter": "topic = 1", "attributes": {"rank": 9}},
]
SECRETS = [
    {"count": 8, "access": "rank > 3", "attributes": {"topic": 1}},
    {"count": 8, "attributes": {"topic": {"choice": [1, 2]}, "weight": {"uniform": [0.0, 2.0]}}},
]
NOBODY = [{"filter": "topic = 99"}]


def changes(protocol: str) -> dict[str, dict[str, object]]:
    """What is different in each scenario."""
    return {
        "plain": {},
        "lossy": {"radio": LOSSY, "discovery": BEACONS},
        "faults": {"faults": FAULTS},
        "subscribers come and go": {"subscribe": LATE_AND_LEAVING, "measure": {"from_s": 20.0, "to_s": 70.0}},
        "access policies": {"subscribe": MEMBERS_ONLY, "publish": SECRETS},
        "nobody listens": {"subscribe": NOBODY},
        "small buffers": {"protocol": {"name": protocol, **({"buffer": 3} if protocol == "epidemic" else {})}},
    }


SCENARIOS: dict[str, Scenario] = {
    f"{protocol} {name}": tiny(protocol, **changed)
    for protocol in ("flooding", "gossip", "epidemic")
    for name, changed in changes(protocol).items()
}


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, object], ...]]:
    """For each scenario: the run's own metrics, and those of its trace. One Spark job judges all traces."""
    folder = tmp_path_factory.mktemp("traces")
    own = {}
    for number, (name, scenario) in enumerate(SCENARIOS.items()):
        place = folder / str(number)
        outcome = run(msgspec.structs.replace(scenario, name=str(number)), 11, Level.FULL, place)
        outcome.trace.save(place)
        own[outcome.trace.run] = (name, outcome.metrics)
    folders = [folder / str(number) for number in range(len(SCENARIOS))]
    found = {row["run"]: row.asDict() for row in folder_metrics(spark, folders).collect()}
    assert sorted(found) == sorted(own)
    return {
        name: (dict(metrics), {metric: found[run_name][metric] for metric in METRICS})
        for run_name, (name, metrics) in own.items()
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_trace_gives_the_metrics_of_its_run(name: str, judged: dict[str, tuple[dict[str, object], ...]]) -> None:
    own, from_trace = judged[name]
    assert from_trace == own


def test_the_scenarios_exercise_what_they_are_meant_to(judged: dict[str, tuple[dict[str, object], ...]]) -> None:
    own = {name: metrics for name, (metrics, _) in judged.items()}
    assert own["flooding nobody listens"]["delivery_ratio"] is None
    assert own["flooding nobody listens"]["delivered"] == 0
    plain, lossy = own["epidemic plain"], own["epidemic lossy"]
    assert isinstance(plain["buffer_peak"], int)
    assert plain["buffer_peak"] > 3
    assert int(str(own["epidemic small buffers"]["buffer_peak"])) < plain["buffer_peak"]
    assert lossy["discovery_bytes"] != 0
    assert own["flooding plain"]["duplicates"] != 0
    late, access = own["flooding subscribers come and go"], own["flooding access policies"]
    assert 0 < int(str(late["published"])) < 15
    assert 0 < int(str(access["eligible"])) < int(str(own["flooding plain"]["eligible"])) * 2


def test_a_subscription_is_eligible_from_its_start_to_just_before_its_end(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame(
        [("r", f"e{time}", 0, float(time), "{}", 1, None, None, None, True, None) for time in (9, 10, 19, 20)],
        "run string, event string, source bigint, time_s double, attributes string, size_bytes bigint,"
        " lease_s double, access string, derived_from string, counted boolean, processor string",
    )
    subscriptions = spark.createDataFrame(
        [("r", "s", 1, "true", "{}", 10.0, 20.0, None), ("r", "own", 0, "true", "{}", 0.0, None, None)],
        "run string, subscription string, node bigint, filter string, attributes string, from_s double, to_s double,"
        " processor string",
    )
    trace = spark.createDataFrame(
        [("r", 12.5, 1, "deliver", "e10", "s", 3, 0, 0)],
        "run string, time_s double, node bigint, kind string, event string, subscription string, hops int, part int,"
        " place bigint",
    )
    pairs = eligible_pairs(trace, events, subscriptions).collect()
    found = sorted((row["event"], row["node"], row["delay_s"], row["hops"]) for row in pairs)
    assert found == [("e10", 1, 2.5, 3), ("e19", 1, None, None)]


def test_what_processors_make_is_judged_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, Modulating)
    (tmp_path / "f.py").write_text("def both(event):\n    return [{'topic': 1, 'part': part} for part in (1, 2)]\n")
    processor = {"id": "both", "function": "f.py:both", "nodes": "all", "cost_s": 0.3}
    subscribe: list[dict[str, object]] = [
        {"nodes": "50%", "filter": "topic <= 2", "processor": "both"},
        {"nodes": 4, "filter": "topic = 1", "processor": "both", "each": 1, "at_s": 20.0, "until_s": 60.0},
        {"nodes": 4, "filter": "topic = 1"},
    ]
    scenario = tiny("modulating", base=str(tmp_path), processors=[processor], subscribe=subscribe, faults=CRASHES)
    outcome = run(scenario, 11, Level.FULL, tmp_path / "trace")
    outcome.trace.save(tmp_path / "trace")
    [found] = folder_metrics(spark, [tmp_path / "trace"]).collect()
    assert {metric: found[metric] for metric in METRICS} == dict(outcome.metrics)
    assert 0 < int(str(outcome.metrics["delivered"])) < int(str(outcome.metrics["eligible"]))
