"""A sweep on a real cluster whose workers know nothing of carrycast and share no folder with the driver: an executor
and then a worker are killed, and the rows are those of a local sweep; all are killed, and what is home stays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from carrycast.core.model import Area
from carrycast.sim.contacts.exact import compute_contacts
from tests.cli.console import QUICK, call, environment, spawn
from tests.patience import PATIENCE_S
from tests.pipeline.scenarios import tiny
from tests.pipeline.standalone import kill, python_with, standalone, wait_for

pytestmark = pytest.mark.spark

EXPERIMENT = """
title = "away"
runs = 12
trace = "deliveries"

[scenario]
name = "away"
duration_s = 120.0
nodes = 25
contacts = "plan.parquet"
protocol = { name = "flooding" }
subscribe = [{ filter = "true" }]
publish = [{ count = 60, to_s = 90.0, payload_bytes = 40, lease_s = 60.0 }]

[[axes]]
name = "protocol"
values = ["flooding", "epidemic", "fleet_cast"]
"""

# The protocol imports a module of its user's own, which stands elsewhere on the search path.
DRIVER = """
import sys
import time
from pathlib import Path
import msgspec
import pyarrow as pa
from carrycast.errors import WorkError
from carrycast.analysis.spark.cluster import executors, remote_executor
from carrycast.analysis.spark.experiment import load_experiment
from carrycast.analysis.spark.journal import RunLog
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.spark_session import configure, parse_conf, session, stop_session
from carrycast.analysis.spark.sweep import make_worker, run_sweep
from carrycast.sim.engine.simulation import run

master, out = sys.argv[1], Path(sys.argv[2])
experiment = load_experiment("experiment.toml")
configure(parse_conf(["spark.executor.memory=512m", "spark.executor.cores=1"]))

class Slow:
    # On a quick machine too a sweep has a middle in which to kill.
    def __call__(self, scenario, seed, trace, trace_directory):
        time.sleep(0.3)
        return run(scenario, seed, trace, trace_directory)

def plain(rows):
    return sorted(({**row, "cpu_s": None, "engine": None} for row in rows), key=lambda row: row["key"])

def files(folder):
    return {str(path.relative_to(folder)) for path in (folder / "traces").rglob("*.parquet")}

send_files, plan = remote_executor.send_files, Path("plan.parquet")

def sent_and_hidden(*arguments):
    # The workers are on the same machine: what they were sent is not to be found where it was.
    names = send_files(*arguments)
    plan.rename("hidden")
    return names

remote_executor.send_files = sent_and_hidden
spark = session("away", master)
assert spark.sparkContext.defaultParallelism == 2, spark.sparkContext.defaultParallelism
print("there", flush=True)
rows = run_sweep([experiment], out / "first", spark, Slow(), quiet=True)
Path("hidden").rename(plan)
planned = [msgspec.structs.asdict(planned) for planned in plan_runs(experiment)]
work = make_worker(str(out / "here"), run)
here = pa.Table.from_batches(work(pa.Table.from_pylist(planned).to_batches())).to_pylist()
assert all(row["error"] is None for row in here), here
assert plain(rows) == plain(here)
assert files(out / "first") == files(out / "here") and len(files(out / "here")) == 3 * len(planned)
print("alike", flush=True)
executors.LOST_TIMEOUT_S = 3.0
try:
    run_sweep([experiment], out / "second", spark, Slow(), quiet=True)
except WorkError as error:
    print(error, flush=True)
kept = RunLog(out / "second" / "runs").open().to_pylist()
done = {row["key"]: row for row in plain(here)}
assert 0 < len(kept) < len(planned) and all(done[row["key"]] == row for row in plain(kept))
assert not (out / "second" / "runs.parquet").exists()
print(len(kept), flush=True)
stop_session()
"""


def home(out: Path) -> int:
    """How many runs have come home."""
    return sum(path.read_bytes().count(b"\n{") for path in (out / "runs").glob("*.journal"))


def made_experiment(folder: Path) -> None:
    """The experiment, the contacts it names, and its user's protocol with a module beside."""
    (folder / "experiment.toml").write_text(EXPERIMENT)
    model = tiny().mobility_model()
    assert model is not None
    moving = model.trajectories(25, Area(800.0, 800.0), 120.0, np.random.default_rng(1))
    compute_contacts(moving, 200.0, 120.0).save(folder / "plan.parquet")
    assert call("new", "protocol", "fleet_cast", "--out", folder).status == 0
    (folder / "mine.py").write_text("LEAST = 1\n")
    protocol = folder / "carrycast" / "protocols" / "fleet_cast" / "__init__.py"
    protocol.write_text(f"import mine\n{protocol.read_text()}\nassert mine.LEAST == 1\n")


@pytest.mark.timeout(3600)
def test_a_sweep_outlives_an_executor_and_a_worker_and_keeps_what_is_home(tmp_path: Path) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    made_experiment(folder)
    python = python_with(tmp_path / "python")
    tried = [str(python), "-c", "import msgspec, numpy, pyarrow, carrycast.version"]
    assert "No module named 'carrycast" in subprocess.run(tried, stderr=subprocess.PIPE, text=True, check=False).stderr
    out = tmp_path / "out"
    env = environment(folder, PYSPARK_PYTHON=str(python))
    with standalone(tmp_path / "cluster", workers=2) as cluster:
        with subprocess.Popen(
            [sys.executable, "-c", DRIVER, cluster.master, str(out)],
            env=env,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as driver:
            try:
                assert driver.stdout is not None
                assert driver.stderr is not None
                assert driver.stdout.readline() == "there\n", driver.stderr.read()
                wait_for("some runs", lambda: home(out / "first") >= 4)
                executor = cluster.executor_of(0)
                assert executor is not None
                kill(executor)
                wait_for("more runs", lambda: home(out / "first") >= 12)
                assert home(out / "first") < 36
                cluster.kill_worker(1)
                assert driver.stdout.readline() == "alike\n", driver.stderr.read()
                wait_for("some runs", lambda: home(out / "second") >= 4)
                cluster.kill_worker(0)
                told = driver.stdout.readline()
                kept = int(driver.stdout.readline() or driver.stderr.read())
                assert told.startswith(
                    f"{cluster.master}: all its executors are gone; {kept} of 36 runs are finished and kept in"
                )
                said = driver.stderr.read()
            finally:
                # Whatever failed, nobody waits for it.
                if sys.exc_info()[0] is not None:
                    driver.kill()
        assert driver.returncode == 0
        assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_cluster_whose_workers_lack_a_package_is_refused_in_one_line(tmp_path: Path) -> None:
    python = python_with(tmp_path / "python", ("numpy", "pyarrow"))
    env = environment(PYSPARK_PYTHON=str(python))
    with standalone(tmp_path / "cluster", workers=1) as cluster:
        options = ("--protocols", "flooding", "--runs", "1", "--out", str(tmp_path / "out"))
        conf = ("--master", cluster.master, "--conf", "spark.executor.memory=512m")
        found = spawn("compare", QUICK, *options, *conf, env=env, timeout_s=PATIENCE_S)
    refusal = found.refusal(1)
    assert refusal.startswith(f"carrycast: {cluster.master}: the Python of its workers, {python} on ")
    assert "has no msgspec: `" in refusal
    assert not (tmp_path / "out" / "runs.parquet").exists()
