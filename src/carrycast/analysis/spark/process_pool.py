"""Executes the runs of a small sweep in processes of this machine, for which starting Spark would take longer.

A worker is a Python process that executes the runs of one task and writes them into the task's journal, as a worker of
Spark does. A worker that crashes is replaced; a run that crashes every worker that tries it becomes a failed run.
"""

import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from carrycast.analysis.spark.journal import SUFFIX, TaskJournal, read_journal
from carrycast.analysis.spark.output import RUNS_FOLDER, report_full_disk
from carrycast.analysis.spark.plan import MAX_WORKER_CRASHES, PlannedRun, execute_once, partition_runs
from carrycast.analysis.spark.records import Record, record_table
from carrycast.errors import WorkError
from carrycast.sim.engine import run as simulate_run

if TYPE_CHECKING:
    import pyarrow as pa

WORKER_FAILED = 3
"""The exit status of a worker that ended with a message for the user."""


def run_in_processes(runs: Sequence[PlannedRun], out: Path, processes: int) -> "pa.Table":
    """Execute runs in as many processes at a time, and return their records."""
    tasks = deque(enumerate(partition_runs(runs, processes, remote=False)))
    attempts = dict.fromkeys(range(len(tasks)), 0)
    working: dict[subprocess.Popen[bytes], tuple[int, list[PlannedRun], IO[bytes]]] = {}
    try:
        while tasks or working:
            while tasks and len(working) < processes:
                number, part = tasks.popleft()
                attempts[number] += 1
                errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the worker has ended
                working[_start_worker(number, part, out, errors)] = number, part, errors
            ended = _await_one(list(working))
            number, part, errors = working.pop(ended)
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip()
            errors.close()
            if ended.returncode == WORKER_FAILED:
                raise WorkError(message)
            if ended.returncode != 0:
                if attempts[number] > MAX_WORKER_CRASHES:
                    raise WorkError(f"a worker process ended {attempts[number]} times: {message[-300:] or 'killed'}")
                tasks.append((number, part))
    finally:
        for process, (_, _, errors) in working.items():
            process.kill()
            process.wait()
            errors.close()
    return record_table(_read_records(runs, out))


def _start_worker(number: int, part: list[PlannedRun], out: Path, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    # A worker can import whatever this process can.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    script = "from carrycast.analysis.spark.process_pool import work; work()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(out.resolve()), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.msgpack.encode(part))
        process.stdin.close()
    except BrokenPipeError:
        # The worker has crashed already, which its exit status tells.
        pass
    return process


def _await_one(processes: "Sequence[subprocess.Popen[bytes]]") -> "subprocess.Popen[bytes]":
    """Wait until one of some processes has ended."""
    while True:
        for process in processes:
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            return process


def _read_records(runs: Sequence[PlannedRun], out: Path) -> list[Record]:
    """The records of the runs, from the journals of the workers."""
    wanted = {run.key for run in runs}
    found: dict[str, Record] = {}
    for path in sorted((out / RUNS_FOLDER).glob(f"*{SUFFIX}")):
        for record in read_journal(path) or ():
            if record["key"] in wanted:
                found[str(record["key"])] = record
    missing = wanted - set(found)
    if missing:
        raise WorkError(f"{len(missing)} runs left no record; start the sweep again to go on where it stopped")
    return [found[run.key] for run in runs]


def work() -> None:
    """Execute the runs of one task: the function of a worker process."""
    out, number = Path(sys.argv[1]), int(sys.argv[2])
    runs = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[PlannedRun])
    folder = out / RUNS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with report_full_disk(folder), TaskJournal(folder, number) as journal:
            for planned in runs:
                execute_once(planned, journal, out, simulate_run)
    except WorkError as error:
        print(error, file=sys.stderr)
        sys.exit(WORKER_FAILED)
    except KeyboardInterrupt:
        sys.exit(1)
