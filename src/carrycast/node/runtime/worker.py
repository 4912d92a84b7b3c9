"""The process that runs one processor's function: `python -m carrycast.node.runtime.worker ID FILE FUNCTION INPUTS`.

It reads jobs from standard input and writes outcomes to standard output, each as four bytes of length and a MessagePack
value. The output of the function goes to standard error.
"""

import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from carrycast.core.functions import Fault, InstalledFunction, ProcessorError, Result, load_function
from carrycast.core.model import Event, Processor

MAX_VALUE_BYTES = 1 << 26
"""64 events of 1 MiB each, the most that a processor can take."""


class ProcessorJob(msgspec.Struct, frozen=True, array_like=True):
    """The input of one call of the function."""

    state: bytes
    events: list[Event]


class WorkerOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The result of one call; `error` is empty on success."""

    state: bytes
    results: list[Result]
    error: str


def write_value(stream: BinaryIO, value: msgspec.Struct) -> None:
    """Write one value after its length."""
    body = msgspec.msgpack.encode(value)
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def run_job(installed: InstalledFunction, body: bytes) -> WorkerOutcome:
    """Run the function on one job."""
    job = msgspec.msgpack.decode(body, type=ProcessorJob)
    try:
        state, results = installed.run(job.state, job.events)
        # A user's function may return anything. A value that is no attribute fails here, and not in the node.
        return msgspec.msgpack.decode(msgspec.msgpack.encode(WorkerOutcome(state, results, "")), type=WorkerOutcome)
    except ProcessorError as error:
        return WorkerOutcome(job.state, [], error.report)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        refused = ProcessorError(f"{installed.processor.id} returned no result: {error}", Fault.RESULT)
        return WorkerOutcome(job.state, [], refused.report)


def main(arguments: list[str]) -> int:
    """Serve until standard input ends."""
    id, file, name, inputs = arguments
    source = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(file).parent))
    try:
        installed = InstalledFunction.of(Processor(id, "", int(inputs)), load_function(Path(file), name))
    except (ProcessorError, TypeError, ValueError) as error:
        write_value(answers, WorkerOutcome(b"", [], str(error)))
        return 1
    write_value(answers, WorkerOutcome(b"", [], ""))
    while len(head := source.read(4)) == 4:
        write_value(answers, run_job(installed, source.read(int.from_bytes(head, "big"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
