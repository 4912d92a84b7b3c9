"""Checks deliveries of derived events to subscriptions that name a processor.

Such a subscription receives each result that its processor derives from the events that the filter selects, exactly
once, whichever node runs the call. Two nodes that run the same call derive two events with different ids, so ids do not
identify a result. Its origin does: the processor, the position among the results of the call, and the origins of the
inputs.
"""

from typing import NamedTuple, TypeAlias

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, ProcessorId, Subscription, SubscriptionId


class EventDerivation(NamedTuple):
    """The call that derived an event."""

    processor: ProcessorId
    inputs: tuple[Event, ...]
    place: int
    """The position of the event among the results of the call."""


_Origin: TypeAlias = tuple[ProcessorId, int, tuple[int | EventId, ...]]
"""Processor, position among the results, and inputs: derived events by number, published events by id."""


class DerivedEvents:
    """The derived events that have not expired, and the subscriptions that received each result."""

    def __init__(self) -> None:
        self._derivations: dict[EventId, EventDerivation] = {}
        self._numbers: dict[_Origin, int] = {}
        """A number for each origin of an unexpired event. An origin refers to its inputs by these numbers, so that it
        does not grow along a chain of processors."""
        self._origins: dict[EventId, _Origin] = {}
        self._alive: dict[_Origin, int] = {}
        """Origin -> the number of its unexpired events."""
        self._given: dict[_Origin, dict[SubscriptionId, tuple[EventId, int]]] = {}
        """Origin -> the subscriptions that received it, each with the event and 1 plus the crashes so far."""
        self._count = 0

    def on_derived(self, event: EventId, derivation: EventDerivation) -> None:
        """A processor derived an event."""
        inputs = tuple(self._input_key(one.id) for one in derivation.inputs)
        origin = (derivation.processor, derivation.place, inputs)
        if origin not in self._numbers:
            self._count += 1
            self._numbers[origin] = self._count
        self._derivations[event] = derivation
        self._origins[event] = origin
        self._alive[origin] = self._alive.get(origin, 0) + 1

    def on_expired(self, event: EventId) -> None:
        """An event has expired; its records are removed."""
        origin = self._origins.pop(event, None)
        if origin is None:
            return
        del self._derivations[event]
        self._alive[origin] -= 1
        if not self._alive[origin]:
            del self._alive[origin]
            del self._numbers[origin]
            self._given.pop(origin, None)

    def _input_key(self, event: EventId) -> int | EventId:
        """The number of an input's origin; the id of an input that was published or has expired."""
        origin = self._origins.get(event)
        return event if origin is None else self._numbers[origin]

    def find_flaw(self, event: EventId, subscription: Subscription, boots: int) -> str | None:
        """The reason why a delivery to a subscription that names a processor is wrong; None if it is right."""
        derivation = self._derivations.get(event)
        if derivation is None or derivation.processor != subscription.processor:
            return f"which is to be given what {subscription.processor} makes"
        for one in derivation.inputs:
            if not serves(one, subscription):
                return f"though it was made of {one.id}, which does not fit"
        given = self._given.setdefault(self._origins[event], {})
        before = given.get(subscription.id)
        if before is not None and before[1] > boots:
            return f"which had {before[0]}, made by the same of the same"
        given[subscription.id] = (event, boots + 1)
        return None
