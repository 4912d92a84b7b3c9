"""Effects: the calls by which a state machine acts on its environment.

Every call is a command: it returns nothing, and calls no handler before the current one has returned. Calls take effect
in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Position, ProcessorId, RequestId, SubscriptionId
from carrycast.core.wire import Message

Token: TypeAlias = int
"""Chosen by the sender of a message to identify its outcome."""

TimerKey: TypeAlias = str | tuple[str, Hashable]
"""A timer's name, or a name and the id it concerns. The name tells timers about the same id apart."""

Interface: TypeAlias = str
"""The name of one of a node's network interfaces: "radio", "ethernet"."""


class Place(NamedTuple):
    """A target given by its position: any node within `radius_m` of it, or the nearest node.

    With `node`, the target is that node, last known to be at the position.
    """

    position: Position
    radius_m: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    node: NodeId | None = None


class Link(msgspec.Struct, frozen=True):
    """Adjacency to one neighbor over one interface. `cost_s` is the expected time to move a packet of 500 bytes."""

    neighbor: NodeId
    interface: Interface
    cost_s: float


class Fact(msgspec.Struct, frozen=True):
    """A trace record that is neither a transmission nor a reception.

    `kind` is "store", "evict", "drop" or a kind of the protocol's own. A drop always has a reason.
    """

    kind: str
    event: EventId | None = None
    peer: NodeId | None = None
    reason: str = ""
    value: float | None = None
    """A measurement: a load, a length, a utility."""


class Gap(Fact, frozen=True, kw_only=True):
    """Some results of a subscription are missing. Recorded in the trace and reported to the application."""

    subscription: SubscriptionId


class Port(ABC):
    """The effects of a state machine. Each environment implements it."""

    __slots__ = ()

    @abstractmethod
    def send(self, target: NodeId, message: Message, via: Interface | None = None, token: Token | None = None) -> None:
        """Send to one neighbor, over the cheapest link or `via` an interface.

        With a token, exactly one `on_sent` reports the outcome. The neighbor need not be known to discovery. The
        simulator keeps the order of messages between two nodes over one interface; other environments need not.
        """

    def send_each(self, targets: Sequence[NodeId], message: Message) -> None:
        """Send the same message to several neighbors, without a report of the outcome.

        An environment overrides this if it can do better than one call of `send` for each.
        """
        for target in targets:
            self.send(target, message)

    @abstractmethod
    def broadcast(self, message: Message, on: Interface | None = None) -> None:
        """Transmit once to all neighbors in range, on one interface or on each."""

    @abstractmethod
    def route(self, target: NodeId | Place, message: Message) -> None:
        """Send over several hops through the router below the protocol; only in a stack that has one."""

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> None:
        """Send the same message to several targets. A router may use one packet where their paths coincide."""
        for target in targets:
            self.route(target, message)

    @abstractmethod
    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        """Call `on_timer(key)` after a delay. An armed key is replaced; an infinite delay only disarms it."""

    @abstractmethod
    def cancel_timer(self, key: TimerKey) -> None:
        """Disarm a timer; a key that is not armed is ignored."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """Deliver to a local application. `hops`: transmissions since the publisher, 0 for a local event."""

    @abstractmethod
    def answer(self, request: RequestId, event: Event, hops: int) -> None:
        """Return one stored event to the local application that requested it."""

    @abstractmethod
    def close_request(self, request: RequestId, complete: bool) -> None:
        """End a request: no more answers follow. `complete` if every matching stored event was returned."""

    @abstractmethod
    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        """The stored events for a subscription with `history` have been delivered, all of them if `complete`. Called
        again if the missing events arrive later."""

    @abstractmethod
    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        """Replication acknowledgement: a neighbor holds an event whose publisher waits for replicas.
        Called once for each neighbor."""

    @abstractmethod
    def process(self, processor: ProcessorId, state: bytes, events: Sequence[Event], token: Token) -> None:
        """Run user code on events, outside the handler; exactly one `on_processed` reports the outcome."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """Record a fact in the trace; a `Gap` is also reported to its application."""
