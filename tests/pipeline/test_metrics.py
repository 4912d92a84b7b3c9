"""Means and paired differences by Spark are those of plain Python, and one filter means the same to both worlds."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.records import METRICS, Record, metric_bounds, record_table
from carrycast.analysis.spark.statistics import Interval, confidence_interval, paired_differences
from carrycast.analysis.spark.summary import summarize, summarize_differences
from carrycast.core.matching import Filter
from tests.unit.matching.generators import SCHEMA, random_attributes, random_filter

POINTS = ("a", "b", "c")


def rows() -> list[Record]:
    """Eight runs at each of three points; one failed, some without a delay, one metric always the same."""
    rng = Random(3)
    made: list[Record] = []
    for point in POINTS:
        for seed in range(1, 9):
            record: Record = {"experiment": "e", "point": point, "seed": seed, "transmissions": 7}
            if (point, seed) == ("b", 2):
                record = {"experiment": "e", "point": point, "seed": seed, "error": "lost"}
            else:
                record["delivery_ratio"] = rng.random()
                record["delay_p50_s"] = rng.expovariate(1) if rng.random() < 0.7 and point != "c" else None
            made.append(record)
    return made


def values(point: str, metric: str) -> dict[int, float | None]:
    found: dict[int, float | None] = {}
    for record in rows():
        if record["point"] == point:
            value = record.get(metric)
            found[int(str(record["seed"]))] = float(value) if isinstance(value, int | float) else None
    return found


def close(found: Interval, expected: Interval) -> bool:
    return found.n == expected.n and all(
        ours == theirs or (ours is not None and ours == pytest.approx(theirs, rel=1e-9))
        for ours, theirs in zip(found[1:4], expected[1:4], strict=True)
    )


def test_sparks_means_are_those_of_the_claims(spark: SparkSession) -> None:
    frame = spark.createDataFrame(record_table(rows()))
    found = {(one.point, one.metric): one for one in summarize(frame)}
    assert len(found) == len(POINTS) * len(METRICS)
    for point in POINTS:
        for metric in ("delivery_ratio", "delay_p50_s", "transmissions", "control_bytes"):
            row = found[point, metric]
            known = confidence_interval(values(point, metric).values(), metric_bounds(metric))
            assert close(row.interval, known), (point, metric)
            assert row.missing == 8 - known.n
    assert found["b", "transmissions"].interval.n == 7
    assert found["c", "delay_p50_s"].interval.mean is None
    assert found["a", "transmissions"].interval[1:3] == (7.0, None), "all alike"


def test_sparks_differences_are_paired_by_seed(spark: SparkSession) -> None:
    frame = spark.createDataFrame(record_table(rows()))
    pairs = spark.createDataFrame(
        [("e", "a", "b"), ("e", "c", "b")], "experiment string, point string, reference string"
    )
    found = {(one.point, one.metric): one for one in summarize_differences(frame, pairs)}
    for point in ("a", "c"):
        for metric in ("delivery_ratio", "delay_p50_s", "transmissions"):
            row = found[point, metric]
            differences = paired_differences(values(point, metric), values("b", metric))
            known = confidence_interval(differences, metric_bounds(metric, difference=True))
            assert close(row.interval, known), (point, metric)
    assert found["a", "delivery_ratio"].interval.n == 7


def test_a_filter_means_the_same_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(2024)
    events = [random_attributes(rng) for _ in range(150)]
    schema = ", ".join(f"{name} {kind.replace('VARCHAR', 'string')}" for name, kind in SCHEMA.items())
    typed = [(place, *(event.get(name) for name in SCHEMA)) for place, event in enumerate(events)]
    frame = spark.createDataFrame(typed, f"place int, {schema}").coalesce(1).cache()
    filters = [random_filter(rng) for _ in range(120)]
    # One job for all of them: a column per filter, of the places at which it is TRUE.
    columns = [f"collect_list(place) filter (where {text})" for text in filters]
    answers = frame.selectExpr(*columns).first()
    frame.unpersist()
    assert answers is not None
    matched = 0
    for text, theirs in zip(filters, answers, strict=True):
        ours = [place for place, event in enumerate(events) if Filter(text).matches(event)]
        assert ours == sorted(theirs), text
        matched += len(ours)
    assert 0 < matched < len(events) * len(filters)
