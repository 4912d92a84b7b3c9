"""A process that runs cases, one line of JSON each, and answers with a line for each. It is started by `Lane`."""

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
"""Runs switch the collector off and leave cycles behind; to look for them takes longer than most runs."""


def main() -> None:
    """Read orders until there are none."""
    limit_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # What a case prints must not stand among the answers.
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
    # Whoever asked may have been stopped meanwhile.
    with contextlib.suppress(BrokenPipeError):
        main()
