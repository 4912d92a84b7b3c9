"""Lanes: each has two worker processes with different hash seeds, and runs a case in both, one after the other."""

import json
import os
import select
import subprocess
import sys
from types import TracebackType
from typing import Self

import msgspec

from carrycast.sim.testing.fuzz.case import FuzzCase
from carrycast.sim.testing.fuzz.outcome import OTHER, PLAIN, FuzzOutcome

LIMIT_S = 20.0
"""Of the processor, for a case in one condition. Most take a tenth of a second."""
MEMORY_BYTES = 1_500_000_000
"""Of address space. A worker that has imported everything and run thousands of cases takes a third of it."""
CASES_EACH = 400
"""After so many a worker is replaced by a new one, so that nothing that piles up ends a later case."""


class FuzzVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What two runs of a case say together."""

    status: str
    """`same`, `refused` or `failed`."""
    kind: str = ""
    signature: str = ""
    text: str = ""
    delivered: float = 0.0
    protocol: str = ""
    cpu_s: float = 0.0


class _Worker:
    """One process, started when it is first needed and again whenever it has ended."""

    def __init__(self, condition: str, hash_seed: int, limit_s: float) -> None:
        self._condition = condition
        self._hash_seed = hash_seed
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._done = 0

    def ask(self, order: dict[str, object]) -> FuzzOutcome:
        """The outcome of a case; a process that dies or hangs is a failure of the case."""
        if self._process is None or self._done >= CASES_EACH:
            self.close()
            self._process = self._started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._done += 1
        answer = ""
        try:
            process.stdin.write(json.dumps({**order, "condition": self._condition}) + "\n")
            process.stdin.flush()
            # The machine may be busy: only a process that does nothing at all waits so long.
            if select.select([process.stdout], [], [], 30 * self._limit_s + 60)[0]:
                answer = process.stdout.readline()
        except BrokenPipeError:
            pass
        if answer:
            return msgspec.json.decode(answer, type=FuzzOutcome)
        process.kill()
        process.wait()
        self._process = None
        return FuzzOutcome(
            status="failed", kind="died", text=f"the process ended: {process.returncode}", signature="died"
        )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None
        self._done = 0

    def _started(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "carrycast.sim.testing.fuzz.worker", str(self._limit_s), str(MEMORY_BYTES)]
        # Threads of numerical libraries would reserve memory and take the processor of others.
        environment = {**os.environ, "PYTHONHASHSEED": str(self._hash_seed), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )


class WorkerPair:
    """Runs cases one at a time."""

    def __init__(self, number: int = 0, limit_s: float = LIMIT_S) -> None:
        self._workers = [_Worker(PLAIN, 0, limit_s), _Worker(OTHER, 1 + number, limit_s)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()

    def judge_drawn(self, seed: int, index: int) -> FuzzVerdict:
        """A case of the generator; both processes draw it, so that a draw that depends on the process is found."""
        return self._run_twice({"drawn": [seed, index]})

    def judge(self, case: FuzzCase) -> FuzzVerdict:
        """Any case."""
        return self._run_twice({"case": {"tables": case.tables, "files": case.files, "seed": case.seed}})

    def _run_twice(self, order: dict[str, object]) -> FuzzVerdict:
        plain = self._workers[0].ask(order)
        other = self._workers[1].ask(order) if plain.status != "failed" else plain
        cpu_s = plain.cpu_s + other.cpu_s
        for outcome in (plain, other):
            if outcome.status == "failed":
                return _failure(outcome.kind, outcome.signature, outcome.text, cpu_s)
        if plain.status != other.status:
            text = f"{plain.status} {plain.text}, but {other.status} {other.text}"
            return _failure("disagree", f"disagree {plain.status} {other.status}", text, cpu_s)
        if plain.digest != other.digest:
            return _failure("difference", "difference", f"{plain.text}, but {other.text}", cpu_s)
        status = "refused" if plain.status == "refused" else "same"
        return FuzzVerdict(
            status=status, text=plain.text, delivered=plain.delivered, protocol=plain.protocol, cpu_s=cpu_s
        )


def _failure(kind: str, signature: str, text: str, cpu_s: float) -> FuzzVerdict:
    return FuzzVerdict(status="failed", kind=kind, signature=signature, text=text, cpu_s=cpu_s)
