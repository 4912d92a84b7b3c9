"""Points stop when the claims about them are decided, and the error rate is the same as with one look."""

import json
import math
from pathlib import Path
from random import Random

import pytest

from benchmarks.coverage import POPULATIONS, decided_at_looks
from carrycast.analysis.spark.claims import Claim, decide, evaluate_claims
from carrycast.analysis.spark.definition import Axis, ClaimEntry, Definition, Figure, RunLimit
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.reproduction import report, reproduce_experiments
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.sequential import plan_looks, sequential_chance
from carrycast.analysis.spark.spark_session import LazySession
from carrycast.analysis.spark.statistics import SHARE, confidence_interval
from carrycast.analysis.spark.stopping import begin, count_runs, extend

SCENARIO: dict[str, object] = {
    "duration_s": 20.0,
    "nodes": 6,
    "mobility": {"model": "line", "spacing_m": 60.0},
    "radio": {"model": "disk", "range_m": 100.0},
    "protocol": {"name": "flooding"},
    "subscribe": [{"nodes": "all"}],
    "publish": [{"nodes": [0], "interval_s": 1.0, "from_s": 5.0, "to_s": 15.0}],
}


@pytest.mark.parametrize(
    ("most", "runs"), [(1, [1]), (9, [9]), (10, [5, 10]), (20, [5, 10, 20]), (100, [7, 13, 25, 50, 100])]
)
def test_looks_double_and_spend_five_percent_in_all(most: int, runs: list[int]) -> None:
    looks = plan_looks(most)
    assert [look.runs for look in looks] == runs
    assert math.fsum(look.spent for look in looks) == pytest.approx(0.05)
    assert all(look.spent > 0 for look in looks)


def test_a_widened_interval_excludes_a_value_exactly_if_its_p_value_is_below_the_level() -> None:
    rng = Random(1)
    for _ in range(300):
        values = [rng.gauss(0.5, 0.3) if rng.random() < 0.8 else 2 * rng.random() for _ in range(rng.randint(3, 12))]
        found = confidence_interval(values)
        level = rng.choice((0.001, 0.01, 0.05))
        widened, p_value = found.widen(level), found.p_value(0.0)
        assert widened.low is not None
        assert widened.high is not None
        assert p_value is not None
        assert (widened.low <= 0.0 <= widened.high) is (p_value >= level)
    same = confidence_interval([0.2, 0.3, 0.5], SHARE)
    assert same.widen(0.05)[:4] == pytest.approx(same[:4])
    assert same.widen(1e-9)[2:4] == SHARE
    alike = confidence_interval([1.0] * 5, SHARE)
    assert alike.widen(0.05)[:4] == pytest.approx(alike[:4])
    assert alike.low is not None
    assert alike.widen(0.01).low == pytest.approx(1 - (1 - 0.005 ** (1 / 5)))
    assert confidence_interval([2.0] * 3, exact=True).widen(0.01).low == 2.0
    assert confidence_interval([1.0, 2.0]).widen(0.01).low is None


def study(
    *claims: ClaimEntry, runs: int = 20, fewer: int | None = None, figures: tuple[Figure, ...] = ()
) -> Experiment:
    axes = [Axis(name="range", key="radio.range_m", values=[70.0, 100.0, 130.0], labels=["near", "far", "farther"])]
    limits = [] if fewer is None else [RunLimit(where={"range": "near"}, runs=fewer)]
    definition = Definition(
        name="study",
        scenario=SCENARIO,
        runs=runs,
        axes=axes,
        claims=list(claims),
        fewer=limits,
        figures=list(figures),
        stop_when_decided=True,
    )
    return expand_experiment(definition, Path())


def compare(left: str, right: str) -> ClaimEntry:
    return ClaimEntry(
        statement=f"{left} delivers more than {right}",
        kind="compare",
        metric="delivery_ratio",
        left={"range": left},
        right={"range": right},
        relation=">",
    )


def results(experiment: Experiment, means: dict[str, float], noise: float, seed: int = 1) -> Results:
    """The records that the experiment asks for so far. A run has the same value whenever it is asked for."""
    records: list[Record] = [
        {
            "experiment": "study",
            "point": point.name,
            "seed": number,
            "error": None,
            "delivery_ratio": means[point.name] + noise * Random(f"{seed} {point.name} {number}").gauss(0, 1),
        }
        for point in experiment.points
        for number in experiment.seeds_at(point)
    ]
    return Results(experiment, records, Path())


def run(experiment: Experiment, means: dict[str, float], noise: float, seed: int = 1) -> tuple[Experiment, list[Claim]]:
    planned: Experiment | None = begin(experiment)
    while planned is not None:
        experiment, planned = planned, extend(planned, results(planned, means, noise, seed))
    return experiment, evaluate_claims(results(experiment, means, noise, seed))


def test_a_point_goes_on_while_a_claim_about_it_is_open() -> None:
    experiment = study(compare("farther", "near"), compare("far", "farther"))
    means = {"near": 0.3, "far": 0.7, "farther": 0.7}
    stopped, claims = run(experiment, means, 0.01)
    assert [len(stopped.seeds_at(point)) for point in stopped.points] == [5, 20, 20]
    assert [(claim.holds, claim.runs) for claim in claims] == [(True, 5), (None, 20)]
    near, far, farther = count_runs(stopped, claims)
    assert (near.runs, near.most, near.why) == (5, 20, "all 1 claims about it are decided")
    assert (far.runs, far.why) == (20, "all its runs are made, and 1 of 1 claims about it are undecided")
    assert farther.why == "all its runs are made, and 1 of 2 claims about it are undecided"


def test_a_decision_stays_while_other_claims_get_more_runs() -> None:
    """All looks are evaluated again from the rows, so the report of a later time says the same."""
    experiment = study(compare("farther", "near"), compare("far", "near"), compare("far", "farther"))
    stopped, claims = run(experiment, {"near": 0.3, "far": 0.7, "farther": 0.7}, 0.01)
    assert [claim.runs for claim in claims] == [5, 5, 20]
    for claim in claims[:2]:
        assert claim.low is not None
        assert claim.interval is not None
        assert claim.interval.low is not None
        assert claim.interval.n == 5
        assert 0.0 < claim.low < claim.interval.low
    assert evaluate_claims(results(stopped, {"near": 0.3, "far": 0.7, "farther": 0.7}, 0.01)) == claims


def test_a_point_without_claims_has_all_runs_and_a_limited_one_no_more_than_its_own() -> None:
    stopped, claims = run(study(compare("far", "near"), fewer=8), {"near": 0.69, "far": 0.7, "farther": 0.7}, 0.1)
    assert [len(stopped.seeds_at(point)) for point in stopped.points] == [8, 20, 20]
    assert [one.why for one in count_runs(stopped, claims)][2] == "no claim is about it"
    assert claims[0].interval is not None
    assert claims[0].interval.n == 8


def test_what_one_look_decides_at_five_percent_another_needs_more_for() -> None:
    """Five runs with a p-value of 4 % decide a claim of five runs, and none of an experiment that looks again."""
    values = [0.01, 0.02, 0.03, 0.005, 0.012]
    decision = decide(confidence_interval(values), ">", 0.0)
    assert decision.chance is not None
    assert 0.01 < decision.chance < 0.05
    first, *_ = plan_looks(20)
    assert sequential_chance(decision.chance, first) > 0.05
    assert sequential_chance(decision.chance, plan_looks(5)[0]) == decision.chance


def test_a_claim_of_a_hook_keeps_the_points_of_its_figure(tmp_path: Path) -> None:
    hook = tmp_path / "claims.py"
    hook.write_text(
        "from carrycast.analysis.spark import Claim\n\n\n"
        "def claims(results):\n"
        "    yield Claim(experiment='study', figure='reach', statement='open', paper=None, ours=None, low=None,\n"
        "                high=None, holds=None)\n"
    )
    figure = Figure(name="reach", kind="bars", x="range", y="delivery_ratio", where={"range": ["near", "far"]})
    plain = study(compare("farther", "near"), figures=(figure,))
    hooked = Experiment(plain.definition, plain.points, plain.seeds, hook)
    stopped, claims = run(hooked, {"near": 0.3, "far": 0.7, "farther": 0.7}, 0.01)
    assert [len(stopped.seeds_at(point)) for point in stopped.points] == [20, 20, 5]
    assert [claim.holds for claim in claims] == [True, None]


def test_an_experiment_says_how_many_runs_it_used_and_why(tmp_path: Path) -> None:
    """Flooding on a line reaches all six nodes with 70 m and with 100 m; nothing decides between those."""
    entries = (
        ClaimEntry(
            statement="Nearly all arrives",
            kind="bound",
            metric="delivery_ratio",
            of={"range": "near"},
            relation=">",
            value=0.2,
        ),
        compare("farther", "far"),
    )
    experiment = study(*entries, runs=10)
    found = reproduce_experiments([experiment], tmp_path, LazySession(None), quiet=True)
    assert found.failed == 0
    counted = {one.point: (one.runs, one.most) for one in found.stopping["study"]}
    assert counted == {"near": (5, 10), "far": (10, 10), "farther": (10, 10)}
    assert found.runs == 25
    assert [claim.holds for claim in found.claims] == [True, None]
    text = found.page.read_text()
    assert "25 of at most 30; 1 of 3 points stopped early because all claims about them are decided" in text
    assert "at most 10 seeds each" in text
    row = json.loads((tmp_path / "claims.json").read_text())[0]
    assert row["runs"] == 5
    assert "interval" not in row
    again = report(tmp_path)
    assert again.stopping == found.stopping
    assert again.claims == found.claims
    # The runs are kept, so another start makes none and comes to the same end.
    before = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert reproduce_experiments([experiment], tmp_path, LazySession(None), quiet=True).stopping == found.stopping
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == before


@pytest.mark.slow
def test_chance_decides_a_claim_no_more_often_however_often_one_looks() -> None:
    """With 20,000 claims the rate of one is known to half a percent, that of twenty together to one and a half."""
    for most in (20, 100):
        found = decided_at_looks(POPULATIONS["normal"], most, 1000, Random(most))
        assert found.corrected < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 20_000)
        assert found.together < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)
        # Without the correction it would be far more: the test would see that.
        assert found.uncorrected > 0.08


@pytest.mark.slow
def test_the_error_rate_holds_over_whole_experiments_that_stop_themselves() -> None:
    """Three points without a difference, two claims about them; each experiment stops as it does in a sweep."""
    experiment = study(compare("farther", "near"), compare("far", "near"))
    tries, wrong, used = 600, 0, 0
    for seed in range(tries):
        stopped, claims = run(experiment, dict.fromkeys(("near", "far", "farther"), 0.5), 0.1, seed)
        wrong += any(claim.together is not None for claim in claims)
        used += sum(len(stopped.seeds_at(point)) for point in stopped.points)
    assert wrong / tries < 0.05 + 3 * math.sqrt(0.05 * 0.95 / tries)
    assert used / tries > 50
