"""The experiment `drift`: its points, and what its claims make of numbers that are known."""

from pathlib import Path

import pytest

from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.experiment import Experiment, load_experiment
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.results import Results
from tests.pipeline.spread import spread


@pytest.fixture(scope="module")
def drift() -> Experiment:
    return load_experiment("drift", runs=20)


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What anybody could do is told, and not computed anew for each of these."""
    monkeypatch.setattr("carrycast.analysis.experiments.drift.bounds.reachable_share", lambda path, seed: 1.0)
    monkeypatch.setattr("carrycast.analysis.experiments.drift.bounds.count_tree_frames", lambda path, seed: 500.0)


def evaluate(drift: Experiment, delivered: dict[str, float], sent: dict[str, float]) -> dict[str, Claim]:
    """The claims about the network `dense`, if its protocols had done so; a seed makes a very small difference."""
    records: list[Record] = []
    for point in drift.points:
        protocol = point.labels["protocol"]
        for seed in drift.seeds:
            records.append(
                {
                    "experiment": drift.name,
                    "point": point.name,
                    "seed": seed,
                    "error": None,
                    "delivery_ratio": spread(delivered.get(protocol, 0.5), protocol, seed),
                    "delivered": 200 * spread(delivered.get(protocol, 0.5), protocol, seed),
                    "total_bytes": spread(sent.get(protocol, 1e6), protocol, seed),
                    "transmissions": spread(900.0, protocol, seed),
                    "control_transmissions": spread(200.0, protocol, seed),
                    "airtime_us": 8 * spread(sent.get(protocol, 1e6), protocol, seed),
                }
            )
    return {
        claim.statement: claim
        for claim in evaluate_claims(Results(drift, records, Path()))
        if "`dense`" in claim.statement
    }


def test_every_network_has_drift_and_epidemic(drift: Experiment) -> None:
    for setting in drift.labels("setting"):
        protocols = {point.labels["protocol"] for point in drift.points if point.labels["setting"] == setting}
        beside = {"asp", "processor flooding"} if setting == "converters" else {"epidemic", "flooding"}
        assert {"drift", *beside} <= protocols


def test_who_reaches_as_many_for_fewer_bytes_refutes_it(drift: Experiment) -> None:
    found = evaluate(drift, {"drift": 1.0, "epidemic": 1.0}, {"drift": 5e5, "epidemic": 4e5})
    reach, spent, aired, *_ = found.values()
    assert reach.holds is True
    assert spent.holds is False
    assert spent.ours == pytest.approx(1e5, rel=1e-3)
    assert aired.holds is False
    assert aired.ours == pytest.approx(8e5, rel=1e-3)


def test_who_reaches_fewer_for_fewer_bytes_does_not(drift: Experiment) -> None:
    found = evaluate(drift, {"drift": 1.0, "epidemic": 1.0, "gossip": 0.9}, {"drift": 5e5, "gossip": 1e5})
    assert [claim.holds for claim in found.values()][:3] == [True, True, True]


def test_who_reaches_more_refutes_it(drift: Experiment) -> None:
    reach, *_ = evaluate(drift, {"drift": 0.9, "epidemic": 1.0}, {}).values()
    assert reach.holds is False
    assert reach.ours == 0.0


def test_runs_that_are_all_alike_are_decided_by_their_number(drift: Experiment) -> None:
    few = load_experiment("drift", runs=5)
    reached = {"drift": 1.0, "epidemic": 1.0}
    assert [next(iter(evaluate(one, reached, {}).values())).holds for one in (drift, few)] == [True, None]


def test_what_contacts_allow_and_trees_take_bounds_it(drift: Experiment) -> None:
    *_, reached, sent = evaluate(drift, {"drift": 0.97, "epidemic": 0.97}, {}).values()
    assert reached.holds is True
    assert reached.ours == 1.0
    assert sent.holds is True
    assert sent.ours == pytest.approx(1.4, abs=0.01)
    *_, reached, sent = evaluate(drift, {"drift": 0.9, "epidemic": 0.9}, {}).values()
    assert reached.holds is False
    assert reached.ours == 0.0


def test_networks_of_another_kind_have_rivals_that_might_do_with_less() -> None:
    variations = load_experiment("drift_variations", runs=3)
    for network in ("mule", "sources", "interest"):
        protocols = {point.labels["protocol"] for point in variations.points if point.labels["network"] == network}
        assert {"drift", "epidemic", "flooding", "spray and wait", "direct"} <= protocols
