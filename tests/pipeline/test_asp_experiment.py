"""The experiments of ASP, small; and what they brought: figures of single runs, own metrics, fewer runs."""

import csv
import json
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.reports.distributions import box_statistics
from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.definition import Definition
from carrycast.analysis.spark.experiment import FOLDER, Experiment, load_experiment, read_definition
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.records import Record, metric_columns, metric_value
from carrycast.analysis.spark.reproduction import ExperimentReport, reproduce_experiments
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import ratio_confidence_interval
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.measures import RequestedMetric
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.trace import Level
from tests.pipeline.spread import spread

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def asp() -> Experiment:
    return load_experiment("asp")


@pytest.fixture(scope="module")
def reproduced(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExperimentReport:
    """Two runs of the five settings of the paper on the ideal disk, and of two over 802.11b."""
    experiment = load_experiment("asp", runs=2)
    kept = [point for point in experiment.points if point.labels["range"] == "177"]
    chosen = [
        point for point in kept if point.labels["radio"] == "disk" or point.labels["setting"] in ("10 s", "100 s")
    ]
    small = Experiment(experiment.definition, chosen, experiment.seeds, experiment.hook)
    return reproduce_experiments([small], tmp_path_factory.mktemp("asp"), spark, quiet=True)


def test_the_scenario_is_that_of_the_paper(asp: Experiment) -> None:
    scenario = load_scenario(FOLDER / "asp" / "stations.toml")
    assert (scenario.nodes, scenario.area_m, scenario.wires[0].between) == (7, (200.0, 500.0), [(0, 1)])
    assert len(asp.seeds) == 1000
    paper = [point for point in asp.points if (point.labels["radio"], point.labels["range"]) == ("802.11b", "177")]
    assert [point.labels["setting"] for point in paper] == ["flooding", "10 s", "20 s", "50 s", "100 s"]
    assert all(msgspec.to_builtins(point.scenario.radio) == msgspec.to_builtins(scenario.radio) for point in paper)


def test_a_hundred_messages_are_published_one_a_second(asp: Experiment) -> None:
    point = next(point for point in asp.points if point.labels["radio"] == "disk")
    outcome = run(point.scenario, 1, Level.DELIVERIES)
    sources = [row for row in outcome.trace.events().to_pylist() if row["source"] == 2]
    times_s = [row["time_s"] for row in sources]
    assert len(times_s) == 100
    assert times_s == [5.0 + second for second in range(100)]


def test_some_points_have_fewer_runs_on_the_first_of_the_same_seeds(asp: Experiment) -> None:
    runs = plan_runs(asp)
    by_point = {point.name: [one.seed for one in runs if one.point == point.name] for point in asp.points}
    assert by_point["802.11b / 177 / 100 s"] == list(range(1, 1001))
    assert by_point["disk / 177 / 100 s"] == by_point["802.11b / 150 / 100 s"] == list(range(1, 101))


def test_the_report_has_the_four_figures_and_every_claim_has_a_number(reproduced: ExperimentReport) -> None:
    for name in ("completeness", "histograms", "single-runs", "load", "radios"):
        assert (reproduced.out / "figures" / f"asp-{name}.png").read_bytes().startswith(PNG)
    assert reproduced.failed == 0
    by_statement = {claim.statement: claim for claim in reproduced.claims}
    assert by_statement["ASP at 100 s, disk: a broken path costs one message"].ours is not None
    calibrated = [claim for claim in reproduced.claims if claim.calibration]
    assert [claim.statement.split(":")[0] for claim in calibrated] == ["Flooding", "Flooding"]


def test_the_numbers_of_a_figure_are_those_of_the_runs(reproduced: ExperimentReport) -> None:
    with (reproduced.out / "tables" / "asp-single-runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["1", "2", "mean of all runs"]
    mean = sum(float(row["announcements"]) for row in rows[:2]) / 2
    assert float(rows[2]["announcements"]) == mean
    with (reproduced.out / "tables" / "asp-means.csv").open() as file:
        means = {(row["radio"], row["setting"], row["metric"]): row for row in csv.DictReader(file)}
    assert float(means["802.11b", "100 s", "announcements"]["mean"]) == mean
    page = (reproduced.out / "index.html").read_text("utf-8")
    assert "notes of announce" in page
    assert "Seeds 1, 2." in page


def test_the_repaired_experiment_asks_for_every_extension_on_the_same_scenario() -> None:
    repaired = load_experiment("asp-repaired", quick=True)
    assert repaired.name == "asp-repaired"
    protocols = {point.labels["setting"]: point.scenario.protocol for point in repaired.points}
    assert protocols["all"] == {"name": "asp", "variant": "repaired", "validity_s": 100}
    assert len(protocols) == 8
    everything = next(point for point in repaired.points if point.name == "disk / all")
    metrics = run(everything.scenario, 1).metrics
    received, soon = metrics["received_per_sink"], metrics["received_within_1_s_per_sink"]
    assert received is not None
    assert soon is not None
    assert 90 <= soon <= received <= 100


def test_own_metrics_travel_in_one_column_and_come_back() -> None:
    record: Record = metric_columns({"delivered": 3, "announcements": 2, "share": 0.5})
    assert json.loads(str(record["more"])) == {"announcements": 2, "share": 0.5}
    assert [metric_value(record, name) for name in ("delivered", "announcements", "share", "other")] == [
        3,
        2,
        0.5,
        None,
    ]
    assert metric_columns({"delivered": 3})["more"] is None


def test_a_box_shows_quartiles_and_counts_what_lies_beyond_its_whiskers() -> None:
    found = box_statistics([0.0, 96.0, 97.0, 98.0, 99.0, 100.0, 100.0, 100.0, 100.0])
    assert (found["q1"], found["median"], found["q3"]) == (97.0, 99.0, 100.0)
    assert (found["low"], found["high"], found["beyond"]) == (96.0, 100.0, 1)


def test_a_figure_of_single_runs_without_runs_is_left_out(asp: Experiment, tmp_path: Path) -> None:
    for figure in asp.definition.figures:
        if figure.kind in ("box", "histogram", "runs"):
            assert draw_figure(figure, Results(asp, [], tmp_path)) is None


def test_the_ratio_of_two_means_has_an_interval_of_its_own() -> None:
    found = ratio_confidence_interval([6.0, 12.0, 18.0], [2.0, 4.0, 6.0])
    assert (found.mean, found.low, found.high) == (3.0, None, None), "a constant ratio has no spread"
    found = ratio_confidence_interval([6.0, 12.0, 18.0], [2.0, 4.0, 6.0], exact=True)
    assert (found.mean, found.low, found.high) == (3.0, 3.0, 3.0)
    varied = ratio_confidence_interval([6.0, 13.0, 18.0], [2.0, 4.0, 6.0])
    assert varied.low is not None
    assert varied.mean is not None
    assert varied.high is not None
    assert varied.low < varied.mean < varied.high
    assert ratio_confidence_interval([1.0, 2.0], [0.0, 0.0]).mean is None


def test_an_unknown_metric_of_a_figure_is_told_with_those_the_experiment_asked_for(tmp_path: Path) -> None:
    written = (FOLDER / "asp" / "experiment.toml").read_text("utf-8")
    broken = tmp_path / "asp.toml"
    broken.write_text(written.replace('metrics = ["sent_per_node_bytes"]', 'metrics = ["sent_per_node"]'), "utf-8")
    with pytest.raises(UserError, match="did you mean 'sent_per_node_bytes'"):
        read_definition(broken)


def evaluate(experiment: Experiment, found: dict[str, list[dict[str, float]]], seeds: int = 20) -> dict[str, Claim]:
    """The claims, where each setting over 802.11b has these runs, in turn."""
    records: list[Record] = []
    for setting, runs in found.items():
        for seed in range(1, seeds + 1):
            metrics = {**runs[(seed - 1) % len(runs)]}
            metrics["sent_per_node_bytes"] = spread(metrics.get("sent_per_node_bytes", 1.0), setting, seed)
            record: Record = {"experiment": "asp", "point": f"802.11b / 177 / {setting}", "seed": seed, "error": None}
            records.append({**record, **metric_columns(metrics)})
    return {claim.statement: claim for claim in evaluate_claims(Results(experiment, records, Path()))}


def test_the_papers_loads_hold_and_others_of_the_same_ratio_do_not(asp: Experiment) -> None:
    for factor, holds in ((1.0, True), (1.3, False)):
        loads = {"flooding": 30_000.0, "10 s": 10_000.0, "100 s": 5_000.0}
        found = evaluate(asp, {name: [{"sent_per_node_bytes": factor * load}] for name, load in loads.items()})
        assert found["flooding: every node sends about 30 kB"].holds is holds
        assert found["ASP at 10 s: every node sends about 10 kB"].holds is holds
        assert found["ASP at 100 s: every node sends about 5 kB"].holds is holds
        assert found["The load of ASP at 10 s is about twice that at 100 s, and not ten times"].holds is True
        assert found["Flooding sends about 6 times what ASP at 100 s sends"].holds is True
    flat = evaluate(asp, {"10 s": [{"sent_per_node_bytes": 9_000.0}], "100 s": [{"sent_per_node_bytes": 7_500.0}]})
    assert flat["The load of ASP at 10 s is about twice that at 100 s, and not ten times"].holds is False


@pytest.mark.parametrize(("short", "holds"), [(1, True), (12, False)])
def test_most_runs_of_flooding_deliver_all(short: int, holds: bool, asp: Experiment) -> None:
    got = [99.0 if run < short else 100.0 for run in range(20)]
    runs = [{"received_by_sink_0": each, "received_by_sink_1": each} for each in got]
    found = evaluate(asp, {"flooding": runs})["Flooding: most runs deliver all 100 messages"]
    assert found.ours == 1 - short / 20
    assert found.holds is (True if holds else None)


def test_without_path_failures_one_announcement_has_to_suffice(asp: Experiment) -> None:
    """Of five runs two had one announcement, which came; another's never came, and says nothing here."""
    statement = "ASP at 100 s: without path failures one announcement suffices: less than one message is lost at sink 1"
    for got, holds in ((100.0, True), (98.0, False)):
        runs = [
            {"announcements": 1, "announcements_missed_by_sink_1": 0, "received_by_sink_1": got},
            {"announcements": 1, "announcements_missed_by_sink_1": 0, "received_by_sink_1": got - 1},
            {"announcements": 1, "announcements_missed_by_sink_1": 1, "received_by_sink_1": 0.0},
            {"announcements": 2, "announcements_missed_by_sink_1": 0, "received_by_sink_1": 50.0},
            {"announcements": 3, "announcements_missed_by_sink_1": 0, "received_by_sink_1": 97.0},
        ]
        found = evaluate(asp, {"100 s": runs})
        assert (found[statement].ours, found[statement].holds) == (100.5 - got, holds)
        broken = found["ASP at 100 s: in most runs a path breaks, so that there is more than one announcement"]
        assert broken.ours == 0.4
        assert broken.holds is None


def test_means_have_to_fall_at_each_step_of_the_validity(asp: Experiment) -> None:
    sinks = ("received_by_sink_0", "received_by_sink_1")
    for means, holds in (((99.0, 98.0, 97.0, 95.0), True), ((99.0, 98.0, 98.5, 95.0), False)):
        settings = enumerate(zip(("10 s", "20 s", "50 s", "100 s"), means, strict=True))
        # As many as it takes to meet one of the rare runs that decide a mean.
        runs = {
            name: [dict.fromkeys(sinks, mean + (place + shift) % 3 - 1) for shift in range(3)]
            for place, (name, mean) in settings
        }
        found = evaluate(asp, runs, seeds=300)
        for sink in (0, 1):
            assert found[f"ASP: the mean at sink {sink} falls with the validity, at each of its steps"].holds is holds


def test_asked_metrics_say_what_they_mean() -> None:
    definition: Definition = read_definition(FOLDER / "asp-repaired" / "experiment.toml")
    meanings = {asked.name: asked.meaning() for asked in definition.measures}
    assert meanings["received_within_1_s_per_sink"].endswith("node 3 and 4, on average in some form within 1 s")
    assert RequestedMetric(name="a", counts="facts", fact="x", distinct=True).meaning().startswith("different events")
