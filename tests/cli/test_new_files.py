"""`new scenario`, `workload`, `experiment` and `node`: files that work as they are."""

import re
from pathlib import Path

import pytest

from carrycast.analysis.advice.fleet import read_fleet
from carrycast.analysis.spark.experiment import load_experiment
from carrycast.node.config import load_config
from carrycast.sim.engine import run
from carrycast.sim.scenario import apply_overrides
from carrycast.trace import Level
from tests.cli.console import EXAMPLES, call

FLEET = EXAMPLES / "fleet"


def test_a_new_scenario_runs_as_it_is(tmp_path: Path) -> None:
    done = call("new", "scenario", "night_bus", "--out", tmp_path / "new")
    path = tmp_path / "new" / "night_bus.toml"
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"made {path}",
        f"run it:     carrycast run {path}",
        f"compare it: carrycast compare {path} --protocols flooding,epidemic",
    ]
    metrics = call("run", path, "--json").object()["metrics"]
    assert isinstance(metrics, dict)
    assert 0.5 < metrics["delivery_ratio"] <= 1


def test_a_new_experiment_can_be_run(tmp_path: Path) -> None:
    done = call("new", "experiment", "night_bus", "--out", tmp_path)
    assert (done.status, done.err) == (0, "")
    path = tmp_path / "night_bus" / "experiment.toml"
    assert f"carrycast reproduce {path} --quick --out out/night_bus" in done.out
    found = load_experiment(str(path), quick=True)
    assert found.name == "night_bus"
    assert len(found.points) == 4
    assert found.seeds == [1, 2, 3]


@pytest.mark.parametrize("kind", ["scenario", "workload", "experiment", "node"])
def test_what_is_there_already_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    call("new", kind, "night_bus", "--out", tmp_path)
    (file, *_) = [path for path in tmp_path.rglob("*.toml") if path.stem in ("night_bus", "experiment")]
    file.write_text("precious")
    assert f"{file}: exists already" in call("new", kind, "night_bus", "--out", tmp_path).refusal()
    assert file.read_text() == "precious"


@pytest.mark.parametrize("kind", ["scenario", "workload", "experiment", "node"])
def test_a_bad_name_is_refused(tmp_path: Path, kind: str) -> None:
    assert (
        f"as in {'car-1' if kind == 'node' else 'night_bus'}" in call("new", kind, "../up", "--out", tmp_path).refusal()
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recording", "nodes", "duration_s"), [("buses.csv", 5, 830.0), ("buses.ns_movements", 12, 651.88)]
)
def test_a_scenario_plays_recorded_movement(tmp_path: Path, recording: str, nodes: int, duration_s: float) -> None:
    done = call("new", "scenario", "mine", "--from", FLEET / recording, "--range", "150", "--out", tmp_path / "new")
    assert (done.status, done.err) == (0, "")
    found = call("check", tmp_path / "new" / "mine.toml", "--json").object()
    assert (found["nodes"], found["duration_s"], found["warnings"]) == (nodes, duration_s, [])
    text = (tmp_path / "new" / "mine.toml").read_text()
    assert "range_m = 150.0" in text
    assert "@" not in text
    metrics = call("run", tmp_path / "new" / "mine.toml", "--json").object()["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["delivered"] > 0


@pytest.mark.spark
def test_a_scenario_plays_a_fleet_and_its_contacts(tmp_path: Path) -> None:
    assert call("ingest", FLEET / "gps.csv", "--out", tmp_path / "buses").status == 0
    assert call("new", "scenario", "mine", "--from", tmp_path / "buses", "--out", tmp_path).status == 0
    assert '\nfolder = "buses"\n' in (tmp_path / "mine.toml").read_text()
    assert call("check", tmp_path / "mine.toml", "--json").object()["nodes"] == 24
    assert call("contacts", FLEET / "buses.csv", "--range", "250", "--out", tmp_path / "plan").status == 0
    for name, place in (("file", "plan/contacts.parquet"), ("folder", "plan")):
        assert call("new", "scenario", name, "--from", tmp_path / place, "--out", tmp_path).status == 0
        assert '\ncontacts = "plan/contacts.parquet"\n' in (tmp_path / f"{name}.toml").read_text()
        assert call("check", tmp_path / f"{name}.toml", "--json").object()["nodes"] == 5
    refused = call("new", "scenario", "other", "--from", tmp_path / "plan", "--range", "9", "--out", tmp_path)
    assert "whose range is fixed" in refused.refusal()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "no_such_file"], "there is no such file or folder"),
        (["--from", str(FLEET / "gps.csv")], "`carrycast ingest "),
        (["--from", str(FLEET / "buses.csv"), "--range", "-1"], "a distance above 0"),
        (["--range", "100"], "--range: goes with --from"),
    ],
)
def test_a_scenario_from_something_else_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    assert said in call("new", "scenario", "mine", *options, "--out", tmp_path / "new").refusal()
    assert not (tmp_path / "new").exists()


def test_a_new_workload_runs_on_a_fleet(tmp_path: Path) -> None:
    done = call("new", "workload", "reports", "--out", tmp_path)
    assert (done.status, done.err) == (0, "")
    scenario = read_fleet(FLEET / "buses.ns_movements", tmp_path / "reports.toml", 150.0)
    played = run(apply_overrides(scenario, {"protocol.name": "epidemic"}), 1, Level.METRICS).metrics
    assert played["delivered"]


def test_a_new_node_configuration_is_valid(tmp_path: Path) -> None:
    done = call("new", "node", "car-1", "--port", "7455", "--out", tmp_path)
    assert (done.status, done.err) == (0, "")
    config = load_config(tmp_path / "car-1.toml")
    assert (config.name, config.control) == ("car-1", tmp_path / "car-1.sock")
    assert f"carrycast node {tmp_path / 'car-1.toml'}" in done.out
    assert "from 1 to 65535" in call("new", "node", "car-2", "--port", "0", "--out", tmp_path).refusal()


def test_the_optional_tables_of_a_new_node_configuration_are_valid(tmp_path: Path) -> None:
    call("new", "node", "car-1", "--out", tmp_path)
    path = tmp_path / "car-1.toml"
    text = re.sub(r"^#(?=[\[a-z])", "", path.read_text(), flags=re.MULTILINE)
    # Keys need their files, which `carrycast keys` makes.
    path.write_text(text.partition("\n[keys]")[0])
    config = load_config(path)
    assert config.store == tmp_path / "car-1.db"
    assert config.metrics == ("127.0.0.1", 9464)
    assert config.position is not None
    assert [
        name for name in ("store", "trace", "metrics", "mqtt", "position", "keys") if f"\n[{name}]" not in text
    ] == []
