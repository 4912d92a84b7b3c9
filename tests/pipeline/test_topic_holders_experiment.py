"""The experiments of the topic-holder paper: what they run, and what their claims make of given numbers."""

import json
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.definition import Figure
from carrycast.analysis.spark.experiment import Experiment, Point, experiment_names, load_experiment
from carrycast.analysis.spark.records import Record, metric_columns
from carrycast.analysis.spark.reproduction import reproduce_experiments
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.validation import check_definition
from carrycast.core.maps import read_map, share_beyond
from carrycast.core.model import Area, Position
from carrycast.errors import UserError
from carrycast.protocols.topic_holder.rules import home_place, topic_key
from carrycast.sim.radio.dot11 import CsmaRadio
from tests.pipeline.spread import spread

SIX = tuple(f"{mode}-{kind}" for mode in "RB" for kind in ("AODV", "GPSR (no map)", "GPSR (with map)"))
SPEEDS = {"highway": ["10", "20", "30", "40", "50", "60"], "city": ["1", "5", "10", "15", "20"]}
TABLE_1 = {"highway": (2, 1, 9, 512), "city": (6, 2, 5, 1024)}
K_M = 125.0
WITHOUT_K = ("R-GPSR (with map), K = 0", "B-GPSR (with map), K = 0")


def results_of(experiment: Experiment, **metrics: dict[str, float]) -> Results:
    """Results in which each point has the given number of its name, or 1, give or take a little noise by seed."""
    records: list[Record] = []
    for point in experiment.points:
        for seed in experiment.seeds:
            record: Record = {"experiment": experiment.name, "point": point.name, "seed": seed, "error": None}
            found = {
                metric: spread(of.get(point.name, 1.0), metric, point.name, seed) for metric, of in metrics.items()
            }
            records.append({**record, **metric_columns(found)})
    return Results(experiment, records, Path())


def everywhere(experiment: Experiment, of: dict[str, float]) -> dict[str, float]:
    """A number for each scheme, the same at all its points."""
    return {point.name: of[point.labels["scheme"]] for point in experiment.points if point.labels["scheme"] in of}


def verdicts(claims: list[Claim], setting: str) -> dict[str, bool | None]:
    return {
        claim.statement.removeprefix(f"{setting}: "): claim.holds
        for claim in claims
        if claim.statement.startswith(f"{setting}: ")
    }


@pytest.fixture(scope="module")
def holders() -> Experiment:
    return load_experiment("003")


@pytest.fixture(scope="module")
def few() -> Experiment:
    """With six seeds: so many decide of a share that is one in all of them that it is more than half."""
    return load_experiment("003", runs=6)


@pytest.fixture(scope="module")
def sensitivity() -> Experiment:
    return load_experiment("topic-holders-sensitivity")


def test_six_schemes_run_at_every_speed_of_both_settings(holders: Experiment) -> None:
    assert holders.name == "topic-holders"
    assert holders.seeds == list(range(1, 11))
    for setting, speeds in SPEEDS.items():
        for scheme in (*SIX, "extended"):
            there = [point.labels["speed"] for point in _chosen(holders, setting, scheme)]
            assert sorted(there, key=float) == speeds, (setting, scheme)
    assert sum(point.labels["scheme"] in SIX for point in holders.points) == 66


def test_the_settings_are_table_1(holders: Experiment) -> None:
    for setting, (topics, publishers, subscribers, size_bytes) in TABLE_1.items():
        for point in (point for point in holders.points if point.labels["setting"] == setting):
            scenario = point.scenario
            assert (scenario.nodes, scenario.duration_s) == (60, 900.0)
            assert [len(entry.nodes) for entry in scenario.subscribe if isinstance(entry.nodes, list)] == [
                subscribers
            ] * topics
            assert [len(entry.nodes) for entry in scenario.publish if isinstance(entry.nodes, list)] == [
                publishers
            ] * topics
            assert {(entry.every_s, entry.payload_bytes) for entry in scenario.publish} == {(10.0, size_bytes)}
            assert scenario.mobility is not None
            assert scenario.mobility["speed_max_mps"] == float(point.labels["speed"])
            assert isinstance(scenario.radio_model(), CsmaRadio)
            assert scenario.radio["preset"] == "ns2"
    entries = [entry.nodes for entry in scenario.subscribe] + [entry.nodes for entry in scenario.publish]
    everyone = [node for nodes in entries for node in _listed(nodes)]
    assert len(set(everyone)) == len(everyone), "nobody is both, or either twice"


def test_every_scheme_is_the_variant_that_it_is_called(holders: Experiment) -> None:
    for point in holders.points:
        scheme, protocol = point.labels["scheme"], point.scenario.protocol
        mode = "rendezvous" if scheme.startswith("R") else "broker"
        holder = "aodv" if "AODV" in scheme else "gpsr" if "no map" in scheme else "gpsr_map"
        assert protocol["variant"] == f"{mode}_{holder}"
        assert protocol.get("capture_m", K_M) == (0.0 if "K = 0" in scheme else K_M)
        if scheme in SIX:
            assert protocol["router"] == ("aodv/ns2" if "AODV" in scheme else "gpsr/ns2")


def test_no_two_points_run_the_same(holders: Experiment, sensitivity: Experiment) -> None:
    for experiment in (holders, sensitivity):
        settings = [msgspec.json.encode(point.scenario, order="deterministic") for point in experiment.points]
        assert len(set(settings)) == len(settings)


def test_the_places_on_the_maps_are_where_the_protocol_has_them(holders: Experiment, sensitivity: Experiment) -> None:
    for experiment in (holders, sensitivity):
        (figure,) = [figure for figure in experiment.definition.figures if figure.kind == "map"]
        for panel, places in figure.places.items():
            (point, *_) = [point for point in experiment.points if panel in point.labels.values()]
            topics = {str(entry.attributes["topic"]) for entry in point.scenario.publish}
            assert topics == set(places)
            for topic, place in places.items():
                found = home_place(topic_key(topic), 0, Area(1000.0, 1000.0))
                assert place == pytest.approx(found, abs=0.06)


def test_maps_are_drawn_with_what_lies_far_from_their_roads(holders: Experiment, sensitivity: Experiment) -> None:
    (figure,) = [figure for figure in holders.definition.figures if figure.kind == "map"]
    drawn = draw_figure(figure, results_of(holders))
    assert drawn is not None
    rows = {(row["panel"], row["name"]): row for row in drawn.rows}
    assert rows["highway", "highway"]["share_beyond"] == pytest.approx(share_beyond(read_map("highway"), K_M), abs=0.01)
    away_m = {name: row["away_m"] for (panel, name), row in rows.items() if panel == "highway" and "away_m" in row}
    assert away_m == {"topic-1": pytest.approx(31, abs=1), "topic-2": pytest.approx(315, abs=1)}
    for point in sensitivity.points:
        if point.matches({"setting": "voids", "scheme": "B-GPSR (with map)"}):
            model = point.scenario.mobility_model()
            assert model is not None
            roads = model.road_map()
            assert roads is not None
            share = share_beyond(roads, K_M)
            assert f"{share:.0%}".replace("%", " %") == point.labels["change"]


def test_a_box_plot_shows_the_labels_that_its_figure_names_and_no_others(few: Experiment) -> None:
    (figure,) = [figure for figure in few.definition.figures if figure.name == "highway-classes"]
    drawn = draw_figure(figure, results_of(few, **{metric: {} for metric in figure.metrics}))
    assert drawn is not None
    assert {row["scheme"] for row in drawn.rows} == {*SIX, "extended"}, "none without K"


def test_a_map_of_nodes_that_move_on_no_roads_is_refused() -> None:
    adaptive = load_experiment("adaptive", quick=True)
    with pytest.raises(UserError, match="move on no roads"):
        draw_figure(Figure(name="roads", kind="map"), results_of(adaptive))


def test_places_of_a_panel_that_there_is_not_are_refused(holders: Experiment) -> None:
    figure = Figure(name="roads", kind="map", panels="setting", places={"village": {"here": (1.0, 2.0)}})
    with pytest.raises(UserError, match=r"figures\[0\].places: 'village' is none of highway, city"):
        check_definition(msgspec.structs.replace(holders.definition, figures=[figure], headline=None), "it")


def test_topics_in_voids_and_on_roads_are(sensitivity: Experiment) -> None:
    roads, area = read_map("highway"), Area(1000.0, 1000.0)
    for change, far in (("in voids", [True, True]), ("on roads", [False, False]), ("base", [False, True])):
        (point, *_) = [point for point in sensitivity.points if point.labels["change"] == change]
        topics = [str(entry.attributes["topic"]) for entry in point.scenario.publish]
        assert [entry.filter for entry in point.scenario.subscribe] == [f"topic = '{topic}'" for topic in topics]
        places: list[Position] = [home_place(topic_key(topic), 0, area) for topic in topics]
        assert [roads.distance_m(place) > K_M for place in places] == far


def test_quick_is_small_and_still_draws_every_figure() -> None:
    for name, runs in (("topic-holders", 110), ("topic-holders-sensitivity", 105)):
        quick = load_experiment(name, quick=True)
        assert len(quick.points) * len(quick.seeds) <= runs
        assert all(point.scenario.duration_s <= 60 for point in quick.points)
        for figure in quick.definition.figures:
            assert any(point.matches(figure.where) for point in quick.points), figure.name
    assert len(load_experiment("topic-holders/schemes", quick=True).points) == 7, "the headline of the tour"


def test_every_claim_finds_its_points(few: Experiment, sensitivity: Experiment) -> None:
    for experiment in (few, sensitivity):
        claims = evaluate_claims(results_of(experiment, **{metric: {} for metric in experiment.metrics}))
        figures = {figure.name for figure in experiment.definition.figures}
        assert {claim.figure for claim in claims} <= figures
        # Where everything is equal nothing stands out of which beacons could be a share.
        assert [
            claim.statement for claim in claims if claim.ours is None and "beacons are" not in claim.statement
        ] == []
        assert len({claim.statement for claim in claims}) == len(claims)


def as_the_paper_has_it(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Numbers, by metric and point, with the orders that the paper tells."""
    of = {
        "delivery_ratio": (0.8, 0.3, 0.9, 0.82, 0.35, 0.95, 0.96),
        "delay_mean_s": (0.1, 2.0, 0.5, 0.1, 2.0, 0.2, 0.2),
        "routing_bytes_per_node_s": (200.0, 900.0, 700.0, 150.0, 800.0, 600.0, 300.0),
        "beacon_bytes_per_node_s": (0.0, 450.0, 450.0, 0.0, 450.0, 450.0, 100.0),
    }
    found = {
        metric: everywhere(experiment, dict(zip((*SIX, "extended"), values, strict=True)))
        for metric, values in of.items()
    }
    found["delivery_ratio"] |= everywhere(experiment, dict.fromkeys(WITHOUT_K, 0.5))
    for setting, speeds in SPEEDS.items():
        for scheme in ("R-GPSR (no map)", "R-GPSR (with map)"):
            fastest = _one(experiment, setting, scheme, speeds[-1]).name
            found["delivery_ratio"][fastest] -= 0.1
            found["delay_mean_s"][fastest] += 1.0
    return {**found, "published": {}, "events_reached": {}}


def test_what_the_paper_says_holds_if_so_it_is(few: Experiment) -> None:
    claims = evaluate_claims(results_of(few, **as_the_paper_has_it(few)))
    for setting in SPEEDS:
        found = verdicts(claims, setting)
        # Section 3.2.2 expects what section 5 denies.
        denied = {text for text in found if text.startswith("rendezvous tends to")}
        assert {text: found[text] for text in denied} == dict.fromkeys(denied, False)
        assert len(denied) == 2
        assert {text for text in found if found[text] is not True} == denied


@pytest.mark.parametrize(
    ("metric", "scheme", "value", "fails"),
    [
        ("delivery_ratio", "R-AODV", 0.1, "geographic without map delivers least of all"),
        ("delivery_ratio", "R-AODV", 0.1, "AODV delivers more than geographic without map, in both modes"),
        ("delivery_ratio", "B-GPSR (with map)", 0.45, "with map far above without (0.2 or more), in both modes"),
        ("delivery_ratio", "B-GPSR (with map)", 0.3, "the map helps at every speed"),
        ("delivery_ratio", "R-AODV", 0.99, "broker with map is the best of the six at most speeds (share of them)"),
        ("delivery_ratio", "extended", 0.9, "extended delivers at least as much as broker with map"),
        ("delivery_ratio", "B-GPSR (with map), K = 0", 0.99, "with K more is delivered, in both modes"),
        ("delay_mean_s", "B-GPSR (no map)", 0.15, "geographic without map takes longest of all"),
        ("delay_mean_s", "B-AODV", 0.6, "at FAST m/s AODV takes less than 0.5 s"),
        ("delay_mean_s", "B-AODV", 0.6, "at FAST m/s AODV takes less time than geographic, in both modes"),
        ("delay_mean_s", "B-GPSR (with map)", 0.9, "broker with map takes the least time of the geographic schemes"),
        (
            "routing_bytes_per_node_s",
            "B-GPSR (with map)",
            250,
            "geographic sends 2 times what AODV sends, or more (ratio)",
        ),
        ("routing_bytes_per_node_s", "R-AODV", 100, "broker sends less than rendezvous, with each router (ratio)"),
        ("routing_bytes_per_node_s", "extended", 700, "extended sends less than broker with map (ratio)"),
    ],
)
def test_each_claim_can_fail(few: Experiment, metric: str, scheme: str, value: float, fails: str) -> None:
    found = as_the_paper_has_it(few)
    found[metric] |= everywhere(few, {scheme: value})
    claims = evaluate_claims(results_of(few, **found))
    for setting, speeds in SPEEDS.items():
        assert verdicts(claims, setting)[fails.replace("FAST", speeds[-1])] is False


def test_the_share_of_beacons_in_a_difference(few: Experiment) -> None:
    load = everywhere(few, dict(zip(SIX, (100.0, 900.0, 300.0) * 2, strict=True)))
    beacons = everywhere(few, dict(zip(SIX, (0.0, 150.0, 150.0) * 2, strict=True)))
    claims = evaluate_claims(results_of(few, routing_bytes_per_node_s=load, beacon_bytes_per_node_s=beacons))
    found = {claim.statement: claim for claim in claims if "beacons are more than half" in claim.statement}
    for setting in SPEEDS:
        text = f"{setting}: beacons are more than half of what geographic WORD map sends more than AODV (share)"
        with_map, without = found[text.replace("WORD", "with")], found[text.replace("WORD", "without")]
        assert with_map.ours == pytest.approx(0.75, abs=1e-3)
        assert with_map.holds is True
        assert without.ours == pytest.approx(150 / 800, abs=1e-3)
        assert without.holds is False


def test_events_that_reach_some_of_their_subscribers_alone_are_told(few: Experiment) -> None:
    """Half of all pairs in either case: half of the events to everybody, or all events to half of their subscribers."""
    delivery = {point.name: 0.5 for point in few.points}
    reached = {point.name: 1.0 if "K = 0" in point.labels["scheme"] else 0.5 for point in few.points}
    claims = evaluate_claims(results_of(few, delivery_ratio=delivery, events_reached=reached, published={}))
    for setting in SPEEDS:
        (whole,) = [claim for claim in claims if claim.statement.startswith(f"{setting}: without K events reach fewer")]
        assert whole.ours == pytest.approx(0.5, abs=1e-3)
        assert whole.holds is True


def test_sensitivity_holds_changes_against_the_base(sensitivity: Experiment) -> None:
    load = {point.name: 300.0 if "GPSR" in point.labels["scheme"] else 100.0 for point in sensitivity.points}
    load |= {
        point.name: 1200.0 if "GPSR" in point.labels["scheme"] else 600.0
        for point in sensitivity.points
        if point.labels["change"] == "load x 4"
    }
    load |= {
        point.name: 4000.0 if "GPSR" in point.labels["scheme"] else 1000.0
        for point in sensitivity.points
        if point.labels["change"] == "load x 20"
    }
    delivery = {point.name: 0.4 if "no map" in point.labels["scheme"] else 0.9 for point in sensitivity.points}
    delivery |= {point.name: 0.8 for point in sensitivity.points if point.labels["change"] in ("4 %", "K = 0")}
    claims = {
        claim.statement: claim
        for claim in evaluate_claims(results_of(sensitivity, routing_bytes_per_node_s=load, delivery_ratio=delivery))
    }
    text = "load x 4, broker: GPSR with map sends fewer times what AODV sends than at the base (ratio of ratios)"
    assert claims[text].ours == pytest.approx(2 / 3, abs=1e-3)
    assert claims[text].holds is True
    assert claims[text.replace("x 4", "x 20")].holds is False
    assert claims["42 % of the map in voids, broker: with map far above without (0.2 or more)"].holds is True
    assert claims["4 % of the map in voids, broker: with map far above without (0.2 or more)"].holds is False
    assert claims["broker: K = 0 delivers less than half the range, 125 m"].holds is True
    assert claims["broker: K = 250 m delivers less than half the range, 125 m"].holds is not True


def test_a_small_point_runs_and_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    whole = load_experiment("topic-holders", quick=True, runs=1)
    point = _one(whole, "highway", "B-GPSR (with map)", "20")
    short = msgspec.structs.replace(point.scenario, duration_s=15.0)
    tiny = Experiment(whole.definition, [msgspec.structs.replace(point, scenario=short)], whole.seeds, whole.hook)
    report = reproduce_experiments([tiny], tmp_path, spark, quiet=True)
    assert (report.runs, report.failed) == (1, 0)
    (row,) = json.loads((tmp_path / "claims.json").read_text())[:1]
    assert row["holds"] is None, "one run decides nothing"
    assert (tmp_path / "figures" / "topic-holders-maps.png").stat().st_size > 10_000
    means = (tmp_path / "tables" / "topic-holders-means.csv").read_text()
    assert "beacon_bytes_per_node_s" in means


def test_an_experiment_goes_by_the_name_in_its_file() -> None:
    assert {"topic-holders", "topic-holders-sensitivity", "asp"} <= set(experiment_names())
    assert "topic_holders" not in experiment_names()
    with pytest.raises(UserError, match="did you mean 'topic-holders'"):
        load_experiment("topic_holders")


def _chosen(experiment: Experiment, setting: str, scheme: str) -> list[Point]:
    return [point for point in experiment.points if point.matches({"setting": setting, "scheme": scheme})]


def _one(experiment: Experiment, setting: str, scheme: str, speed: str) -> Point:
    (found,) = [point for point in _chosen(experiment, setting, scheme) if point.labels["speed"] == speed]
    return found


def _listed(nodes: object) -> list[int]:
    assert isinstance(nodes, list)
    return nodes
