"""The events of one subscription, as a client takes and acknowledges them."""

import math
import reprlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from carrycast.core.model import FOREVER_S, Event, EventId, SubscriptionId
from carrycast.errors import UserError
from carrycast.node.api.messages import (
    DeliveryNotification,
    GapNotification,
    RequestClosed,
    RetrievedEvent,
    UnsubscribeResponse,
)

if TYPE_CHECKING:
    from carrycast.node.api.client import Client

TOGETHER = 256
"""Events that are acknowledged together, where they come faster than one by one. Half of a reader's window, so that the
node never waits for a word that this side holds back."""
MAX_WAITING = 10_000
"""Events of a subscription that wait in a client for whoever iterates. Of a named one the node hands over fewer at a
time; of another, those that come then are missed, and counted."""


class Delivery(NamedTuple):
    """An event of a subscription. One of a named subscription has a position, to be acknowledged; `again` if it may
    have been delivered before."""

    event: Event
    position: int | None = None
    again: bool = False


class HistoryEnd(NamedTuple):
    """Stands after the last event of a subscription's history."""

    complete: bool


HistoryListener: TypeAlias = Callable[[bool], None]
"""Called after the last event of a history was taken: was that all of it? Again if the rest comes later."""


@dataclass(slots=True)
class Arrivals:
    """What has come of one subscription and was not taken yet."""

    waiting: deque[Delivery | HistoryEnd] = field(default_factory=deque)
    missed: int = 0
    """Events for which there was no room."""
    gaps: list[str] = field(default_factory=list)
    """Why results did not go on where they were, each time."""
    ended: bool = False
    """Whether the node has said that no more will come."""
    history_complete: bool | None = None
    """Of what was taken: whether that is all of the history; None until its end."""
    on_history: HistoryListener | None = None

    def take(self) -> Delivery | None:
        """The next event, if one is here."""
        while self.waiting:
            first = self.waiting.popleft()
            if isinstance(first, Delivery):
                return first
            self._end_history(first)
        return None

    def waits(self) -> bool:
        """Whether an event is here."""
        while self.waiting and isinstance(first := self.waiting[0], HistoryEnd):
            self.waiting.popleft()
            self._end_history(first)
        return bool(self.waiting)

    def _end_history(self, end: HistoryEnd) -> None:
        # What there was no room for here has not come either.
        self.history_complete = end.complete and not self.missed
        if self.on_history is not None:
            self.on_history(self.history_complete)

    def add(self, delivery: Delivery) -> None:
        """An event has come, perhaps while another subscription is read."""
        if delivery.position is None and len(self.waiting) >= MAX_WAITING:
            self.missed += 1
        else:
            self.waiting.append(delivery)


def put_where_it_waits(reply: object, waiting: dict[SubscriptionId, Arrivals]) -> None:
    """What a reply tells of a subscription."""
    if isinstance(reply, DeliveryNotification):
        delivery = Delivery(delivered_event(reply), reply.position, reply.again)
        waiting.setdefault(reply.subscription, Arrivals()).add(delivery)
    elif isinstance(reply, RequestClosed) and reply.subscription is not None:
        waiting.setdefault(reply.subscription, Arrivals()).waiting.append(HistoryEnd(reply.complete))
    elif isinstance(reply, GapNotification):
        waiting.setdefault(reply.subscription, Arrivals()).gaps.append(reply.reason)
    elif isinstance(reply, UnsubscribeResponse) and reply.subscription in waiting:
        waiting[reply.subscription].ended = True


def lease_told(lease_s: float | None) -> float | None:
    """A lease as a question has it; a UserError if it is none."""
    if lease_s is not None and not lease_s > 0:
        raise UserError("a lease is longer than 0 s")
    return None if lease_s is None or math.isinf(lease_s) else lease_s


def delivered_event(delivered: DeliveryNotification | RetrievedEvent) -> Event:
    """The event in an answer."""
    lease_s = FOREVER_S if delivered.lease_s is None else delivered.lease_s
    derived = tuple(delivered.derived_from) if isinstance(delivered, DeliveryNotification) else ()
    return Event(
        delivered.event, delivered.attributes, delivered.payload, delivered.time_s, lease_s, derived_from=derived
    )


Acknowledgeable: TypeAlias = EventId | Event | Delivery


def event_id(event: Acknowledgeable) -> EventId:
    """The id of what is to be acknowledged: an event, its delivery, or the id itself."""
    if isinstance(event, Delivery):
        return event.event.id
    if isinstance(event, Event):
        return event.id
    if isinstance(event, EventId):
        return event
    raise TypeError(f"to acknowledge an event, give it, its delivery or its id, not {reprlib.repr(event)}")


class Deliveries(Iterator[Event]):
    """The events of one subscription, as they come. Iterating waits until its lease is over; the methods have a limit.

    Of a named one, iterating acknowledges what it gave when it is asked for more: what a program was killed over comes
    again. Who takes events by `next_event` or `next_delivery` acknowledges them by `acknowledge`.
    """

    def __init__(self, client: "Client", subscription: SubscriptionId) -> None:
        self.subscription = subscription
        self._client = client
        self._positions: dict[EventId, int] = {}
        """Of what is not acknowledged."""

    def __next__(self) -> Event:
        self.settle()
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    @property
    def ended(self) -> bool:
        """Whether its lease is over, and no more will come than is here already."""
        return self._client.ended(self.subscription)

    @property
    def history_complete(self) -> bool | None:
        """Whether all stored events from before have been taken; False if some are missing, None if it is not known
        yet or was not asked for (`history`). A False becomes True if the rest comes later."""
        return self._client.history_complete(self.subscription)

    @property
    def missed(self) -> int:
        """Events that came while nobody took them, and for which there was no room; of a named subscription none."""
        return self._client.missed(self.subscription)

    @property
    def gaps(self) -> list[str]:
        """Each time that results did not go on where they were, and why: `processor_restarted` if the processor began
        again without its state because its broker was lost, `node_restarted` if the node did."""
        return self._client.gaps(self.subscription)

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None if none comes in time or ever (`ended`)."""
        delivery = self.next_delivery(timeout_s)
        return None if delivery is None else delivery.event

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """The next event and whether it may have come before, or None."""
        delivery = self._client.next_delivery(self.subscription, timeout_s)
        if delivery is not None and delivery.position is not None:
            self._positions[delivery.event.id] = delivery.position
        return delivery

    def acknowledge(self, *events: Acknowledgeable, wait: bool = True) -> None:
        """These, or all that were given so far, are not to come again; see `Client.acknowledge`."""
        positions = [position for event in events if (position := self._position(event)) is not None]
        if not events:
            positions = list(self._positions.values())
            self._positions.clear()
        if positions:
            self._client.acknowledge(self.subscription, positions, wait)

    def _position(self, event: Acknowledgeable) -> int | None:
        """Where an event that is to be acknowledged stands; None if it is already."""
        position = self._positions.pop(event_id(event), None)
        # A delivery that was taken by `Client.next_delivery` is known by itself alone.
        return event.position if position is None and isinstance(event, Delivery) else position

    def settle(self) -> None:
        """Acknowledge what was given so far, when it is much or nothing more is here yet; it is not waited for."""
        if self.ended:
            return
        if len(self._positions) >= TOGETHER or not self._client.waits(self.subscription):
            self.acknowledge(wait=False)

    def close(self) -> None:
        """End the subscription."""
        self._client.unsubscribe(self.subscription)
