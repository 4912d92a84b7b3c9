"""A run in a process of its own: if it dies, only the run is lost, and becomes an error."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from carrycast.analysis.spark.plan import PlannedRun
from carrycast.analysis.spark.records import Record, json_text, json_value
from carrycast.analysis.spark.single import DEADLY_ATTEMPTS, Simulate, died, done
from carrycast.errors import WorkError


def guarded(planned: PlannedRun, out: Path, simulate: Simulate) -> Record:
    """As `done`, for runs of which one may end the process that does it."""
    for _ in range(DEADLY_ATTEMPTS):
        record = _in_child(planned, out, simulate)
        if record is not None:
            return record
    return died(planned)


def _in_child(planned: PlannedRun, out: Path, simulate: Simulate) -> Record | None:
    """None if the process came to no end of its own."""
    # Forked, it has everything at hand, and what `simulate` is need not be sent.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(theirs, planned, out, simulate))
    child.start()
    theirs.close()
    try:
        told = json_value(ours.recv_bytes())
    except EOFError:
        return None
    finally:
        ours.close()
        child.join()
    if isinstance(told, str):
        raise WorkError(told)
    assert isinstance(told, dict)
    return told


def _tell(to: "Connection[bytes, bytes]", planned: PlannedRun, out: Path, simulate: Simulate) -> None:
    try:
        told: Record | str = done(planned, out, simulate)
    except WorkError as error:
        told = str(error)
    to.send_bytes(json_text(told).encode())
    to.close()
