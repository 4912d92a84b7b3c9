"""Comparisons: common movement, paired differences, one table, one picture."""

import csv
import io
import re
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from carrycast.analysis.reports.style import metric_label
from carrycast.analysis.reports.tables import mean_text
from carrycast.analysis.spark.comparison import COMPARED_METRICS, Comparison, compare
from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import expand_experiment
from carrycast.analysis.spark.player_pages import render_player
from carrycast.analysis.spark.statistics import DIFFERENCE_OF_SHARES, SHARE, confidence_interval, paired_differences
from carrycast.analysis.spark.sweep import read_runs
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.overrides import parse_protocols, resolve_scenario

SCENARIO = """
duration_s = 60.0
nodes = 12
area_m = [700.0, 700.0]
mobility = { model = "random_waypoint", speed_min_mps = 5.0, speed_max_mps = 15.0 }
radio = { model = "disk", range_m = 150.0 }
protocol = { name = "flooding" }
subscribe = [{ filter = "true" }]
publish = [{ count = 8, to_s = 30.0, payload_bytes = 20 }]
"""

# In the order of their names.
PROTOCOLS = ("epidemic", "flooding", "gossip:p=0.5")


@pytest.fixture(scope="module")
def compared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compare")
    (folder / "field.toml").write_text(SCENARIO)
    protocols = parse_protocols("flooding,gossip:p=0.5,epidemic")
    return compare(folder / "field.toml", protocols, folder / "out", runs=4, quiet=True)


def test_differences_are_paired_over_common_seeds(compared: Comparison) -> None:
    values = {
        protocol: {
            int(str(row["seed"])): float(str(row["delivery_ratio"]))
            for row in read_runs(compared.report.out)
            if row["point"] == protocol
        }
        for protocol in compared.protocols
    }
    differences = paired_differences(dict(values["epidemic"]), dict(values["flooding"]))
    expected, mean = (
        confidence_interval(differences, DIFFERENCE_OF_SHARES),
        confidence_interval(values["epidemic"].values(), SHARE),
    )
    assert compared.differences["epidemic", "delivery_ratio"][:4] == pytest.approx(expected[:4])
    assert compared.means["epidemic", "delivery_ratio"][:4] == pytest.approx(mean[:4])
    assert expected.mean is not None
    assert expected.mean > 0


def test_beacons_find_links_unless_something_else_is_said(
    compared: Comparison, spark: SparkSession, tmp_path: Path
) -> None:
    assert compared.discovery.startswith("discovery by default, since the scenario states none: beacon (period_s = 1,")
    beacons = compared.means["flooding", "discovery_bytes"].mean
    assert beacons is not None
    assert beacons > 0
    of = {name: compared.means["flooding", f"{name}_bytes"].mean or 0.0 for name in ("data", "control", "total")}
    assert of["total"] == pytest.approx(of["data"] + of["control"] + beacons)
    stated = tmp_path / "stated.toml"
    stated.write_text(SCENARIO + 'discovery = { mode = "oracle" }\n')
    flooding = parse_protocols("flooding")
    alone = compare(stated, flooding, tmp_path / "a", runs=1, quiet=True)
    assert alone.discovery == "discovery as the scenario states it: oracle"
    assert alone.means["flooding", "discovery_bytes"].mean == 0
    asked = compare(
        stated,
        flooding,
        tmp_path / "b",
        runs=1,
        discovery={"mode": "beacon", "period_s": 2.0},
        quiet=True,
        settings={"publish.0.count": 5},
    )
    assert asked.means["flooding", "transmissions"].mean != alone.means["flooding", "transmissions"].mean
    assert asked.discovery.startswith("discovery as asked for: beacon (period_s = 2,")


def test_a_comparison_and_a_single_run_of_the_same_file_are_the_same_run(compared: Comparison) -> None:
    file = compared.report.out.parent / "field.toml"
    rows = [row for row in read_runs(compared.report.out) if row["seed"] == 3]
    assert len(rows) == 3
    for row, written in zip(sorted(rows, key=lambda row: str(row["point"])), PROTOCOLS, strict=True):
        alone = run(resolve_scenario(file, written, {}), 3)
        assert alone.fingerprint == row["fingerprint"]
        assert all(alone.metrics[metric] == row[metric] for metric in COMPARED_METRICS)


@pytest.mark.parametrize(("width", "tables"), [(160, 1), (95, 2), (66, 3)])
def test_the_tables_show_every_protocol_and_metric(compared: Comparison, width: int, tables: int) -> None:
    console = Console(file=io.StringIO(), width=width, record=True)
    shown = compared.tables(width)
    assert len(shown) == tables
    for table in shown:
        console.print(table)
    text = console.export_text()
    for metric in COMPARED_METRICS:
        assert text.count(metric_label(metric)) >= tables, "names of metrics are not cut off"
    for protocol in compared.protocols:
        assert protocol in text
    assert text.count("±") + text.count(" to ") > len(COMPARED_METRICS)
    assert "discovery by" in text


def test_one_picture_one_table_and_the_report_are_left(compared: Comparison) -> None:
    out = compared.report.out
    assert compared.picture.read_bytes().startswith(b"\x89PNG")
    assert len((out / "compare.csv").read_text().splitlines()) == 1 + 3 * len(COMPARED_METRICS)
    assert (out / "index.html").exists()


def test_the_page_has_the_picture_the_sentences_and_the_paired_differences(compared: Comparison) -> None:
    out = compared.report.out
    assert compared.picture.read_bytes() == (out / "figures" / "compare-overview.png").read_bytes()
    page = (out / "index.html").read_text()
    assert "Benefit and cost of each protocol" in page
    assert compared.sentences[1] in page
    table = page.split("Paired differences to flooding", 1)[1].split("</table>", 1)[0]
    assert table.count("<tr>") == 1 + 2, "a head, and a row for each protocol but the first"
    more = compared.differences["epidemic", "delivery_ratio"]
    assert f"+{mean_text(more)}" in re.sub("<[^>]+>", "", table)
    rows = list(csv.DictReader((out / "tables" / "compare-differences.csv").open()))
    (row,) = [row for row in rows if (row["protocol"], row["metric"]) == ("epidemic", "delivery_ratio")]
    assert float(row["mean"]) == more.mean


def test_the_report_leads_to_a_page_that_plays_the_first_two(compared: Comparison) -> None:
    out = compared.report.out
    assert 'href="players/compare.html"' in (out / "index.html").read_text()
    told = (out / "players" / "compare.html").read_text()
    assert '"label":"flooding"' in told
    assert '"label":"gossip p=0.5"' in told
    assert '"label":"epidemic"' not in told


def test_what_is_too_large_or_fails_has_no_page_to_watch(tmp_path: Path) -> None:
    table = {**tomllib.loads(SCENARIO), "name": "field"}
    axis = Axis(name="protocol", values=["flooding", "epidemic"])

    def shown(**changed: object) -> str | None:
        definition = Definition(name="field", scenario={**table, **changed}, runs=1, axes=[axis])
        return render_player(expand_experiment(definition, tmp_path))

    assert shown() is not None
    assert shown(duration_s=1e6) is None
    assert shown(mobility={"model": "ns2", "file": "nowhere.ns_movements"}) is None


def test_the_result_can_be_printed_as_json(compared: Comparison) -> None:
    row = compared.as_row()
    assert row["runs"] == 12
    assert row["reference"] == "flooding"
    protocols = row["protocols"]
    assert isinstance(protocols, list)
    assert protocols[0]["difference"] is None
    assert set(protocols[2]["difference"]) == set(COMPARED_METRICS)
    assert protocols[2]["metrics"]["delivery_ratio"]["n"] == 4


@pytest.mark.parametrize(
    ("protocols", "told"),
    [
        ("floding", "protocol.name: there is no protocol 'floding': did you mean 'flooding'?"),
        ("gossip:q=1", "protocol: unknown key 'q'; allowed: "),
        ("gossip:p=7", "protocol.p: Expected `float` <= 1.0 (it is 7)"),
    ],
)
def test_a_wrong_protocol_is_told_before_anything_starts(tmp_path: Path, protocols: str, told: str) -> None:
    path = tmp_path / "field.toml"
    path.write_text(SCENARIO)
    with pytest.raises(UserError) as error:
        compare(path, parse_protocols(protocols), tmp_path / "out")
    assert told in str(error.value)
    assert str(error.value).startswith(str(path))
    assert not (tmp_path / "out").exists()


def test_protocols_with_and_without_routers_are_compared_on_one_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "field.toml"
    path.write_text(SCENARIO.replace('"true"', "\"topic = 'a'\"").replace("20 }", "20, attributes = { topic = 'a' } }"))
    protocols = parse_protocols("flooding,topic_holder/broker_aodv,topic_holder/rendezvous_gpsr:router=gpsr/ns2")
    found = compare(path, protocols, tmp_path / "out", runs=1, quiet=True)
    assert found.protocols[2] == "topic_holder/rendezvous_gpsr router=gpsr/ns2"
    beacons = [found.means[protocol, "discovery_bytes"].mean for protocol in found.protocols]
    assert beacons[0] is not None
    assert beacons[0] > 0
    assert beacons[1:] == [0, 0], "their routers find neighbors by themselves"
    assert all(found.means[protocol, "delivery_ratio"].mean for protocol in found.protocols)


def test_the_names_of_the_one_are_understood(compared: Comparison) -> None:
    mine = {(row["protocol"], row["metric"]): row for row in compared.rows()}
    ones = {(row["protocol"], row["metric"]): row for row in compared.one_rows()}
    records = [record for record in read_runs(compared.report.out) if record["delivered"]]
    for protocol in compared.protocols:
        for one, own in (("delivery_prob", "delivery_ratio"), ("latency_med", "delay_p50_s"), ("relayed", "forwards")):
            assert {**ones[protocol, one], "metric": own} == mine[protocol, own]
        counts = [
            (float(str(record["forwards"])), float(str(record["delivered"])))
            for record in records
            if record["point"] == protocol
        ]
        ratios = [(forwards - delivered) / delivered for forwards, delivered in counts]
        assert ratios
        assert ones[protocol, "overhead_ratio"]["mean"] == pytest.approx(sum(ratios) / len(ratios))
