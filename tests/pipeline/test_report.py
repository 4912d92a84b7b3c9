"""Reports: everything that was promised is there, needs no network, and shows text as text."""

import base64
import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.reports.page import block_html
from carrycast.analysis.spark.definition import Axis, ClaimEntry, Definition, Figure
from carrycast.analysis.spark.experiment import Experiment, expand_experiment, experiment_names, load_experiment
from carrycast.analysis.spark.reproduction import (
    ExperimentReport,
    read_stored_experiments,
    report,
    reproduce_experiments,
    sweep_experiment,
)
from carrycast.analysis.spark.statistics import Interval
from carrycast.analysis.spark.summary import finding_sentences
from carrycast.errors import UserError
from carrycast.trace import Level
from tests.pipeline.scenarios import tiny

NASTY = '<script>alert("x")</script> & <b>'
PNG = b"\x89PNG\r\n\x1a\n"


def study() -> Experiment:
    table = msgspec.to_builtins(tiny(description=NASTY))
    folder = Path(str(table.pop("base")))
    claim = ClaimEntry(
        statement=f"nobody sends nothing {NASTY}",
        figure="sent",
        kind="bound",
        metric="transmissions",
        relation=">",
        paper=12.5,
        note=NASTY,
    )
    figures = [
        Figure(name="sent", kind="line", x="p", y="transmissions", series="range", title=NASTY, caption=NASTY),
        Figure(name="reach", kind="bars", x="range", y="delivery_ratio", series="p", paper="Fig. 3"),
        Figure(name="cost", kind="tradeoff", x="data_bytes", y="delivery_ratio", series="p", panels="range"),
        Figure(name="time", kind="over_time", series="p", panels="range", log_x=True),
    ]
    definition = Definition(
        name="study",
        title=f"A study {NASTY}",
        description=NASTY,
        scenario=table,
        runs=2,
        trace=Level.DELIVERIES,
        metrics=["delivery_ratio", "delay_p50_s", "data_bytes"],
        axes=[
            Axis(name="p", key="protocol", values=["gossip:p=0.2", "gossip:p=1.0"], labels=["low", f"high {NASTY}"]),
            Axis(name="range", key="radio.range_m", values=[1.0, 250.0], labels=["deaf", "far"]),
        ],
        figures=figures,
        claims=[claim],
    )
    return expand_experiment(definition, folder)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExperimentReport:
    return reproduce_experiments([study()], tmp_path_factory.mktemp("report"), spark, quiet=True)


def test_everything_that_was_promised_is_there(written: ExperimentReport) -> None:
    out = written.out
    names = ("sent", "reach", "cost", "time")
    figures = {f"study-{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {path.name for path in (out / "figures").iterdir()} == figures
    assert all(path.read_bytes().startswith(PNG) for path in (out / "figures").glob("*.png"))
    assert all(ET.fromstring(path.read_bytes()).tag.endswith("svg") for path in (out / "figures").glob("*.svg"))
    assert {path.name for path in (out / "tables").iterdir()} == {f"study-{name}.csv" for name in (*names, "means")}
    assert written.runs == 8
    assert written.failed == 0
    assert not list(out.rglob(".*"))


def test_claims_are_written_as_promised(written: ExperimentReport) -> None:
    (row,) = json.loads((written.out / "claims.json").read_text())
    assert row == written.claims[0].as_row()
    (table,) = csv.DictReader((written.out / "claims.csv").open())
    assert table["asked"] == row["asked"] == "> 0"
    assert set(row) == {
        *("experiment", "figure", "statement", "paper", "ours", "low", "high", "holds", "together", "chance"),
        *("calibration", "note", "asked", "runs"),
    }


def test_the_page_needs_no_network(written: ExperimentReport) -> None:
    page = written.page.read_text()
    assert not re.search(r"https?:|//\w|@import|<link|<script|<iframe", page)
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    elsewhere = [source for source in sources if not source.startswith(("#", "data:image/svg+xml;base64,"))]
    assert {Path(source).suffix for source in elsewhere} == {".svg", ".png", ".csv", ".html"}
    assert all((written.out / source).is_file() for source in elsewhere)


def test_links_inside_the_page_lead_somewhere(written: ExperimentReport) -> None:
    page = written.page.read_text()
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)


def test_the_page_shows_text_as_text(written: ExperimentReport) -> None:
    page = written.page.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in page
    assert page.count("<b>") == page.count("</b>")


def test_the_figures_in_the_page_are_drawings(written: ExperimentReport) -> None:
    images = re.findall(r"base64,([A-Za-z0-9+/=]+)", written.page.read_text())
    assert len(images) == 4
    for image in images:
        assert ET.fromstring(base64.b64decode(image)).tag.endswith("svg")


def test_the_page_opens_with_a_picture_and_not_with_counts(written: ExperimentReport) -> None:
    page = written.page.read_text()
    after = page.partition("</h1>")[2]
    assert after.lstrip().startswith('<figure id="study-sent"'), "the first figure: the experiment has no headline"
    assert page.index("The experiments check 1 claim:") > page.index("</nav>")
    assert "whiskers are their 95 % confidence intervals" in after.partition("</figure>")[0]


def test_the_page_explains_numbers_where_they_stand(written: ExperimentReport) -> None:
    page = written.page.read_text()
    claims, means = page.partition('id="study-claims"')[2], page.partition('id="study-means"')[2]
    assert "A claim holds if the whole 95 % interval" in claims.partition("<table")[0]
    assert "95 % confidence interval of the mean" in means.partition("<table")[0]
    below = means.partition("</table></div>")[2]
    assert below.startswith("<details><summary>What the columns mean</summary><dl><dt>delivery ratio ")


def test_every_table_scrolls_inside_the_page(written: ExperimentReport) -> None:
    page = written.page.read_text()
    assert page.count("<table") == page.count('<div class="scroll"><table')
    assert '<div class="scroll"><table>' in block_html("|a|b|\n|-|-|\n|1|2|")


def test_findings_have_the_numbers_of_the_runs() -> None:
    experiment = load_experiment("baselines/islands", quick=True)
    means = {
        (point.name, metric): Interval(5, value, None, None)
        for point in experiment.points
        for metric, value in (("delivery_ratio", 0.25), ("delay_p50_s", 12.0), ("transmissions", 1234.0))
    }
    first, second, third = finding_sentences(experiment, means)
    assert "epidemic delivers 0.250 of the events that subscribers wait for; flooding delivers 0.250." in first
    assert "longer than 12.0 s" in second
    assert "1,234 messages" in third
    del means["sparse / flooding", "delivery_ratio"]
    assert finding_sentences(experiment, means) == [second, third]


@pytest.mark.parametrize("name", experiment_names())
def test_each_number_of_a_finding_is_of_one_point(name: str) -> None:
    full = load_experiment(name, quick=True)
    headline = full.definition.headline
    if headline is None:
        return
    assert headline.findings
    for experiment in (full, load_experiment(f"{name}/{headline.figure}", quick=True)):
        metrics = {value.metric for finding in headline.findings for value in finding.values.values()}
        assert metrics <= set(experiment.metrics)
        means = {(point.name, metric): Interval(3, 0.5, 0.4, 0.6) for point in experiment.points for metric in metrics}
        assert len(finding_sentences(experiment, means)) == len(headline.findings)


def test_tables_have_what_figures_show(written: ExperimentReport) -> None:
    rows = list(csv.DictReader((written.out / "tables" / "study-reach.csv").open()))
    assert {row["x"] for row in rows} == {"deaf", "far"}
    far = {row["series"]: float(row["mean"]) for row in rows if row["x"] == "far"}
    means = list(csv.DictReader((written.out / "tables" / "study-means.csv").open()))
    same = {
        row["p"]: float(row["mean"]) for row in means if row["range"] == "far" and row["metric"] == "delivery_ratio"
    }
    assert far == pytest.approx(same)
    over_time = list(csv.DictReader((written.out / "tables" / "study-time.csv").open()))
    last = {row["series"]: float(row["mean"]) for row in over_time if row["panel"] == "far"}
    assert last == pytest.approx(far)


def test_a_delay_that_does_not_exist_is_a_dash_and_not_zero(written: ExperimentReport) -> None:
    means = csv.DictReader((written.out / "tables" / "study-means.csv").open())
    deaf = [row for row in means if row["range"] == "deaf" and row["metric"] == "delay_p50_s"]
    assert {(row["n"], row["mean"]) for row in deaf} == {("0", "")}
    assert "<span>–<small" in written.page.read_text()


def test_the_report_can_be_made_again_from_its_directory(written: ExperimentReport, spark: SparkSession) -> None:
    before = {path: path.read_bytes() for path in written.out.rglob("*.*") if "traces" not in path.parts}
    again = report(written.out)
    assert again.claims == written.claims
    changed = [path.name for path, content in before.items() if path.read_bytes() != content]
    assert changed == []


def test_a_sweep_alone_leaves_what_a_report_needs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(
        'duration_s = 5.0\nnodes = 3\nmobility = { model = "line", spacing_m = 50.0 }\nprotocol.name = "flooding"\n'
        "subscribe = [{}]\npublish = [{ count = 2 }]\n"
    )
    path = tmp_path / "study.toml"
    path.write_text('scenario = "small.toml"\n[[axes]]\nname = "protocol"\nvalues = ["flooding"]\n')
    experiment = load_experiment(str(path), runs=2)
    assert [row["error"] for row in sweep_experiment(experiment, tmp_path / "out", quiet=True)] == [None, None]
    assert not (tmp_path / "out" / "index.html").exists()
    assert report(tmp_path / "out").runs == 2
    assert (tmp_path / "out" / "index.html").exists()


def test_a_directory_without_a_sweep_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"runs\.parquet: there is no such file; give a directory that sweep or reproduce"
    ):
        report(tmp_path)
    with pytest.raises(UserError, match=r"has no experiments/\*/definition\.json"):
        read_stored_experiments(tmp_path)
    folder = tmp_path / "experiments" / "x"
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text("{")
    with pytest.raises(UserError, match=r"definition\.json: cannot be read: "):
        read_stored_experiments(tmp_path)
