"""Processors: user code from events to events, run by the host and never by a handler.

A user writes a plain function. It takes one event (or, with `inputs` above one, a list of them) and returns the
attributes of the result as a dict, a list of such dicts, or None for nothing. A function that keeps state takes it as a
second argument and returns `(result, state)`; the state is bytes, so that it can move with the processor.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from driftcast.model import FOREVER_S, Attributes, Event, EventId, Processor, ProcessorId

UserFunction: TypeAlias = Callable[..., object]


class ProcessorError(Exception):
    """The user's function raised, or gave back something that is no result. Told to the protocol, never fatal."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A processor and the function that does its work."""

    processor: Processor
    function: UserFunction
    stateful: bool

    @classmethod
    def of(cls, processor: Processor, function: UserFunction) -> "Installed":
        """Install a function; one that takes two arguments keeps state."""
        return cls(processor, function, len(inspect.signature(function).parameters) > 1)

    def run(self, state: bytes, events: Sequence[Event]) -> tuple[bytes, list[Attributes]]:
        """Call the function; the new state and the attributes of each result. Raises only ProcessorError."""
        argument: object = events[0] if self.processor.inputs == 1 else list(events)
        try:
            outcome = self.function(argument, state) if self.stateful else self.function(argument)
        except Exception as error:
            raise ProcessorError(f"{self.processor.id} raised {type(error).__name__}: {error}") from error
        if self.stateful:
            if not (isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], bytes)):
                raise ProcessorError(f"{self.processor.id} must return (result, state as bytes)")
            outcome, state = outcome
        given = [] if outcome is None else outcome if isinstance(outcome, list) else [outcome]
        results: list[Attributes] = []
        for result in given:
            if not isinstance(result, dict):
                raise ProcessorError(f"{self.processor.id} returned {type(result).__name__}, not a dict of attributes")
            results.append(result)
        return state, results


def derived_event(
    processor: ProcessorId, inputs: Sequence[Event], attributes: Attributes, identity: EventId, now: float
) -> Event:
    """The event that a result becomes: it names what it was made of and lives as long as the shortest of them."""
    try:
        return Event(
            id=identity,
            attributes=dict(attributes),
            time_s=now,
            lease_s=min((event.lease_s for event in inputs), default=FOREVER_S),
            derived_from=tuple(event.id for event in inputs),
        )
    except (ValueError, TypeError) as error:
        raise ProcessorError(f"{processor} returned attributes that are no event: {error}") from error
