"""A run in a process of its own: if it dies, only the run is lost, and becomes an error."""

import os
from pathlib import Path

from driftcast.pipeline.plan import PlannedRun
from driftcast.pipeline.records import Record, json_text, json_value
from driftcast.pipeline.single import DEADLY_ATTEMPTS, Simulate, died, done


def guarded(planned: PlannedRun, out: Path, simulate: Simulate) -> Record:
    """As `done`, for runs of which one may end the process that does it."""
    for _ in range(DEADLY_ATTEMPTS):
        record = _in_child(planned, out, simulate)
        if record is not None:
            return record
    return died(planned)


def _in_child(planned: PlannedRun, out: Path, simulate: Simulate) -> Record | None:
    """None if the process came to no end of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            with os.fdopen(theirs, "wb") as file:
                file.write(json_text(done(planned, out, simulate)).encode())
            status = 0
        finally:
            # Nothing of what the worker has to do at its end is this process's to do.
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        written = file.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        return None
    record = json_value(written)
    assert isinstance(record, dict)
    return record
