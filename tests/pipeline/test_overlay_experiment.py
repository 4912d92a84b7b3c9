"""The experiment of the overlay paper: what it runs, and what its claims make of given numbers."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from carrycast.analysis.experiments.overlay import flood
from carrycast.analysis.spark.claims import evaluate_claims
from carrycast.analysis.spark.experiment import Experiment, Point, load_experiment
from carrycast.analysis.spark.records import Record, metric_columns
from carrycast.analysis.spark.results import Results
from carrycast.core.model import Event, EventId
from carrycast.sim.engine.simulation import run
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.scenario.faults import LinkCut
from carrycast.trace import Level
from tests.pipeline.spread import spread

TOPOLOGIES = ("A-B-C", "A-B-C-A", "A-C-B", "B-A-C")
Numbers = Callable[[Point], Mapping[str, float]]


@pytest.fixture(scope="module")
def overlay() -> Experiment:
    return load_experiment("002")


@pytest.fixture(scope="module")
def few() -> Experiment:
    """With three seeds, which agree so closely here that they decide."""
    return load_experiment("overlay", runs=3)


def as_the_paper_says(point: Point) -> dict[str, float]:
    """Numbers that the paper gives, or that agree with what it says."""
    part, scheme, case = (point.labels[axis] for axis in ("part", "scheme", "case"))
    if part == "brokers":
        path = {
            "static": 6.06,
            "opportunistic": {"10": 3.32, "30": 3.9, "50": 4.17, "100": 4.43}[point.labels["update"]],
        }
        return {
            "broker_path": path[scheme],
            "network_path": 2.36,
            "update_bps_per_broker": 120_000 / float(point.labels["update"]),
        }
    if part == "clients":
        path = {
            "static": 9.0,
            "static-opportunistic": 6.0,
            "opportunistic-static": 7.0,
            "opportunistic": 4.0,
            "best": 3.5,
        }
        said = {
            "static": 1.0,
            "static-opportunistic": 2.0,
            "opportunistic-static": 11.0,
            "opportunistic": 12.0,
            "best": 1.0,
        }
        slower = {"10": 0.0, "30": 0.1, "100": 0.2}[point.labels["look"]]
        faster = {"5 m/s": (-1.0, 0.5), "base": (0.0, 1.0), "40 m/s": (1.0, 4.0)}[case]
        hops = path[scheme] + faster[0] + faster[1] * slower
        return {"client_path": hops, "hops_mean": hops, "said_bps_per_node": said[scheme]}
    if part == "emulation":
        load = float(case.partition(" %")[0]) / 100
        excess = max(0.0, load - 0.3) if scheme == "no control" else 0.0
        excess *= 2 if "groups" in case else 1
        path = {"static": 4.0, "opportunistic": 2.5 + (0.5 if load > 0.7 else 0.0), "no control": 2.5}
        return {"peak_load": 0.3 + load / 2 + excess, "highest_load": load / 2 + excess, "client_path": path[scheme]}
    worse = 1.0 + 3.0 * TOPOLOGIES.index(case.partition(",")[0]) if scheme == "static" else 1.0
    full = scheme == "static" and "0.4 s" in case and TOPOLOGIES.index(case.partition(",")[0]) > 1
    return {"delay_mean_s": worse * (0.1 if "10 %" in case else 1.0), "delivery_ratio": 0.4 if full else 1.0}


def results_of(experiment: Experiment, numbers: Numbers, start: float = 1.0) -> Results:
    """Results in which each point has those numbers, give or take a little noise by seed.

    Those that are sampled begin at 3 hops, or at another power of what they are later.
    """
    records: list[Record] = []
    for point in experiment.points:
        for seed in experiment.seeds_at(point):
            record: Record = {"experiment": experiment.name, "point": point.name, "seed": seed, "error": None}
            found = {metric: spread(value, metric, point.name, seed) for metric, value in numbers(point).items()}
            series = {
                metric: [
                    (0.0, None),
                    (10.0, spread(3.0, point.name, seed) * value ** (1 - start)),
                    *((time, value) for time in (60.0, 70.0, 80.0)),
                ]
                for metric, value in found.items()
                if metric in ("broker_path", "network_path", "client_path")
            }
            records.append({**record, **metric_columns(found, series)})
    return Results(experiment, records, Path())


def test_what_the_paper_says_is_what_the_claims_say(few: Experiment) -> None:
    claims = evaluate_claims(results_of(few, as_the_paper_says))
    (other,) = [claim for claim in claims if not claim.holds]
    assert other.statement.startswith("opportunistic paths are shorter at almost all times")
    assert other.holds is None, "at all times, in three runs: which may hide a fourth"
    assert len(claims) > 45
    assert {claim.statement for claim in claims if claim.calibration} == {
        "brokers that look every 50 s, opportunistic: 4.17 hops",
        "brokers that look every 50 s, static: 6.06 hops",
        "brokers that look every 10 s: 3.32 hops",
        "brokers that look every 100 s: 4.43 hops",
        "A-C-B, every 0.4 s: 6 times faster than static, of what came (ratio)",
    }


def test_every_claim_can_fail(few: Experiment) -> None:
    """All the other way round: small numbers are large ones, and what grew shrinks."""

    def turned(point: Point) -> dict[str, float]:
        return {metric: 10.0 / value for metric, value in as_the_paper_says(point).items()}

    def same(point: Point) -> dict[str, float]:
        return dict.fromkeys(as_the_paper_says(point), 1.0)

    def growing(point: Point) -> dict[str, float]:
        place = few.points.index(point)
        return dict.fromkeys(as_the_paper_says(point), (place + 1.0) ** 3)

    failed: set[str] = set()
    for numbers in (turned, same, growing):
        failed |= {claim.statement for claim in evaluate_claims(results_of(few, numbers, 0.0)) if claim.holds is False}
    assert {claim.statement for claim in evaluate_claims(results_of(few, as_the_paper_says))} - failed == set()


def test_the_simulation_is_that_of_section_4_1(overlay: Experiment) -> None:
    for point in overlay.points:
        scenario = point.scenario
        if point.labels["part"] not in ("brokers", "clients"):
            continue
        assert (scenario.nodes, scenario.area_m, scenario.duration_s) == (100, (1000.0, 1000.0), 600.0)
        assert scenario.mobility is not None
        assert scenario.mobility["model"] == "random_waypoint"
        assert {scenario.mobility[key] for key in ("pause_min_s", "pause_max_s")} == {10.0}
        assert scenario.mobility["speed_min_mps"] == 1.0
        assert isinstance(scenario.radio_model(), DiskRadio)
        assert scenario.radio_model().range_m == 250.0
        assert scenario.protocol["router"] == "shortest_path"
        if point.labels["part"] == "brokers":
            assert scenario.roles == {"broker": 40}
        else:
            assert [getattr(scenario.roles[name], "nodes", scenario.roles[name]) for name in scenario.roles] == [
                20,
                10,
                60,
            ]
            assert scenario.protocol["update_s"] == 20
    updates = {point.labels["update"] for point in overlay.points if point.labels["part"] == "brokers"}
    assert {"10", "50", "100"} <= updates


def test_the_four_schemes_are_the_papers(overlay: Experiment) -> None:
    def settings(scheme: str) -> Mapping[str, object]:
        points = [one for one in overlay.points if one.labels["scheme"] == scheme and one.labels["part"] == "clients"]
        plan = points[0].scenario.make_stack_plan()
        return {name: getattr(plan.settings, name) for name in ("topology_by", "home_change_by", "look_s", "near")}

    assert settings("static") == {"topology_by": "", "home_change_by": "", "look_s": math.inf, "near": "router"}
    assert settings("static-opportunistic") == {
        **{"topology_by": "", "home_change_by": "broker", "look_s": 10.0, "near": "router"}
    }
    assert settings("opportunistic") == {
        **{"topology_by": "broker", "home_change_by": "broker", "look_s": 10.0, "near": "router"}
    }
    assert settings("best")["near"] == "view"


def test_the_emulation_is_that_of_section_4_2(overlay: Experiment) -> None:
    for point in (point for point in overlay.points if point.labels["part"] == "emulation"):
        scenario = point.scenario
        assert (scenario.nodes, scenario.area_m) == (20, (750.0, 500.0))
        assert (scenario.protocol["update_s"], scenario.protocol["look_s"] in (1, math.inf)) == (5, True)
        # What a call takes times the calls of a broker in a second, three, is the average load.
        load = float(point.labels["case"].partition(" %")[0]) / 100
        assert scenario.processors[0].cost_s * 3 == pytest.approx(load, rel=1e-5)


def test_the_testbed_goes_through_the_four_topologies(overlay: Experiment) -> None:
    links = {"A-B-C": {(0, 1), (1, 2)}, "A-C-B": {(0, 2), (1, 2)}, "B-A-C": {(0, 1), (0, 2)}}
    for point in (point for point in overlay.points if point.labels["part"] == "testbed"):
        scenario = point.scenario
        assert isinstance(scenario.radio_model(), CsmaRadio)
        assert scenario.radio["preset"] == "802.11b"
        name = point.labels["case"].partition(",")[0]
        window = scenario.measure
        assert window.to_s is not None
        cut = {
            tuple(fault.between)
            for fault in scenario.faults
            if isinstance(fault, LinkCut) and fault.at_s <= window.from_s and window.to_s <= fault.at_s + fault.for_s
        }
        assert {(0, 1), (0, 2), (1, 2)} - cut == links.get(name, {(0, 1), (0, 2), (1, 2)})


def test_rain_becomes_depth_and_none_of_it_is_lost() -> None:
    state, fallen = b'{"west": 40, "east": 90, "south": 40, "north": 60}', 0.0
    for step in range(5):
        event = Event(
            EventId(0, step), {"x": 60.0, "y": 50.0, "radius": 20.0, "rain_mm": 10.0, "step": step}, b"", 60.0
        )
        (attributes, payload), state = flood.flood(event, state)
        fallen += float(flood.rainfall(60.0, 50.0, 20.0, 10.0).sum())
    box, depth = flood.unpack_state(state)
    assert depth.sum() == pytest.approx(fallen)
    assert depth.min() >= 0.0
    # A tenth of 100 x 100 doubles, cut out of the whole.
    assert len(payload) == 8000
    assert (attributes["rows"], attributes["columns"]) == (20, 50)
    assert np.array_equal(np.frombuffer(payload).reshape(20, 50), depth[40:60, 40:90])
    assert box["west"] == 40


def test_water_runs_to_the_lowest_of_eight_neighbors() -> None:
    depth = np.zeros((100, 100))
    depth[10, 10] = 1.0
    after = flood.flow(depth)
    around = flood.TERRAIN[9:12, 9:12]
    row, column = (int(one) for one in np.unravel_index(around.argmin(), around.shape))
    given = 0.2 * (flood.TERRAIN[10, 10] + 1.0 - around.min())
    assert after[9 + row, 9 + column] == pytest.approx(given)
    assert after[10, 10] == pytest.approx(1.0 - given)
    assert after.sum() == pytest.approx(1.0)


def test_a_tiny_point_of_each_part_runs(few: Experiment) -> None:
    quick = load_experiment("overlay", quick=True, runs=1)
    by_part: dict[str, Point] = {}
    for point in quick.points:
        if point.labels["scheme"] == "opportunistic":
            by_part.setdefault(point.labels["part"], point)
    assert sorted(by_part) == ["brokers", "clients", "emulation", "testbed"]
    outcome = run(by_part["testbed"].scenario, 1, Level.METRICS)
    assert outcome.metrics["delivery_ratio"] == 1.0
    outcome = run(by_part["brokers"].scenario, 1, Level.METRICS)
    path, network = outcome.metrics["broker_path"], outcome.metrics["network_path"]
    assert path is not None
    assert network is not None
    assert path > network > 1.0
