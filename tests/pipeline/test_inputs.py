"""A changed input gives new results: keys and caches stand for the content of every file that a scenario names."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.sweep import run_sweep
from carrycast.core import maps
from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.mobility.model import movement_models
from carrycast.sim.mobility.movement_file import MovementFormat
from carrycast.sim.scenario.inputs import input_digest, input_files
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.trace import Level
from tests.patience import PATIENCE_S
from tests.pipeline.deaths import Counting

MEETING = "0.0 CONN 0 1 up\n50.0 CONN 0 1 down\n"
STRANGERS = "0.0 CONN 0 2 up\n50.0 CONN 0 2 down\n"
NS2 = "\n".join(
    f"$node_({node}) set {axis}_ {value}" for node in (0, 1) for axis, value in (("X", 10.0 * node), ("Y", 0), ("Z", 0))
)
ONE = "0 10 0 100 0 100\n0 a 1 1\n0 b 2 2\n10 a 1 1\n10 b 2 2\n"
SUMO = """<fcd-export>
<timestep time="0"><vehicle id="a" x="1" y="1"/><vehicle id="b" x="2" y="2"/></timestep>
<timestep time="40"><vehicle id="a" x="1" y="1"/><vehicle id="b" x="2" y="2"/></timestep>
</fcd-export>
"""
MAP = (Path(maps.__file__).parent / "shipped" / "highway.toml").read_text()
ROADS = {"model": "freeway", "map": "roads.toml", "speed_min_mps": 10.0, "speed_max_mps": 20.0}
PROCESSOR = "def double(event):\n    return {'n': 2}\n"
BASE: dict[str, object] = {
    "duration_s": 40.0,
    "nodes": 2,
    "protocol": {"name": "flooding"},
    "radio": {"model": "disk", "range_m": 50.0},
    "subscribe": [{"nodes": [1]}],
    "publish": [{"nodes": [0], "count": 3, "to_s": 30.0}],
}
MIXED = {"model": "mixed", "positions": [[0.0, 0.0]], "rest": {"model": "one", "file": "moves.txt"}}
WITH_PROCESSOR: dict[str, object] = {
    "mobility": {"model": "line", "spacing_m": 10.0},
    "protocol": {"name": "processor_flooding"},
    "processors": [{"id": "double", "function": "double.py:double", "nodes": [1]}],
}
SCENARIOS: dict[str, tuple[dict[str, object], list[str]]] = {
    "contacts": ({"contacts": "conn.txt"}, ["conn.txt"]),
    "ns-2 movement": ({"mobility": {"model": "ns2", "file": "walk.tcl"}}, ["walk.tcl"]),
    "ONE movement": ({"mobility": {"model": "one", "file": "moves.txt"}}, ["moves.txt"]),
    "a table of movement": ({"mobility": {"model": "csv", "file": "walk.csv"}}, ["walk.csv"]),
    "SUMO movement": ({"mobility": {"model": "sumo", "file": "fcd.xml"}}, ["fcd.xml"]),
    "BonnMotion movement": ({"mobility": {"model": "bonnmotion", "file": "walk.movements"}}, ["walk.movements"]),
    "a map": ({"mobility": ROADS, "area_m": [1000.0, 1000.0]}, ["roads.toml"]),
    "movement within movement": ({"mobility": MIXED, "nodes": 3}, ["moves.txt"]),
    "a processor": (WITH_PROCESSOR, ["double.py"]),
    "no file": ({"mobility": {"model": "line", "spacing_m": 10.0}}, []),
}
FILES = {
    "walk.csv": "time_s,node,x_m,y_m\n0,a,0,0\n10,a,10,0\n0,b,5,0\n10,b,5,0\n",
    "conn.txt": MEETING,
    "walk.tcl": NS2 + "\n",
    "moves.txt": ONE,
    "double.py": PROCESSOR,
    "fcd.xml": SUMO,
    "walk.movements": "0 0 0 10 5 0\n0 0 0\n",
    "roads.toml": MAP,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def scenario(folder: Path, name: str) -> Scenario:
    return parse_scenario({**BASE, **SCENARIOS[name][0], "base": str(folder)}, name)


def experiment(folder: Path, **changes: object) -> Experiment:
    table = {**BASE, "nodes": 3, **changes}
    axis = Axis(name="protocol", values=["flooding", "epidemic"])
    return expand_experiment(Definition(name="replayed", scenario=table, runs=2, axes=[axis]), folder)


OPENED = """
import json, sys
from pathlib import Path
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario

opened = set()
folder = Path(sys.argv[1]).resolve()
scenario = parse_scenario({**json.loads(sys.argv[2]), "base": str(folder)}, "s")
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and folder in Path(arguments[0]).resolve().parents:
        opened.add(Path(arguments[0]).name)
sys.addaudithook(hook)
run(scenario, 1)
print(json.dumps(sorted(opened)))
"""


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_files_that_count_are_those_that_a_run_opens(folder: Path, name: str) -> None:
    changes, files = SCENARIOS[name]
    assert [path.name for path in input_files(scenario(folder, name))] == files
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(folder), json.dumps({**BASE, **changes})],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == files


def test_every_movement_that_is_played_from_a_file_is_among_these() -> None:
    tables = [changes.get("mobility") for changes, _ in SCENARIOS.values()]
    played = {name for name, kind in movement_models().items() if issubclass(kind, MovementFormat)}
    assert played <= {table["model"] for table in tables if isinstance(table, dict)}


@pytest.mark.parametrize("name", [name for name, (_, files) in SCENARIOS.items() if files])
def test_one_byte_changes_the_digest(folder: Path, name: str) -> None:
    before = input_digest(scenario(folder, name))
    path = folder / SCENARIOS[name][1][0]
    path.write_bytes(path.read_bytes() + b"#")
    assert input_digest(scenario(folder, name)) != before
    path.unlink()
    assert input_digest(scenario(folder, name)) not in (before, "")


def test_a_new_contact_file_counts_within_one_process(folder: Path) -> None:
    replayed = scenario(folder, "contacts")
    assert run(replayed, 1).metrics["delivery_ratio"] == 1.0
    # As long as the old one, and within the same second.
    (folder / "conn.txt").write_text(MEETING.replace("0.0 CONN 0 1 up\n50.0", "39.0 CONN 0 1 up\n50."))
    assert run(replayed, 1).metrics["delivery_ratio"] == 0.0


def test_a_new_function_counts_within_one_process(folder: Path) -> None:
    def made(outcome: RunResult) -> set[object]:
        return {row["attributes"] for row in outcome.trace.events().to_pylist() if row["derived_from"]}

    processing = scenario(folder, "a processor")
    assert made(run(processing, 1, Level.FULL)) == {'{"n": 2}'}
    (folder / "double.py").write_text(PROCESSOR.replace("2", "4"))
    assert made(run(processing, 1, Level.FULL)) == {'{"n": 4}'}


def test_a_sweep_into_the_same_folder_runs_again_what_a_new_file_concerns(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    memory, out = tmp_path / "memory", tmp_path / "out"
    memory.mkdir()
    replayed = experiment(folder, contacts="conn.txt")
    still = experiment(folder, mobility={"model": "line", "spacing_m": 10.0})
    other = Experiment(msgspec.structs.replace(still.definition, name="still"), still.points, still.seeds)
    first = run_sweep([replayed, other], out, spark, Counting(memory), quiet=True)
    assert [record["delivery_ratio"] for record in first] == [1.0] * 8
    for path in memory.iterdir():
        path.unlink()
    (folder / "conn.txt").write_text(STRANGERS)
    again = run_sweep([replayed, other], out, spark, Counting(memory), quiet=True)
    assert [record["delivery_ratio"] for record in again] == [0.0] * 4 + [1.0] * 4
    assert sorted(path.name.rsplit("-", 1)[0] for path in memory.iterdir()) == [
        f"replayed-{point}-{seed}" for point in (0, 1) for seed in (1, 2)
    ]


class Changing:
    """Replaces a file while a sweep goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        self.path.write_text(STRANGERS)
        return run(scenario, seed, trace, trace_directory)


def test_a_file_that_changes_under_a_sweep_gives_no_result(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    replayed = experiment(folder, contacts="conn.txt")
    records = run_sweep([replayed], tmp_path / "out", spark, Changing(folder / "conn.txt"), quiet=True)
    assert {record["error"] for record in records} == {
        "a file that the scenario names is not what it was when the sweep began; start it again"
    }


def test_keys_differ_by_what_files_hold_and_not_by_when_they_were_written(folder: Path) -> None:
    replayed = experiment(folder, contacts="conn.txt")
    keys = [planned.key for planned in plan_runs(replayed)]
    (folder / "conn.txt").write_text(MEETING)
    assert [planned.key for planned in plan_runs(replayed)] == keys
    (folder / "conn.txt").write_text(STRANGERS)
    assert not set(keys) & {planned.key for planned in plan_runs(replayed)}


@pytest.mark.parametrize("what", [{"contacts": "conn.txt"}, WITH_PROCESSOR], ids=["contacts", "processor"])
def test_keys_do_not_tell_where_files_are(what: dict[str, object], folder: Path, tmp_path: Path) -> None:
    """So that one goes on where another stopped who has the same in another folder."""
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    keys = [[planned.key for planned in plan_runs(experiment(where, **what))] for where in (folder, moved)]
    assert keys[0] == keys[1]
    assert str(moved) in plan_runs(experiment(moved, **what))[0].scenario
