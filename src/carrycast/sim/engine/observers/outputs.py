"""What processors made, and what of it subscriptions that name a processor may be given.

Such a subscription is owed what its processor makes of each event that its filter selects: once, whoever ran the call.
Two nodes that run the same call make two events with two ids, so ids do not tell. What does is how an event came to be:
which processor made it, of what, as which of its results; and of those events, likewise.
"""

from typing import NamedTuple, TypeAlias

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, ProcessorId, Subscription, SubscriptionId


class Made(NamedTuple):
    """How an event came to be."""

    processor: ProcessorId
    inputs: tuple[Event, ...]
    place: int
    """Which of the results of its call it is."""


_Origin: TypeAlias = tuple[ProcessorId, int, tuple[int | EventId, ...]]
"""Which processor made it, as which of its results, and of what."""


class Outputs:
    """The events that processors made, and which subscriptions were given what came to be so."""

    def __init__(self) -> None:
        self._made: dict[EventId, Made] = {}
        self._numbers: dict[_Origin, int] = {}
        """A number for each way in which an event that is alive came to be. So an origin names those of its inputs by
        their numbers, and does not grow with the processors in a row."""
        self._origins: dict[EventId, _Origin] = {}
        self._alive: dict[_Origin, int] = {}
        """Origin -> how many events there are that came to be so."""
        self._given: dict[_Origin, dict[SubscriptionId, tuple[EventId, int]]] = {}
        """Origin -> who was given it as which event, and the boots of the node at the time."""
        self._count = 0

    def on_made(self, event: EventId, made: Made) -> None:
        """A processor made an event."""
        # A source message is itself; so is what was made of inputs that nobody remembers.
        inputs = tuple(self._named(one.id) for one in made.inputs)
        origin = (made.processor, made.place, inputs)
        if origin not in self._numbers:
            self._count += 1
            self._numbers[origin] = self._count
        self._made[event] = made
        self._origins[event] = origin
        self._alive[origin] = self._alive.get(origin, 0) + 1

    def on_lease_over(self, event: EventId) -> None:
        """Nobody holds it any more."""
        origin = self._origins.pop(event, None)
        if origin is None:
            return
        del self._made[event]
        self._alive[origin] -= 1
        if not self._alive[origin]:
            del self._alive[origin]
            del self._numbers[origin]
            self._given.pop(origin, None)

    def _named(self, event: EventId) -> int | EventId:
        origin = self._origins.get(event)
        return event if origin is None else self._numbers[origin]

    def flaw(self, event: EventId, subscription: Subscription, boots: int) -> str | None:
        """What is wrong with giving an event to a subscription that names a processor; None if nothing is."""
        made = self._made.get(event)
        if made is None or made.processor != subscription.processor:
            return f"which is to be given what {subscription.processor} makes"
        for one in made.inputs:
            if not serves(one, subscription):
                return f"though it was made of {one.id}, which does not fit"
        given = self._given.setdefault(self._origins[event], {})
        before = given.get(subscription.id)
        if before is not None and before[1] > boots:
            return f"which had {before[0]}, made by the same of the same"
        given[subscription.id] = (event, boots + 1)
        return None
