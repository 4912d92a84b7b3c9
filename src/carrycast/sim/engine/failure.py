"""A run that ends by an error in the code it runs, told with node, time and place in the code."""

import traceback
from pathlib import Path
from types import TracebackType

from carrycast.core.protocol.machine import StateMachine
from carrycast.errors import UserError, WorkError


class RunError(WorkError):
    """The code of a run raised; the error itself is its cause."""


def describe_run_error(error: Exception, now_s: float) -> str:
    """What an error says that a node's code raised at a time."""
    node = _innermost_node(error.__traceback__)
    where = f"at {now_s:g} s" if node is None else f"at {now_s:g} s node {node}"
    return f"{where}: {describe_error(error)}"


def describe_error(error: BaseException) -> str:
    """An error in one line: what it says and, unless that was written for users, what it is and where it was raised."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError | WorkError):
        return text
    named = f"{type(error).__name__}: {text}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return named
    last = frames[-1]
    # The folder tells apart what is called alike: every protocol has a protocol.py.
    file = Path(last.filename)
    return f"{named} ({file.parent.name}/{file.name}:{last.lineno} in {last.name})"


def _innermost_node(trace: TracebackType | None) -> int | None:
    """Whose code it was: the innermost machine on the way to the error."""
    found: int | None = None
    while trace is not None:
        machine = trace.tb_frame.f_locals.get("self")
        if isinstance(machine, StateMachine):
            found = machine.node
        trace = trace.tb_next
    return found
