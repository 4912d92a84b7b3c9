"""Processors: user code from events to events, run by the host and never by a handler.

A user writes a plain function. It takes one event (or, with `inputs` above one, a list of them) and returns the
attributes of the result as a dict, or `(attributes, payload)` with the payload as bytes, a list of such results, or
None for nothing. A function that keeps state takes it as a second argument and returns `(result, state)`; the state is
bytes, so that it can move with the processor.
"""

import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import msgspec

from carrycast.core.matching import joint_policy
from carrycast.core.model import (
    FOREVER_S,
    MAX_PAYLOAD_BYTES,
    MAX_STATE_BYTES,
    Attributes,
    Event,
    EventId,
    Processor,
    ProcessorId,
)

UserFunction: TypeAlias = Callable[..., object]


MAX_ERROR_CHARACTERS = 300
"""The length to which a user's error message is cut."""
MAX_JOBS = 64
"""The most calls queued for one processor of a node. Further calls fail with `processor_busy`."""


class Fault(enum.StrEnum):
    """Why a call of a processor has no result. The last three occur only if functions run in another process."""

    RAISED = "processor_raised"
    RESULT = "processor_result"
    """The function returned something that is not a result."""
    STATE_TOO_LONG = "processor_state_too_long"
    UNKNOWN = "processor_unknown"
    """The node has no such processor."""
    BUSY = "processor_busy"
    TIMEOUT = "processor_timeout"
    DIED = "processor_died"
    NOT_STARTED = "processor_not_started"


class Result(msgspec.Struct, frozen=True, array_like=True):
    """A result of a call: an event without an id."""

    attributes: Attributes
    payload: bytes = b""


class ProcessorError(Exception):
    """An error in the user's function or its result. Reported to the protocol, never fatal."""

    def __init__(self, text: str, fault: Fault = Fault.NOT_STARTED) -> None:
        super().__init__(text)
        self.fault = fault

    @property
    def report(self) -> str:
        """The fault and its text."""
        return f"{self.fault}: {self}"


def split_function(text: str) -> tuple[str, str]:
    """Split `file.py:name` into the file and the name of a function; raises ProcessorError for any other text."""
    file, colon, name = text.rpartition(":")
    if not colon:
        raise ProcessorError(f"{text!r} names no function: write it as file.py:name")
    if not file or not name.isidentifier():
        raise ProcessorError(f"{text!r} is not of the form file.py:name")
    return file, name


def load_function(path: Path, name: str) -> UserFunction:
    """Load a user's function from its file; a ProcessorError states the problem."""
    if not path.is_file():
        raise ProcessorError(f"there is no file {path}")
    if path.suffix != ".py":
        raise ProcessorError(f"{path} is no Python file")
    module = ModuleType(f"carrycast_processor_{path.stem}")
    module.__file__ = str(path)
    try:
        # Cached bytecode is not used, because Python does not notice a file that changed within the same second.
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise ProcessorError(f"{path} raised {_describe(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ProcessorError(f"{path} has no function {name!r}")
    loaded: UserFunction = function
    return loaded


def _describe(error: BaseException) -> str:
    """Describe a user's error in one printable line. Its `__str__` is the user's code too, and may raise."""
    try:
        text = str(error)
    except Exception:
        text = ""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return f"{type(error).__name__}: {line[:MAX_ERROR_CHARACTERS]}" if line else type(error).__name__


def _count_required(function: UserFunction) -> int:
    """The number of required positional arguments of a function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return 1
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in by_place and one.default is inspect.Parameter.empty for one in parameters)


@dataclass(frozen=True, slots=True)
class InstalledFunction:
    """A processor and its function."""

    processor: Processor
    function: UserFunction
    stateful: bool

    @classmethod
    def of(cls, processor: Processor, function: UserFunction) -> "InstalledFunction":
        """Install a function. A function that requires a second argument is stateful."""
        return cls(processor, function, _count_required(function) > 1)

    def run(self, state: bytes, events: Sequence[Event]) -> tuple[bytes, list[Result]]:
        """Call the function and return the new state and the results. Raises only ProcessorError."""
        # Events are copied, because a function may change the attributes and other simulated nodes hold the same event.
        given = [msgspec.structs.replace(event, attributes=dict(event.attributes)) for event in events]
        argument: object = given[0] if self.processor.inputs == 1 else given
        try:
            outcome = self.function(argument, state) if self.stateful else self.function(argument)
        except (Exception, SystemExit) as error:
            raise ProcessorError(f"{self.processor.id} raised {_describe(error)}", Fault.RAISED) from error
        if self.stateful:
            if not (isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], bytes)):
                raise ProcessorError(f"{self.processor.id} must return (result, state as bytes)", Fault.RESULT)
            outcome, state = outcome
            if len(state) > MAX_STATE_BYTES:
                raise ProcessorError(f"{self.processor.id} keeps {len(state)} bytes", Fault.STATE_TOO_LONG)
        found = [] if outcome is None else outcome if isinstance(outcome, list) else [outcome]
        return state, [self._make_result(one) for one in found]

    def _make_result(self, found: object) -> Result:
        attributes, payload = found if isinstance(found, tuple) and len(found) == 2 else (found, b"")
        if not isinstance(attributes, dict):
            what = type(attributes).__name__
            raise ProcessorError(f"{self.processor.id} returned {what}, not a dict of attributes", Fault.RESULT)
        if not isinstance(payload, bytes | bytearray):
            what = type(payload).__name__
            raise ProcessorError(f"{self.processor.id} returned a payload that is {what}, not bytes", Fault.RESULT)
        if len(payload) > MAX_PAYLOAD_BYTES:
            size = f"{self.processor.id} returned a payload of {len(payload)} bytes; an event has {MAX_PAYLOAD_BYTES}"
            raise ProcessorError(size, Fault.RESULT)
        return Result(attributes, bytes(payload))


def make_derived_event(
    processor: ProcessorId, inputs: Sequence[Event], result: Result, identity: EventId, now: float
) -> Event:
    """Make the event of a result. It names its inputs, has the shortest of their leases, and admits the subscribers
    that all of their access policies admit."""
    try:
        return Event(
            id=identity,
            attributes=dict(result.attributes),
            payload=result.payload,
            time_s=now,
            lease_s=min((event.lease_s for event in inputs), default=FOREVER_S),
            access=joint_policy(inputs),
            derived_from=tuple(event.id for event in inputs),
        )
    except (ValueError, TypeError) as error:
        raise ProcessorError(f"{processor} returned attributes that are no event: {error}", Fault.RESULT) from error
