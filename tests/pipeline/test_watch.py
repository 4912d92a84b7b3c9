"""Every report links to a page that plays its runs, or that says how to make it."""

import tomllib
from pathlib import Path

import pytest

from carrycast.analysis.spark import reproduction, sweep
from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.player_pages import choose_points, find_player, make_players
from carrycast.analysis.spark.records import Record
from tests.cli.console import call

SCENARIO = """
name = "field"
duration_s = 20.0
nodes = 5
area_m = [300.0, 300.0]
mobility = { model = "random_waypoint", speed_min_mps = 5.0, speed_max_mps = 15.0 }
radio = { model = "disk", range_m = 150.0 }
subscribe = [{ filter = "true" }]
publish = [{ count = 3, to_s = 10.0, payload_bytes = 20 }]
"""
PROTOCOLS = Axis(name="protocol", values=["flooding", "epidemic"])


def field(*axes: Axis) -> Experiment:
    return expand_experiment(Definition(name="field", scenario=tomllib.loads(SCENARIO), runs=1, axes=[*axes]), Path())


def test_beside_the_first_stands_what_moves_alike() -> None:
    def protocols(*axes: Axis) -> list[tuple[object, int]]:
        return [(point.scenario.protocol.get("p"), point.scenario.nodes) for point in choose_points(field(*axes))]

    nodes = Axis(name="nodes", values=[5, 7])
    values: list[object] = [{"name": "gossip", "p": 0.1}, {"name": "gossip", "p": 0.2}, "flooding"]
    gossip = Axis(name="protocol", values=values, labels=["a", "b", "c"])
    assert protocols(nodes, gossip) == protocols(gossip, nodes) == [(0.1, 5), (None, 5)]
    only = Axis(name="protocol", values=values[:2], labels=["a", "b"])
    assert protocols(only, nodes) == [(0.1, 5), (0.2, 5)]
    assert protocols(Axis(name="protocol", values=["flooding"]), nodes) == [(None, 5)]


def test_a_report_leads_to_its_runs_or_to_how_to_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, page = field(PROTOCOLS), tmp_path / "players" / "field.html"
    records: list[Record] = [
        {"experiment": "field", "point": name, "seed": 1, "key": f"of {name}", "cpu_s": 0.5, "error": None}
        for name in ("flooding", "epidemic")
    ]
    make_players([experiment], records, tmp_path)
    assert find_player("field", tmp_path) == "players/field.html"
    made = page.read_bytes()
    assert b'"label":"flooding"' in made
    assert b'"label":"epidemic"' in made
    begun_ns = page.stat().st_mtime_ns
    make_players([experiment], records, tmp_path)
    assert page.stat().st_mtime_ns == begun_ns, "it is of the same runs"
    # Runs that took longer: the page is made on request.
    records = [{**record, "cpu_s": 5.0, "key": "another"} for record in records]
    make_players([experiment], records, tmp_path)
    promised = page.read_text()
    assert f"carrycast show {tmp_path} --experiment field" in promised
    assert "about 30 s" in promised
    assert len(promised) < 2000
    reproduction._store([experiment], tmp_path)
    monkeypatch.setattr(sweep, "read_runs", lambda out: records)
    # The command makes the page, and it stays.
    assert call("show", tmp_path, "--experiment", "field", "--json").object()["page"] == str(page)
    make_players([experiment], records, tmp_path)
    assert page.read_bytes().startswith(made[:-100])
    assert "name one of field" in call("show", tmp_path, "--experiment", "other").refusal()
    assert "are no use" in call("show", tmp_path, "--seed", "3").refusal()
    # Failed or missing runs cannot be played.
    for spoiled in ([{**record, "error": "it broke", "key": "a third"} for record in records], records[:1]):
        make_players([experiment], spoiled, tmp_path)
        assert find_player("field", tmp_path) is None
