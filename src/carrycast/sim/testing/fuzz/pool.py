"""Pairs of worker processes with different hash seeds. A pair runs a case in both and compares the outcomes."""

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
"""The limit of CPU time of one run of a case. Most runs take a tenth of a second."""
MEMORY_BYTES = 1_500_000_000
"""The limit of a worker's address space. A worker that has run thousands of cases takes a third of it."""
CASES_EACH = 400
"""Cases after which a worker is replaced, so that memory it has accumulated does not fail a later case."""


class FuzzVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing two runs of a case."""

    status: str
    """`same`, `refused` or `failed`."""
    kind: str = ""
    signature: str = ""
    text: str = ""
    delivered: float = 0.0
    protocol: str = ""
    cpu_s: float = 0.0


class _Worker:
    """One worker process. It is started on first use, and again after it has ended."""

    def __init__(self, condition: str, hash_seed: int, limit_s: float) -> None:
        self._condition = condition
        self._hash_seed = hash_seed
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._done = 0

    def ask(self, order: dict[str, object]) -> FuzzOutcome:
        """Run a case and return its outcome. If the process dies or hangs, the case has failed."""
        if self._process is None or self._done >= CASES_EACH:
            self.close()
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._done += 1
        answer = ""
        try:
            process.stdin.write(json.dumps({**order, "condition": self._condition}) + "\n")
            process.stdin.flush()
            # The machine may be busy: a process that exceeds this generous limit hangs.
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

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "carrycast.sim.testing.fuzz.worker", str(self._limit_s), str(MEMORY_BYTES)]
        # Threads of numerical libraries would reserve memory and compete with other workers for CPU time.
        environment = {**os.environ, "PYTHONHASHSEED": str(self._hash_seed), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )


class WorkerPair:
    """Two workers that run each case under different conditions, and compare."""

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
        """Run a case of the generator. Both processes draw it, so that a draw that depends on the process is found."""
        return self._run_twice({"drawn": [seed, index]})

    def judge(self, case: FuzzCase) -> FuzzVerdict:
        """Run a given case."""
        return self._run_twice({"case": {"tables": case.tables, "files": case.files, "seed": case.seed}})

    def _run_twice(self, order: dict[str, object]) -> FuzzVerdict:
        plain = self._workers[0].ask(order)
        other = self._workers[1].ask(order) if plain.status != "failed" else plain
        cpu_s = plain.cpu_s + other.cpu_s
        for outcome in (plain, other):
            if outcome.status == "failed":
                return _make_failure(outcome.kind, outcome.signature, outcome.text, cpu_s)
        if plain.status != other.status:
            text = f"{plain.status} {plain.text}, but {other.status} {other.text}"
            return _make_failure("disagree", f"disagree {plain.status} {other.status}", text, cpu_s)
        if plain.digest != other.digest:
            return _make_failure("difference", "difference", f"{plain.text}, but {other.text}", cpu_s)
        status = "refused" if plain.status == "refused" else "same"
        return FuzzVerdict(
            status=status, text=plain.text, delivered=plain.delivered, protocol=plain.protocol, cpu_s=cpu_s
        )


def _make_failure(kind: str, signature: str, text: str, cpu_s: float) -> FuzzVerdict:
    return FuzzVerdict(status="failed", kind=kind, signature=signature, text=text, cpu_s=cpu_s)
