"""What a command costs with all that it starts: CPU seconds of the whole tree of processes, and the memory of the
largest of them (Linux).

The tree is looked at ten times a second, and what each process was last seen to have used counts: of the end of each a
tenth of a second may be missed. Asking the kernel for the seconds of all that have ended would miss far more: Spark's
Python workers are children of a daemon that ignores their end, and then their seconds are told to nobody. Java and its
workers may outlive whoever started them; they fall to this process, so that they stay in sight.
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
LOOK_EVERY_S = 0.1


class Cost(NamedTuple):
    """Of one command."""

    said: str
    """Its standard output."""
    cpu_by: dict[str, float]
    """CPU seconds by program: `java`, `python`, and `other`."""
    wall_s: float
    peak_mb: dict[str, int]
    """The most memory that any one process of a program held, by the program: `java`, `python`."""

    @property
    def cpu_s(self) -> float:
        """Of all programs."""
        return sum(self.cpu_by.values())

    @property
    def memory(self) -> str:
        """For a table."""
        return ", ".join(f"{program} {peak:,} MB" for program, peak in sorted(self.peak_mb.items()))


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command to its end; a RuntimeError if it fails. One at a time in a process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system cannot count the processes of others' children")
    began_s, ended, seen = time.monotonic(), threading.Event(), Seen()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watcher = threading.Thread(target=_watch, args=(seen, ended), daemon=True)
        watcher.start()
        assert process.stdout is not None
        said = process.stdout.read()
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                break
            if pid == process.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(said, seen.cpu_by(), time.monotonic() - began_s, seen.peak_mb)


def module_cost(module: str, *arguments: str) -> Cost:
    """Of a module of Python, run as a program."""
    return cost_of([sys.executable, "-m", module, *arguments])


class Seen:
    """What the processes below this one were last seen to have used, those that have ended included."""

    def __init__(self) -> None:
        self._cpu_s: dict[tuple[int, str], tuple[str, float]] = {}
        """By process: its id, and when it began, since ids come again; its program, and the seconds."""
        self.peak_mb: dict[str, int] = {}
        """As `Cost` has it."""

    def look(self) -> None:
        """The kernel keeps each process's own peak (`VmHWM`, which counts pages that forked workers share in each of
        them), so that little of it is missed."""
        for pid in tree_of(os.getpid()):
            if pid == os.getpid():
                continue
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            except (FileNotFoundError, ProcessLookupError):
                continue
            program = next((name for name in ("java", "python") if name in status["Name"]), "other")
            self._cpu_s[pid, stat[19]] = program, (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            if program != "other" and "VmHWM" in status:
                peak_mb = int(status["VmHWM"].split()[0]) // 1024
                self.peak_mb[program] = max(self.peak_mb.get(program, 0), peak_mb)

    def cpu_by(self) -> dict[str, float]:
        """As `Cost` has it."""
        found: dict[str, float] = {}
        for program, cpu_s in self._cpu_s.values():
            found[program] = found.get(program, 0.0) + cpu_s
        return found


def _watch(seen: Seen, ended: threading.Event) -> None:
    while not ended.wait(LOOK_EVERY_S):
        seen.look()


def tree_of(pid: int) -> Iterator[int]:
    """A process and everything below it."""
    yield pid
    for child in children(pid):
        yield from tree_of(child)


def children(pid: int) -> list[int]:
    """The processes right below one; none if it is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
