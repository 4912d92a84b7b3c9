"""The executors of a cluster: awaited, checked before the first run, and watched while a job runs.

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

ARRIVAL_S = 120.0
"""Until the first executor is there. A machine that is started for it takes about as long."""
SETTLING_S = 2.0
"""Executors of one cluster come within this time of each other, or later than it pays to wait."""
GONE_S = 60.0
"""A job without any executor is given up after this time: lost executors are replaced within seconds, or never."""
POLL_S = 0.25
NEEDED = ("msgspec", "numpy", "pyarrow")
"""What a worker must have of its own; carrycast comes from here."""


class WorkerState(NamedTuple):
    """What one worker reported about its Python."""

    host: str
    python: str
    missing: tuple[str, ...]
    error: str


def count_executors(spark: "SparkSession") -> int:
    """The number of registered executors."""
    # The driver counts as one of those that keep blocks.
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def await_executors(spark: "SparkSession", master: str) -> None:
    """Return when executors are there and can do the work; a WorkError says what they lack."""
    began = settled = time.monotonic()
    known = 0
    while known == 0 or time.monotonic() - settled < SETTLING_S:
        there = count_executors(spark)
        if there != known:
            known, settled = there, time.monotonic()
        if known == 0 and time.monotonic() - began > ARRIVAL_S:
            raise WorkError(
                f"{master}: no executor came within {ARRIVAL_S:g} s; see whether it has cores and memory free "
                "(--conf spark.executor.memory=1g) and can reach this machine (--conf spark.driver.host=HOST)"
            )
        time.sleep(POLL_S)
    check_workers(_inspect_workers(spark), master)


def check_workers(found: Iterable[WorkerState], master: str) -> None:
    """A WorkError if a worker cannot run what it is sent."""
    for seen in found:
        if seen.missing:
            raise WorkError(
                f"{master}: the Python of its workers, {seen.python} on {seen.host}, has no {', '.join(seen.missing)}: "
                f"`{seen.python} -m pip install {' '.join(seen.missing)}` there, or name another with PYSPARK_PYTHON"
            )
        if seen.error:
            raise WorkError(f"{master}: carrycast does not work on {seen.host} with {seen.python}: {seen.error}")


def check_shared_paths(spark: "SparkSession", *paths: Path) -> None:
    """A WorkError unless the executors see what is read or written by its path, on a cluster as on this machine."""
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
    """What workers say of themselves: as many tasks as there are cores, so that each executor is likely to be asked."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    needed = NEEDED

    # Sent by value, without a name of carrycast's in it: to import that is what is tried.
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
    """While the body runs a job: cancel it when all executors are lost. The event is set if that happened."""
    gone, over = threading.Event(), threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while not over.wait(POLL_S * 4):
            try:
                there = count_executors(spark)
            except Exception:
                # Spark has stopped, as it does on command of its master: the job has ended too.
                return
            if there:
                seen = time.monotonic()
            elif time.monotonic() - seen > GONE_S:
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
