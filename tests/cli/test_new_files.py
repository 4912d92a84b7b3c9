"""`new scenario` and `new experiment`: files that work as they are."""

from pathlib import Path

import pytest

from carrycast.analysis.spark.experiment import load_experiment
from tests.cli.console import call


def test_a_new_scenario_runs_as_it_is(tmp_path: Path) -> None:
    done = call("new", "scenario", "night_bus", "--dir", tmp_path / "new")
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
    done = call("new", "experiment", "night_bus", "--dir", tmp_path)
    assert (done.status, done.err) == (0, "")
    path = tmp_path / "night_bus" / "experiment.toml"
    assert f"carrycast reproduce {path} --quick --out out/night_bus" in done.out
    found = load_experiment(str(path), quick=True)
    assert found.name == "night_bus"
    assert len(found.points) == 4
    assert found.seeds == [1, 2, 3]


@pytest.mark.parametrize("kind", ["scenario", "experiment"])
def test_what_is_there_already_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    call("new", kind, "night_bus", "--dir", tmp_path)
    (file, *_) = [path for path in tmp_path.rglob("*.toml") if path.stem in ("night_bus", "experiment")]
    file.write_text("precious")
    assert f"{file}: exists already" in call("new", kind, "night_bus", "--dir", tmp_path).refusal()
    assert file.read_text() == "precious"


@pytest.mark.parametrize("kind", ["scenario", "experiment"])
def test_a_bad_name_is_refused(tmp_path: Path, kind: str) -> None:
    assert "as in night_bus" in call("new", kind, "../up", "--dir", tmp_path).refusal()
    assert list(tmp_path.iterdir()) == []
