"""`new protocol`: one folder that is found by its name, runs, and passes its own test."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.console import QUICK, call, environment, spawn
from tests.patience import PATIENCE_S


def test_a_new_protocol_runs_by_name_and_passes_its_test(tmp_path: Path) -> None:
    done = call("new", "protocol", "fleet_cast", "--out", tmp_path)
    folder = tmp_path / "carrycast" / "protocols" / "fleet_cast"
    assert (done.status, done.err) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "__init__.py",
        "protocol.py",
        "test_fleet_cast.py",
    ]
    assert not [path for path in folder.iterdir() if "@" in path.read_text()], "every blank of the template is filled"
    env = environment(tmp_path)
    found = spawn("run", QUICK, "--protocol", "fleet_cast:seen_s=30", "--json", env=env).object()
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert found["protocol"] == "fleet_cast"
    assert metrics["delivered"] > 0
    assert spawn("protocols", "fleet_cast", env=env).out.startswith("fleet_cast: ")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


def test_it_says_how_to_run_and_test_it(tmp_path: Path) -> None:
    told = call("new", "protocol", "fleet_cast", "--out", tmp_path).out.splitlines()
    folder = tmp_path / "carrycast" / "protocols" / "fleet_cast"
    assert told == [
        f"made {folder}",
        f"run it:  PYTHONPATH={tmp_path} carrycast run examples/quick.toml --protocol fleet_cast",
        f"test it: PYTHONPATH={tmp_path} python -m pytest {folder}",
    ], "commands to copy stand on one line each"


def test_without_a_folder_it_goes_below_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", "protocol", "fleet_cast").status == 0
    assert (tmp_path / "carrycast" / "protocols" / "fleet_cast" / "protocol.py").is_file()


def test_in_a_checkout_it_goes_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "carrycast" / "protocols").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    done = call("new", "protocol", "fleet_cast")
    assert (tmp_path / "src" / "carrycast" / "protocols" / "fleet_cast" / "protocol.py").is_file()
    assert "PYTHONPATH" not in done.out


@pytest.mark.parametrize(
    "name", ["", "Fleet", "fleet-cast", "2fast", "fleet.cast", "../fleet", "class", "_fleet", "a" * 60, "flotte_é"]
)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    line = call("new", "protocol", "--out", tmp_path, "--", name).refusal()
    assert "lower-case letters, digits and underscores, as in fleet_cast" in line
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    assert "there is a protocol 'flooding' already" in call("new", "protocol", "flooding", "--out", tmp_path).refusal()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "carrycast" / "protocols" / "fleet_cast"
    folder.mkdir(parents=True)
    assert f"{folder}: exists already" in call("new", "protocol", "fleet_cast", "--out", tmp_path).refusal()
    assert list(folder.iterdir()) == []


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / "file") in call("new", "protocol", "fleet_cast", "--out", tmp_path / "file").refusal()
