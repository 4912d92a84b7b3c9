"""Errors raised by the code of a run, reported with node, time and source line."""

import traceback
from pathlib import Path
from types import TracebackType

from carrycast.core.protocol import StateMachine
from carrycast.errors import UserError, WorkError


class RunError(WorkError):
    """The code of a run raised an exception, which is the `__cause__` of this one."""


def describe_run_error(error: Exception, now_s: float) -> str:
    """Describe an error that a node's code raised at a time."""
    node = _innermost_node(error.__traceback__)
    where = f"at {now_s:g} s" if node is None else f"at {now_s:g} s node {node}"
    return f"{where}: {describe_error(error)}"


def describe_error(error: BaseException) -> str:
    """An error in one line: its message and, unless it was written for users, its type and source line."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError | WorkError):
        return text
    named = f"{type(error).__name__}: {text}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return named
    last = frames[-1]
    # With the folder, because every protocol has a protocol.py.
    file = Path(last.filename)
    return f"{named} ({file.parent.name}/{file.name}:{last.lineno} in {last.name})"


def _innermost_node(trace: TracebackType | None) -> int | None:
    """The node of the innermost state machine in the traceback."""
    found: int | None = None
    while trace is not None:
        machine = trace.tb_frame.f_locals.get("self")
        if isinstance(machine, StateMachine):
            found = machine.node
        trace = trace.tb_next
    return found
