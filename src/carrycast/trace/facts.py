"""Typed facts: everything that is observed in a run. Rows of the trace are their stored form.

The simulator knows a frame together with all its receivers. A live node knows what it sent and what it received, each
as a row of its own; read back from rows, a frame is one fact for each transmission and one for each reception.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from carrycast.core.model import AccessPolicy, Event, EventId, NodeId, ProcessorId, Subscription, SubscriptionId
from carrycast.core.wire import Traffic
from carrycast.trace.schema import Kind

Record = Mapping[str, Any]


class TraceFact(msgspec.Struct, frozen=True, gc=False):
    """What happened: when, on the clock of the trace, and at which node."""

    time_s: float
    node: NodeId


class FrameFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A frame of the sender `node`, and the nodes that heard it. Its time is the end of the transmission; in a row of
    its sender, its beginning."""

    traffic: Traffic
    size_bytes: int
    unicast: bool
    event: EventId | None = None
    frames: int = 1
    """Different frames: several for a message that goes to several nodes one by one, 0 for what is no first attempt."""
    transmissions: int = 1
    """How often they were on the air in all, repetitions by the radio included."""
    receivers: tuple[NodeId, ...] = ()


class PublishFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """An application published an event, or a processor made one."""

    event: Event
    counted: bool = True
    """Whether it was published in the measured window."""
    processor: ProcessorId | None = None


class SubscribeFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A subscription begins."""

    subscription: Subscription


class UnsubscribeFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A subscription ends."""

    subscription: SubscriptionId


class DeliverFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A protocol handed an event to an application."""

    subscription: SubscriptionId
    event: EventId
    hops: int


class DropFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node gave something up, for a named reason."""

    reason: str
    event: EventId | None = None
    peer: NodeId | None = None
    by_protocol: bool = False
    """A state machine noted it; else the node dropped a frame."""


class StoreFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node put a copy of an event into its buffer."""

    event: EventId


class EvictFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A copy of an event left a node's buffer."""

    event: EventId
    reason: str = ""


class LinkUpFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node learned of a link."""

    peer: NodeId


class LinkDownFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node learned that a link is gone."""

    peer: NodeId
    reason: str = ""


class StartFact(TraceFact, frozen=True, gc=False):
    """A node started."""


class StopFact(TraceFact, frozen=True, gc=False):
    """A node stopped."""


class CrashFact(TraceFact, frozen=True, gc=False):
    """A node crashed: what it kept in memory is gone."""


class NoteFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A protocol noted something of its own kind."""

    kind: str
    event: EventId | None = None
    peer: NodeId | None = None
    reason: str = ""
    value: float | None = None


def facts_of_rows(
    rows: Iterable[Record], events: Mapping[str, Record], subscriptions: Mapping[str, Record]
) -> Iterator[TraceFact]:
    """The facts of the rows of one run, in their order; publications and subscriptions are described in tables of their
    own, by id. What a table does not describe is left out, and so are rows that no fold reads."""
    for row in rows:
        fact = fact_of_row(row, events, subscriptions)
        if fact is not None:
            yield fact


def fact_of_row(row: Record, events: Mapping[str, Record], subscriptions: Mapping[str, Record]) -> TraceFact | None:
    """The fact that a row of the table `trace` stores."""
    kind, time_s, node = row["kind"], row["time_s"], row["node"]
    if kind in _FRAMES:
        return _frame(row, kind)
    event = None if row["event"] is None else event_id(row["event"])
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(time_s, node)
    if kind == Kind.PUBLISH:
        told = events.get(row["event"])
        return None if told is None else publish_fact(told, time_s)
    if kind == Kind.SUBSCRIBE:
        stands = subscriptions.get(row["subscription"])
        return None if stands is None else SubscribeFact(time_s, node, subscription=subscription_of_record(stands))
    if kind == Kind.UNSUBSCRIBE:
        return UnsubscribeFact(time_s, node, subscription=subscription_id(row["subscription"]))
    if kind == Kind.DELIVER:
        assert event is not None, "a delivery is of an event"
        to = subscription_id(row["subscription"])
        return DeliverFact(time_s, node, subscription=to, event=event, hops=row["hops"] or 0)
    reason, peer = row["reason"] or "", row["peer"]
    if kind == Kind.DROP:
        by_protocol = row["message"] is None
        return DropFact(time_s, node, reason=reason, event=event, peer=peer, by_protocol=by_protocol)
    if kind == Kind.LINK_UP:
        return LinkUpFact(time_s, node, peer=peer)
    if kind == Kind.LINK_DOWN:
        return LinkDownFact(time_s, node, peer=peer, reason=reason)
    if kind == Kind.STORE and event is not None:
        return StoreFact(time_s, node, event=event)
    if kind == Kind.EVICT and event is not None:
        return EvictFact(time_s, node, event=event, reason=reason)
    if kind in _UNREAD:
        return None
    return NoteFact(time_s, node, kind=kind, event=event, peer=peer, reason=reason, value=row["value"])


def publish_fact(row: Record, time_s: float) -> PublishFact:
    """The publication, at a time, of the event that a row of the table `events` describes."""
    event = event_of_record(row)
    return PublishFact(time_s, row["source"], event=event, counted=row["counted"], processor=row["processor"])


def event_of_record(row: Record) -> Event:
    """The event that a row of the table `events` describes. Payloads are not stored."""
    derived = tuple(event_id(text) for text in (row["derived_from"] or "").split())
    access = None if row["access"] is None else AccessPolicy(row["access"])
    attributes = json.loads(row["attributes"])
    return Event(event_id(row["event"]), attributes, time_s=row["time_s"], access=access, derived_from=derived)


def subscription_of_record(row: Record) -> Subscription:
    """The subscription that a row of the table `subscriptions` describes."""
    id, attributes = subscription_id(row["subscription"]), json.loads(row["attributes"])
    return Subscription(id, row["filter"], attributes=attributes, processor=row["processor"])


def event_id(text: str) -> EventId:
    """The id of an event as the tables write it."""
    node, _, sequence = text.partition(":")
    return EventId(int(node), int(sequence))


def subscription_id(text: str) -> SubscriptionId:
    """The id of a subscription as the tables write it."""
    node, _, sequence = text.partition(":")
    return SubscriptionId(int(node), int(sequence))


def _frame(row: Record, kind: str) -> FrameFact:
    received = kind == Kind.RECEIVE
    return FrameFact(
        row["time_s"],
        row["peer"] if received else row["node"],
        traffic=_TRAFFIC[row["class"]],
        size_bytes=row["size_bytes"],
        unicast=not received and row["peer"] is not None,
        event=None if row["event"] is None else event_id(row["event"]),
        frames=int(kind == Kind.SEND),
        transmissions=int(not received),
        receivers=(row["node"],) if received else (),
    )


_FRAMES = frozenset({Kind.SEND, Kind.RETRY, Kind.RECEIVE})
_TRAFFIC = {traffic.name.lower(): traffic for traffic in Traffic}
_READERS: Mapping[str, type[TraceFact]] = {Kind.START: StartFact, Kind.STOP: StopFact, Kind.CRASH: CrashFact}
_UNREAD = frozenset({Kind.REQUEST, Kind.ANSWER, Kind.CLOSE, Kind.LINK_CHANGED})
