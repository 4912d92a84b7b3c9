"""A worker process of a `WorkerPair`: reads cases, one line of JSON each, and writes one line with each outcome."""

import contextlib
import gc
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import msgspec

from carrycast.sim.testing.fuzz.case import FuzzCase
from carrycast.sim.testing.fuzz.outcome import run_case
from carrycast.sim.testing.fuzz.scenarios import draw_case

COLLECT_EVERY = 20
"""Runs between garbage collections. Runs disable the collector, and one collection takes longer than most runs."""


def main() -> None:
    """Run the cases on standard input until it ends."""
    limit_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # The output of a case must not mix with the answers, so it goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        given = order.get("case")
        case = draw_case(*order["drawn"]) if given is None else FuzzCase(given["tables"], given["files"], given["seed"])
        with tempfile.TemporaryDirectory(prefix="carrycast-fuzz-") as folder:
            outcome = run_case(case, order["condition"], Path(folder), limit_s)
        answers.write(msgspec.json.encode(outcome).decode() + "\n")
        answers.flush()
        if number % COLLECT_EVERY == 0:
            gc.collect()


if __name__ == "__main__":
    # The parent process may have been stopped meanwhile.
    with contextlib.suppress(BrokenPipeError):
        main()
