"""A metric over simulated time: kept with each run without a trace, and drawn with its spread over seeds."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.spark.definition import Axis, Definition, Figure
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.records import MORE, Record, metric_columns, metric_value, record_table, series_value
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.validation import check_definition
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.measures import RequestedMetric
from tests.pipeline.scenarios import tiny

MEASURES = [
    RequestedMetric(name="distance", counts="probe", probe="hops", every_s=20.0),
    RequestedMetric(name="degree", counts="probe", probe="neighbors", across="max", every_s=30.0),
    RequestedMetric(name="sent", counts="load"),
]


def study(figures: Sequence[Figure] = (), runs: int = 3) -> Experiment:
    table = msgspec.to_builtins(tiny())
    folder = Path(str(table.pop("base")))
    definition = Definition(
        name="study",
        scenario=table,
        runs=runs,
        measures=MEASURES,
        metrics=["distance", "degree"],
        axes=[Axis(name="range", key="radio.range_m", values=[1.0, 150.0, 300.0], labels=["deaf", "near", "far"])],
        figures=list(figures),
    )
    check_definition(definition, "study.toml")
    return expand_experiment(definition, folder)


@pytest.fixture(scope="module")
def results() -> Results:
    experiment = study()
    records: list[Record] = []
    for point in experiment.points:
        for seed in experiment.seeds:
            done = run(point.scenario, seed)
            identity: Record = {"experiment": "study", "point": point.name, "seed": seed, "error": None}
            records.append({**identity, **metric_columns(done.metrics, done.series)})
    # As it stands in a file.
    return Results(experiment, record_table(records).to_pylist(), Path())


def test_a_record_keeps_the_samples_beside_the_metrics(results: Results) -> None:
    record = results.records[-1]
    assert [time_s for time_s, _ in series_value(record, "distance")] == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    assert [time_s for time_s, _ in series_value(record, "degree")] == [0.0, 30.0, 60.0, 90.0, 120.0]
    values = [value for _, value in series_value(record, "distance") if value is not None]
    assert metric_value(record, "distance") == pytest.approx(sum(values) / len(values))
    assert series_value(record, "sent") == []
    assert series_value({MORE: None}, "distance") == []
    assert metric_value(record, "series") is None
    plain = metric_columns({"published": 1, "sent": 2.0})
    assert json.loads(str(plain[MORE])) == {"sent": 2.0}


def test_a_timeline_is_the_mean_over_seeds_at_each_time(results: Results) -> None:
    far = results.timeline({"range": "far"}, "degree")
    assert [time_s for time_s, _ in far] == [0.0, 30.0, 60.0, 90.0, 120.0]
    at_60 = [dict(series_value(record, "degree"))[60.0] for record in results.records if record["point"] == "far"]
    assert None not in at_60
    assert far[2][1].n == 3
    assert far[2][1].mean == pytest.approx(sum(value or 0.0 for value in at_60) / 3)
    assert results.timeline({"range": "deaf"}, "distance") == [], "nobody has a path to anybody"


def test_a_timeline_is_drawn_with_a_line_for_each_label_and_for_other_metrics(results: Results) -> None:
    where: dict[str, str | int | float | bool | list[str | int | float | bool]] = {"range": ["near", "far"]}
    figure = Figure(name="time", kind="timeline", y="distance", series="range", metrics=["degree"], where=where)
    drawn = draw_figure(figure, results)
    assert drawn is not None
    assert drawn.png.startswith(b"\x89PNG")
    assert list(dict.fromkeys(row["series"] for row in drawn.rows)) == ["near", "far", "degree"]
    far = [row for row in drawn.rows if row["series"] == "far"]
    assert [(row["x"], row["mean"]) for row in far] == [
        (time_s, found.mean) for time_s, found in results.timeline({"range": "far"}, "distance")
    ]
    assert drawn.svg.startswith(b"<?xml")


def test_one_line_needs_no_name_and_no_samples_no_figure(results: Results) -> None:
    drawn = draw_figure(Figure(name="time", kind="timeline", y="degree", where={"range": "far"}), results)
    assert drawn is not None
    assert {row["series"] for row in drawn.rows} == {""}
    assert draw_figure(Figure(name="none", kind="timeline", y="distance", where={"range": "deaf"}), results) is None


@pytest.mark.parametrize("metric", ["sent", "delivery_ratio", "distences"])
def test_only_what_is_sampled_has_a_timeline(metric: str) -> None:
    with pytest.raises(UserError) as refused:
        study([Figure(name="time", kind="timeline", y=metric)])
    assert str(refused.value) == (
        f"study.toml: figures[0]: {metric!r} is not sampled over time; "
        "of the measures that count a probe there are distance, degree"
    )
