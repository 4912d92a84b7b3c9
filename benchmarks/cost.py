"""What a command costs with all that it starts: CPU seconds of the whole tree of processes, and the memory of the
largest of them.

Java and its Python workers may outlive whoever started them; here they fall to this process, which waits for them, so
that their seconds count as well (Linux).
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
LOOK_EVERY_S = 0.25


class Cost(NamedTuple):
    """Of one command."""

    said: str
    """Its standard output."""
    cpu_s: float
    wall_s: float
    peak_mb: dict[str, int]
    """The most memory that any one process of a program held, by the program: `java`, `python`."""

    @property
    def memory(self) -> str:
        """For a table."""
        return ", ".join(f"{program} {peak:,} MB" for program, peak in sorted(self.peak_mb.items()))


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command to its end; a RuntimeError if it fails. One at a time in a process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system cannot count the processes of others' children")
    began_s, cpu_s, ended = time.monotonic(), 0.0, threading.Event()
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended), daemon=True)
        watcher.start()
        assert process.stdout is not None
        said = process.stdout.read()
        while True:
            try:
                pid, status, used = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu_s += used.ru_utime + used.ru_stime
            if pid == process.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(said, cpu_s, time.monotonic() - began_s, peaks)


def module_cost(module: str, *arguments: str) -> Cost:
    """Of a module of Python, run as a program."""
    return cost_of([sys.executable, "-m", module, *arguments])


def _watch(pid: int, peaks: dict[str, int], ended: threading.Event) -> None:
    """Look at the tree now and then; the kernel keeps each process's own peak, so that little is missed."""
    while not ended.wait(LOOK_EVERY_S):
        for program, peak in largest_mb(pid).items():
            peaks[program] = max(peak, peaks.get(program, 0))


def largest_mb(pid: int) -> dict[str, int]:
    """Of the processes of a tree, by program, the most memory that one of them ever held: what is its own (`VmHWM`
    counts pages that forked workers share in each of them)."""
    found: dict[str, int] = {}
    for one in tree_of(pid):
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "VmHWM" in status:
            program = "java" if "java" in status["Name"] else "python" if "python" in status["Name"] else ""
            if program:
                found[program] = max(found.get(program, 0), int(status["VmHWM"].split()[0]) // 1024)
    return found


def tree_of(pid: int) -> Iterator[int]:
    """A process and everything below it."""
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        below = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in below:
        yield from tree_of(child)
