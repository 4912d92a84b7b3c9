"""Wait for the executors of a cluster, check them before the first run, and watch them while a job runs.

Spark itself waits forever for executors that never register or are lost. The time-outs here end such a job.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.spark.master import is_local_session
from carrycast.analysis.spark.spark_errors import failure_reason
from carrycast.errors import WorkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGISTRATION_TIMEOUT_S = 120.0
"""For the first executor to register. A machine that has to be started for it takes about as long."""
SETTLING_S = 2.0
"""After this time without a new executor the job starts. Waiting longer for late executors costs more than it gains."""
LOST_TIMEOUT_S = 60.0
"""A job without any executor is cancelled after this time. Lost executors are replaced within seconds, or never."""
POLL_S = 0.25
REQUIRED_PACKAGES = ("msgspec", "numpy", "pyarrow")
"""Packages that the Python of an executor must have. The driver sends carrycast itself."""


class WorkerState(NamedTuple):
    """The report of one Python worker about its installation."""

    host: str
    python: str
    missing: tuple[str, ...]
    error: str


def count_executors(spark: "SparkSession") -> int:
    """Return the number of registered executors."""
    # The memory status lists the driver too.
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def await_executors(spark: "SparkSession", master: str) -> None:
    """Wait until executors have registered, and check them; raise a WorkError that says what is missing."""
    began = settled = time.monotonic()
    known = 0
    while known == 0 or time.monotonic() - settled < SETTLING_S:
        there = count_executors(spark)
        if there != known:
            known, settled = there, time.monotonic()
        if known == 0 and time.monotonic() - began > REGISTRATION_TIMEOUT_S:
            raise WorkError(
                f"{master}: no executor came within {REGISTRATION_TIMEOUT_S:g} s; "
                "see whether it has cores and memory free "
                "(--conf spark.executor.memory=1g) and can reach this machine (--conf spark.driver.host=HOST)"
            )
        time.sleep(POLL_S)
    check_workers(_inspect_workers(spark), master)


def check_workers(found: Iterable[WorkerState], master: str) -> None:
    """Raise a WorkError if a worker cannot run carrycast."""
    for seen in found:
        if seen.missing:
            raise WorkError(
                f"{master}: the Python of its workers, {seen.python} on {seen.host}, has no {', '.join(seen.missing)}: "
                f"`{seen.python} -m pip install {' '.join(seen.missing)}` there, or name another with PYSPARK_PYTHON"
            )
        if seen.error:
            raise WorkError(f"{master}: carrycast does not work on {seen.host} with {seen.python}: {seen.error}")


def check_shared_paths(spark: "SparkSession", *paths: Path) -> None:
    """Raise a WorkError unless all executors see these paths."""
    context = spark.sparkContext
    if is_local_session(spark):
        return
    wanted = [str(path.resolve()) for path in paths]

    def find_missing(places: Iterable[int]) -> Iterator[str]:
        import os

        for _ in places:
            yield from (path for path in wanted if not os.path.exists(path))

    count = context.defaultParallelism
    for path in context.parallelize(range(count), count).mapPartitions(find_missing).collect():
        raise WorkError(
            f"{path}: the executors of {context.master} do not see it: give a folder that they share with this machine "
            "under the same name, or leave --master out"
        )


def _inspect_workers(spark: "SparkSession") -> list[WorkerState]:
    """Return the state of workers. There is one task per core, so that each executor is likely to get one."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    needed = REQUIRED_PACKAGES

    # Pickled by value and without references to carrycast, whose import is what this function tests.
    def inspect(places: Iterable[int]) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        import importlib.util
        import socket
        import sys

        for _ in places:
            missing = tuple(name for name in needed if importlib.util.find_spec(name) is None)
            error = ""
            if not missing:
                try:
                    importlib.import_module("carrycast.analysis.spark.sweep")
                except Exception as raised:
                    error = f"{type(raised).__name__}: {raised}"
            yield socket.gethostname(), sys.executable, missing, error

    context = spark.sparkContext
    count = context.defaultParallelism
    try:
        return [WorkerState(*one) for one in context.parallelize(range(count), count).mapPartitions(inspect).collect()]
    except (PySparkException, Py4JError) as error:
        raise WorkError(f"{context.master}: its workers cannot run Python: {failure_reason(error)}") from None


@contextmanager
def watch_executors(spark: "SparkSession") -> Iterator[threading.Event]:
    """Cancel the job that the body runs when all executors are lost. The event is set if that happened."""
    gone, over = threading.Event(), threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while not over.wait(POLL_S * 4):
            try:
                there = count_executors(spark)
            except Exception:
                # Spark has stopped, for example by order of its master, and the job with it.
                return
            if there:
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST_TIMEOUT_S:
                gone.set()
                spark.sparkContext.cancelAllJobs()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield gone
    finally:
        over.set()
        watcher.join()
