"""A Spark cluster of its own on loopback: a master, workers, and a Python for them that does not know carrycast."""

import os
import re
import signal
import subprocess
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyspark

from benchmarks.cost import children
from carrycast.analysis.spark.java import find_java, make_java_home
from tests.patience import PATIENCE_S

SPARK_HOME = Path(pyspark.__file__).parent
_SMALL = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def wait_for(told: str, condition: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
    """Return when it is true."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"not within {limit_s:g} s: {told}"
        time.sleep(0.05)


class Standalone:
    """The processes of a cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = make_java_home(folder, find_java())
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "master", "--port", "0")
        said = folder / "master.log"
        wait_for("a master", lambda: "elected leader" in said.read_text())
        found = re.search(r"Starting Spark master at (\S+)", said.read_text())
        assert found is not None
        self.master = found[1]

    def add_worker(self) -> None:
        """One with a core and a folder of its own."""
        name = f"worker-{len(self.workers)}"
        work = self._folder / name
        work.mkdir()
        options = ("--cores", "1", "--memory", "1g", "--port", "0", "--work-dir", str(work), self.master)
        self.workers.append(self._start("worker.Worker", name, *options))

    def await_workers(self) -> None:
        for number in range(len(self.workers)):
            said = self._folder / f"worker-{number}.log"
            wait_for("a worker", lambda said=said: "Successfully registered with master" in said.read_text())  # type: ignore[misc]

    def _start(self, kind: str, name: str, *options: str) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(self._home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # As the scripts that usually start these processes say.
            "SPARK_SCALA_VERSION": "2.13",
        }
        java = [str(self._home / "bin" / "java"), *_SMALL, "-Dspark.master.rest.enabled=false"]
        command = [*java, "-cp", f"{SPARK_HOME}/jars/*", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        with (self._folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen([*command, "--webui-port", "0", *options], env=environment, stderr=log)
        self._processes.append(started)
        return started

    def executor_of(self, worker: int) -> int | None:
        """The process of a worker's executor, if it has one."""
        below = children(self.workers[worker].pid)
        return below[0] if below else None

    def kill_worker(self, worker: int) -> None:
        """With kill -9, as a machine that loses power."""
        self.workers[worker].kill()
        self.workers[worker].wait()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """A cluster while the body runs."""
    folder.mkdir()
    cluster = Standalone(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        cluster.await_workers()
        yield cluster
    finally:
        cluster.stop()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def python_with(folder: Path, packages: Sequence[str] | None = None) -> Path:
    """A Python with the packages that are installed here, or some of them, but without what is run in place."""
    venv.create(folder, symlinks=True, with_pip=False)
    (library,) = folder.glob("lib/python*/site-packages")
    installed = Path(msgspec.__file__).parents[1]
    if packages is None:
        # Named in a file it is searched, and its own such files, which lead to carrycast, are not read.
        (library / "installed.pth").write_text(f"{installed}\n")
    for name in packages or ():
        for path in installed.glob(f"{name}*"):
            (library / path.name).symlink_to(path)
    return folder / "bin" / "python"
