"""The experiment of the policy paper: what it runs, what its claims make of given numbers, and that counting agrees."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.experiments.policy.beyond import share_cut_off, share_down
from carrycast.analysis.experiments.policy.builder import FOUR, LOST, PolicyClaims
from carrycast.analysis.experiments.policy.claims import fit_exponential, fit_hyperbola, fit_line, jackknife_fit
from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.experiment import Experiment, load_experiment
from carrycast.analysis.spark.records import Record, metric_columns
from carrycast.analysis.spark.reproduction import reproduce_experiments
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import confidence_interval
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.faults import CutOff, LinkCuts
from carrycast.trace import Level
from tests.pipeline.spread import spread

Labels = dict[str, str]
Made = Callable[[str, Labels], float]
SCHEMES = ("recovery", "recovery and caches")


@pytest.fixture(scope="module")
def policy() -> Experiment:
    return load_experiment("000")


@pytest.fixture(scope="module")
def few() -> Experiment:
    return load_experiment("policy", runs=3)


def results_of(experiment: Experiment, made: Made) -> Results:
    """Results with given numbers, give or take a little by seed; where nobody fails one is one."""
    records: list[Record] = []
    for point in experiment.points:
        for seed in experiment.seeds:
            identity: Record = {"experiment": experiment.name, "point": point.name, "seed": seed, "error": None}
            values = {metric: made(metric, point.labels) for metric in experiment.metrics}
            noisy = {
                metric: value
                if value == 1.0 and point.labels["failures"] == "none"
                else spread(value, metric, point.name, seed)
                for metric, value in values.items()
            }
            records.append({**identity, **metric_columns(noisy)})
    return Results(experiment, records, Path())


def as_the_paper_has_it(metric: str, labels: Labels) -> float:
    """A world in which all that the paper says is so."""
    two = labels["repositories"].startswith("two")
    if metric == "response_hops":
        return math.log2(float(labels["brokers"])) - 0.5 * two
    if metric == "stability_s":
        return 0.05 * (1.2 if labels["published"] == "0.2/s" else 1.0) * (0.7 if two else 1.0)
    if metric == "sent_bytes_per_node_s":
        return 200.0 if labels["scheme"] in SCHEMES else 100.0
    if metric == "control_bytes":
        return 100.0 if labels["scheme"] == "strawman" else 90.0
    if metric not in (*FOUR, "answered_ratio") or labels["failures"] == "none" or labels["scheme"] in SCHEMES:
        return 1.0
    down = float(labels["recovery"]) / float(labels["interval"])
    if metric == "response_ratio":
        return 0.97 - 0.1 * down
    ratio = 0.8 - 0.4 * down + 0.02 * math.log2(float(labels["brokers"]) / 15) - 0.05 * (int(labels["cuts"]) - 1)
    ratio -= 0.6 * (float(labels["rate"]) - 0.05) * (labels["service"] == "80 ms")
    return ratio - 0.05 if metric == "publish_ratio" else ratio + 0.15 * two


def verdicts(experiment: Experiment, made: Made) -> dict[str, bool | None]:
    return {claim.statement: claim.holds for claim in evaluate_claims(results_of(experiment, made))}


def test_the_points_are_those_of_the_paper(policy: Experiment) -> None:
    builder = PolicyClaims(Results(policy, [], Path()))
    base = builder.scenario({})
    assert base is not None
    assert (base.nodes, base.wires[0].tree, base.protocol["choice"]) == (15, 2, "random")
    assert builder.along("brokers", {"repositories": "two"}) == ["7", "15", "31", "63"]
    for axis in ("rate", "interval", "recovery", "brokers"):
        assert builder.along(axis, {}) == builder.along(axis, {"repositories": "two"}), axis
        assert len(builder.along(axis, {})) >= 4
    assert len(policy.points) == len({point.name for point in policy.points})
    settings = [msgspec.json.encode(point.scenario, order="deterministic") for point in policy.points]
    assert len(set(settings)) == len(settings), "no two run the same"


def test_the_testbed_has_the_rates_that_the_paper_states(policy: Experiment) -> None:
    builder = PolicyClaims(Results(policy, [], Path()))
    assert builder.along("rate", {"failures": "none", "brokers": "6"}) == ["0.09", "0.17", "0.25", "0.33"]
    seen = set()
    for point in policy.points:
        births, published = point.scenario.subscribe[0], point.scenario.publish[1]
        window_s = (published.to_s or 0) - published.from_s
        assert births.history
        assert births.births_per_s == float(point.labels["rate"])
        assert f"{(published.count or 0) / window_s:g}/s" == point.labels["published"]
        (fault,) = point.scenario.faults
        if point.labels["failures"] == "nodes":
            assert isinstance(fault, CutOff)
            assert fault.every_s is not None
            assert point.scenario.nodes * 60 / fault.every_s == 4, "failures a minute"
        elif point.labels["failures"] == "none":
            assert isinstance(fault, LinkCuts)
            assert fault.from_s > point.scenario.duration_s
        seen.add(point.labels["failures"])
    assert seen == {"links", "links, exponential", "none", "nodes"}


def test_one_repository_is_one_of_the_two(policy: Experiment) -> None:
    builder = PolicyClaims(Results(policy, [], Path()))
    one, two = builder.scenario({}), builder.scenario({"repositories": "two"})
    assert one is not None
    assert two is not None
    for seed in range(1, 20):
        (place,), pair = builder.places(one, "repository", seed), builder.places(two, "repository", seed)
        assert place in pair
        assert len(set(pair)) == 2


def test_quick_is_small_and_still_draws_every_figure() -> None:
    quick = load_experiment("policy", quick=True)
    assert len(quick.points) * len(quick.seeds) <= 255
    for figure in quick.definition.figures:
        assert draw_figure(figure, results_of(quick, as_the_paper_has_it)) is not None, figure.name
        alone = load_experiment(f"policy/{figure.name}", quick=True)
        evaluate_claims(results_of(alone, as_the_paper_has_it))
    assert len(load_experiment("policy/recovery", quick=True).points) <= 10, "the headline of the tour"


def test_a_figure_with_several_metrics_has_a_line_of_each(few: Experiment) -> None:
    (figure,) = [figure for figure in few.definition.figures if figure.name == "recovery"]
    drawn = draw_figure(figure, results_of(few, as_the_paper_has_it))
    assert drawn is not None
    rows = {(row["panel"], row["series"], row["x"]): row["mean"] for row in drawn.rows}
    assert len(rows) == 2 * 4 * 5
    assert rows["two", "request ratio", 5.0] == pytest.approx(0.85, abs=1e-4)
    assert rows["one", "publish ratio", 19.0] == pytest.approx(0.37, abs=1e-4)


def test_what_the_paper_says_holds_if_so_it_is(few: Experiment) -> None:
    found = verdicts(few, as_the_paper_has_it)
    other = {text for text, holds in found.items() if holds is not True}
    assert {text for text in other if "what counting says" not in text} == set()
    assert len(other) == 7, "the closed form is of another world"


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        (
            lambda m, at, v: v - 0.2 * float(at["rate"]) if m == "response_ratio" else v,
            "from 0.05 to 0.4 subscriptions a second every ratio falls by less than 0.05",
        ),
        (
            lambda m, at, v: v - 0.5 * float(at["rate"]) if m in LOST else v,
            "testbed: from 0.09 to 0.33 subscriptions a second every ratio falls by less than 0.1",
        ),
        (
            lambda m, at, v: 0.7 if m == "responded_ratio" and at["service"] == "80 ms" else v,
            "brokers that take 80 ms for a message: from 0.05 to 0.4 subscriptions a second the responded ratio falls"
            " by more than 0.1",
        ),
        (
            lambda m, at, v: 1.2 - v if m in LOST else v,
            "delivery rises with the interval between failures",
        ),
        (
            lambda m, at, v: 0.004 * float(at["interval"]) if m == "publish_ratio" else v,
            "it saturates: over the first two intervals it rises more than 10 times as steeply as over the last two",
        ),
        (
            lambda m, at, v: 0.9 - math.exp(-float(at["interval"]) / 20) if m == "request_ratio" else v,
            "a hyperbola fits better than an exponential (difference of R²)",
        ),
        (
            lambda m, at, v: 0.9 - (float(at["recovery"]) / 20) ** 4 if m == "request_ratio" else v,
            "publish, request and responded ratios fall in a line (R² at least 0.97)",
        ),
        (
            lambda m, at, v: 0.9 + 0.001 * float(at["recovery"]) if m == "response_ratio" else v,
            "response ratios fall at every step of the recovery time",
        ),
        (
            lambda m, at, v: 0.5 if m == "request_ratio" and at["brokers"] == "63" else v,
            "the request ratio rises with the number of brokers, at every step",
        ),
        (
            lambda m, at, v: v - 0.06 if at["repositories"] == "two" and m in LOST else v,
            "recovery: at every point: two deliver 0.1 more (absolute)",
        ),
        (
            lambda m, at, v: v - 0.08 if at["repositories"] == "two" and m in LOST else v,
            "testbed: at every point: two deliver 1.1 times as much (relative)",
        ),
        (
            lambda m, at, v: v - 0.2 if at["repositories"] == "two at opposite leaves" and m in LOST else v,
            "links down 19 s of 20, leaves, nearest: two repositories deliver more than one",
        ),
        (
            lambda m, at, v: v + 0.1 if m == "publish_ratio" and at["repositories"] == "two" else v,
            "the publish ratio is the same with one repository and with two",
        ),
        (
            lambda m, at, v: 9.0 if m == "response_hops" and at["scheme"] == "nearest" else v,
            "with two repositories, the nearest of them, responses come from nearer, for every number of brokers",
        ),
        (
            lambda m, at, v: 0.04 if m == "stability_s" and at["published"] == "0.2/s" else v,
            "stability time rises with the rate of publications",
        ),
        (
            lambda m, at, v: 0.05 if m == "stability_s" else v,
            "with two repositories, one chosen at random, stability time is at least a tenth shorter (ratio)",
        ),
        (
            lambda m, at, v: v * (1 + float(at["rate"])) if m == "stability_s" else v,
            "from 0.09 to 0.33 subscriptions a second it changes by less than a tenth (ratio)",
        ),
        (
            lambda m, at, v: 0.7 if m in ("publish_ratio", "request_ratio") else v,
            "testbed: publish ratio and request ratio differ by more than 0.01",
        ),
        (
            lambda m, at, v: 0.99 if m == "responded_ratio" and at["failures"] == "none" else v,
            "where nobody fails every new subscriber, and only it, gets each earlier policy of its role exactly once",
        ),
        (
            lambda m, at, v: 0.99 if m == "publish_ratio" and at["scheme"] == "recovery" else v,
            "with recovery everything is delivered",
        ),
        (
            lambda m, at, v: v * 4 if m == "sent_bytes_per_node_s" and at["scheme"] == "recovery" else v,
            "recovery costs less than 5 times the bytes (ratio)",
        ),
        (
            lambda m, at, v: 10_000.0 / v if m == "control_bytes" else v,
            "links down 1 s: deferred unsubscription sends fewer control bytes than strawman (ratio)",
        ),
        (
            lambda m, at, v: 0.7 + 0.01 * int(at["cuts"]) if m == "responded_ratio" else v,
            "each link more that is down at once costs answers",
        ),
    ],
)
def test_each_claim_can_fail(few: Experiment, changed: Callable[[str, Labels, float], float], fails: str) -> None:
    found = verdicts(few, lambda metric, labels: changed(metric, labels, as_the_paper_has_it(metric, labels)))
    assert found[fails] is False


def test_shares_cut_off_are_those_worked_out_by_hand() -> None:
    # Three brokers: either link cuts one leaf from the root.
    assert share_cut_off(3, [0]) == pytest.approx(1 / 3)
    # From a leaf: its own link cuts two of three, the other one.
    assert share_cut_off(3, [1]) == pytest.approx(1 / 2)
    assert share_cut_off(3, [1, 2]) == 0.0, "each side of either link has one"
    # The mean depth over n - 1, for a repository at the root.
    for brokers in (7, 15, 31, 63):
        depth = sum(math.floor(math.log2(node + 1)) for node in range(brokers)) / brokers
        assert share_cut_off(brokers, [0]) == pytest.approx(depth / (brokers - 1))
    # The table of the fact sheet: at a leaf, below the root, at opposite leaves.
    assert [round(share_cut_off(15, places), 3) for places in ([7], [1, 2], [7, 14])] == [0.271, 0.095, 0.057]


def test_the_share_of_time_in_which_a_link_is_down() -> None:
    assert share_down(20.0, 5.0, 309.0, (20.0, 320.0)) == pytest.approx(0.25)
    assert share_down(20.0, 19.0, 309.0, (20.0, 320.0)) == pytest.approx(0.95)
    # One failure, half of which is over before the window.
    assert share_down(10.0, 10.0, 15.0, (15.0, 35.0)) == pytest.approx(0.25)


def test_fits_of_curves_that_are_known() -> None:
    xs = [1.0, 2.0, 4.0, 8.0]
    assert fit_line(xs, [3 - 2 * x for x in xs]) == pytest.approx(1.0)
    assert fit_line(xs, [1.0] * 4) is None
    assert fit_line(xs[:2], [1.0, 2.0]) is None
    assert fit_hyperbola(xs, [1 - 1 / x for x in xs]) == pytest.approx(1.0)
    found = fit_exponential(xs, [1 - math.exp(-x / 2) for x in xs])
    assert found is not None
    assert found > 0.9999
    # By hand: y = x² at 0, 1, 2 has the line -1/3 + 2 x, residuals 1/3, -2/3, 1/3, and a variance of 78/9.
    assert fit_line([0.0, 1.0, 2.0], [0.0, 1.0, 4.0]) == pytest.approx(1 - (6 / 9) / (78 / 9))
    assert jackknife_fit(
        fit_line, xs, [{seed: spread(x, x, seed) for seed in range(20)} for x in xs]
    ).low == pytest.approx(1.0)
    assert jackknife_fit(fit_line, [], []).mean is None


@pytest.mark.parametrize(
    ("where", "metric", "role"),
    [
        ({}, "request_ratio", "repository"),
        ({"recovery": "19"}, "publish_ratio", "tool"),
        ({"recovery": "19", "repositories": "two", "scheme": "strawman"}, "request_ratio", "repository"),
    ],
)
def test_the_simulator_loses_what_counting_says(policy: Experiment, where: Labels, metric: str, role: str) -> None:
    builder = PolicyClaims(Results(policy, [], Path()))
    scenario = builder.scenario(where)
    assert scenario is not None
    down = share_down(*builder.cuts(scenario), (20.0, 320.0))
    beyond = []
    for seed in range(1, 13):
        value = run(scenario, seed).metrics[metric]
        assert isinstance(value, float)
        beyond.append(value - 1 + down * share_cut_off(15, builder.places(scenario, role, seed)))
    found = confidence_interval(beyond)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.0 < found.high
    assert found.high - found.low < 0.12, "wide intervals prove nothing"


def test_a_new_subscriber_and_only_it_gets_each_earlier_policy_once(policy: Experiment) -> None:
    builder = PolicyClaims(Results(policy, [], Path()))
    scenario = builder.scenario({"failures": "none", "brokers": "6", "rate": "0.09", "repositories": "two"})
    assert scenario is not None
    done = run(scenario, 3, Level.DELIVERIES)
    roles = {row["event"]: f"role = {json.loads(row['attributes'])['role']}" for row in done.trace.events().to_pylist()}
    wanted = {row["subscription"]: row["filter"] for row in done.trace.subscriptions().to_pylist()}
    assert len(wanted) > 100
    assert len(roles) == 40
    given = [(row["subscription"], row["event"]) for row in done.trace.table().to_pylist() if row["kind"] == "deliver"]
    # Earlier ones by request, later ones by subscription: each of the role once, and no other.
    due = [(subscription, event) for subscription in wanted for event in roles if roles[event] == wanted[subscription]]
    assert sorted(given) == sorted(due)


def test_a_small_point_runs_and_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    whole = load_experiment("policy", quick=True, runs=1)
    (point,) = [
        point for point in whole.points if point.matches({"rate": 0.09, "failures": "nodes", "repositories": "one"})
    ]
    tiny = Experiment(whole.definition, [point], whole.seeds, whole.hook)
    report = reproduce_experiments([tiny], tmp_path, spark, quiet=True)
    assert (report.runs, report.failed) == (1, 0)
    rows: list[dict[str, object]] = json.loads((tmp_path / "claims.json").read_text())
    assert {row["holds"] for row in rows} <= {None, False, True}
    (figure,) = [row for row in rows if str(row["statement"]).startswith("testbed: from")][:1]
    assert isinstance(Claim(**figure), Claim)  # type: ignore[arg-type]
    assert (tmp_path / "figures" / "policy-testbed.png").stat().st_size > 10_000
