"""`experiment/figure`: one figure of an experiment, with the points it shows and the claims about it."""

from pathlib import Path

import pytest

from carrycast.analysis.spark.claims import evaluate_claims
from carrycast.analysis.spark.experiment import Experiment, experiment_names, load_experiment
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.results import Results


def results_of(experiment: Experiment) -> Results:
    """Every metric is 1 at every point, give or take a little by seed."""
    records: list[Record] = [
        {
            "experiment": experiment.name,
            "point": point.name,
            "seed": seed,
            "error": None,
            **dict.fromkeys(experiment.metrics, 1.0 + 1e-6 * seed),
        }
        for point in experiment.points
        for seed in experiment.seeds_at(point)
    ]
    return Results(experiment, records, Path())


def figures() -> list[str]:
    """Of all experiments whose claims need no traces."""
    names = [name for name in experiment_names() if name != "baselines"]
    return [f"{name}/{figure.name}" for name in names for figure in load_experiment(name).definition.figures]


@pytest.mark.parametrize("figure", figures())
def test_a_figure_alone_has_every_point_that_its_claims_ask_for(figure: str) -> None:
    name, _, only = figure.partition("/")
    whole, alone = load_experiment(name, runs=3), load_experiment(figure, runs=3)
    assert [entry.name for entry in alone.definition.figures] == [only]
    expected = [claim for claim in evaluate_claims(results_of(whole)) if claim.figure == only]
    assert [(claim.statement, claim.holds, claim.ours) for claim in evaluate_claims(results_of(alone))] == [
        (claim.statement, claim.holds, claim.ours) for claim in expected
    ]


def test_a_figure_alone_runs_its_own_points() -> None:
    whole, alone = load_experiment("adaptive"), load_experiment("adaptive/weights")
    assert [point.labels["protocol"] for point in alone.points] == [
        "adaptive",
        "0 : 1",
        "0.25 : 0.75",
        "0.75 : 0.25",
        "1 : 0",
    ]
    assert all(point in whole.points for point in alone.points)
