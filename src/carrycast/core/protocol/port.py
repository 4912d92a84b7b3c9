"""Effects out: what a state machine may do to its world.

Every call is a command: it returns nothing, calls nothing back before the handler has returned, and keeps its order.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Position, ProcessorId, RequestId, SubscriptionId
from carrycast.core.wire import Message

Token: TypeAlias = int
"""Chosen by the sender of a message to recognize its outcome."""

TimerKey: TypeAlias = str | tuple[str, Hashable]
"""A word, or a word and what it is about. The word keeps keys apart that ids alone would not."""

Interface: TypeAlias = str
"""The name of one of a node's ways to reach others: "radio", "ethernet"."""


class Place(NamedTuple):
    """A target given by where it is: any node within `radius_m` of a position, or the one nearest to it.

    With `node` it is that very node, last heard of at the position.
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
    """Something worth a row of the trace that is neither sent nor received.

    `kind` is "store", "evict", "drop" or a word of the protocol's own. A drop always has a reason.
    """

    kind: str
    event: EventId | None = None
    peer: NodeId | None = None
    reason: str = ""
    value: float | None = None
    """A measurement: a load, a length, a utility."""


class Gap(Fact, frozen=True, kw_only=True):
    """A subscription's results do not go on where they were. Worth a row, and its application is told too."""

    subscription: SubscriptionId


class Port(ABC):
    """The way out of a state machine; each world has its own."""

    __slots__ = ()

    @abstractmethod
    def send(self, target: NodeId, message: Message, via: Interface | None = None, token: Token | None = None) -> None:
        """To one neighbor, over the cheapest link to it or `via` an interface.

        With a token the outcome is told by exactly one `on_sent`. A neighbor that discovery does not know yet may be
        sent to. Between two nodes and over one interface the simulator keeps the order; other worlds need not.
        """

    def send_each(self, targets: Sequence[NodeId], message: Message) -> None:
        """The same message to several neighbors, one after the other, without waiting for an outcome.

        Worlds that can do this cheaper than by as many calls of `send` do.
        """
        for target in targets:
            self.send(target, message)

    @abstractmethod
    def broadcast(self, message: Message, on: Interface | None = None) -> None:
        """One transmission to all in reach, on one interface or on every one."""

    @abstractmethod
    def route(self, target: NodeId | Place, message: Message) -> None:
        """Through the router beneath, over as many hops as it takes; only in a stack that has one."""

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> None:
        """The same message to several targets; a router that can lets them share packets while their ways are one."""
        for target in targets:
            self.route(target, message)

    @abstractmethod
    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        """Call `on_timer(key)` after a delay. An armed key is replaced; an infinite delay only disarms it."""

    @abstractmethod
    def cancel_timer(self, key: TimerKey) -> None:
        """Disarm a key; one that is not armed is no mistake."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """To a local application. `hops`: how many transmissions the event took to get here, 0 for an own event."""

    @abstractmethod
    def answer(self, request: RequestId, event: Event, hops: int) -> None:
        """One stored event to the local application that asked for it."""

    @abstractmethod
    def close_request(self, request: RequestId, complete: bool) -> None:
        """No more answers will come; `complete` if every stored event there is has been answered with."""

    @abstractmethod
    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        """What was stored before a subscription with `history` has been delivered, all of it if `complete`. Told again
        if the rest comes after it was said that it is not."""

    @abstractmethod
    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        """Replication acknowledgement: a neighbor holds an event whose publisher waits for replicas.
        Called once for each neighbor."""

    @abstractmethod
    def process(self, processor: ProcessorId, state: bytes, events: Sequence[Event], token: Token) -> None:
        """Run user code on events, apart from the handler; `on_processed` brings the outcome, exactly once."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """A named fact for the trace; a `Gap` also for the application whose subscription it is."""
