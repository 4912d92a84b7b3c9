"""Typed facts: everything that is observed in a run. Rows of the trace are their stored form.

The simulator reports a frame together with all its receivers. A live node records transmissions and receptions as
separate rows, so a frame that is read from rows is one fact for each transmission and one for each reception.
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
    """An observation, with its time on the clock of the trace and its node."""

    time_s: float
    node: NodeId


class FrameFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A frame of the sender `node`, and the nodes that received it.

    The time is the end of the transmission; in a row of the sender it is the beginning.
    """

    traffic: Traffic
    size_bytes: int
    unicast: bool
    event: EventId | None = None
    frames: int = 1
    """Distinct frames: several if a message is sent to several nodes one by one, 0 for a retry or a reception."""
    transmissions: int = 1
    """The number of transmissions of these frames, with repetitions by the radio."""
    receivers: tuple[NodeId, ...] = ()
    airtime_us: int | None = None
    """The time on the air of all transmissions, with their acknowledgements; None if the radio has no rate."""


class PublishFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """An application published an event, or a processor produced one."""

    event: Event
    counted: bool = True
    """Whether the event was published in the measured window."""
    processor: ProcessorId | None = None


class SubscribeFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A subscription begins."""

    subscription: Subscription


class UnsubscribeFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A subscription ends."""

    subscription: SubscriptionId


class DeliverFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A protocol delivered an event to an application."""

    subscription: SubscriptionId
    event: EventId
    hops: int


class DropFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node dropped an event, a message or a frame, for a named reason."""

    reason: str
    event: EventId | None = None
    peer: NodeId | None = None
    by_protocol: bool = False
    """Whether a state machine reported the drop; else the node dropped a frame."""


class StoreFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node put a copy of an event into its buffer."""

    event: EventId


class EvictFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A copy of an event left a node's buffer."""

    event: EventId
    reason: str = ""


class LinkUpFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node detected a link."""

    peer: NodeId


class LinkDownFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A node detected the loss of a link."""

    peer: NodeId
    reason: str = ""


class StartFact(TraceFact, frozen=True, gc=False):
    """A node started."""


class StopFact(TraceFact, frozen=True, gc=False):
    """A node stopped."""


class CrashFact(TraceFact, frozen=True, gc=False):
    """A node crashed and lost the contents of its memory."""


class NoteFact(TraceFact, frozen=True, gc=False, kw_only=True):
    """A protocol noted something of a kind that it defines itself."""

    kind: str
    event: EventId | None = None
    peer: NodeId | None = None
    reason: str = ""
    value: float | None = None


def facts_of_rows(
    rows: Iterable[Record], events: Mapping[str, Record], subscriptions: Mapping[str, Record]
) -> Iterator[TraceFact]:
    """The facts that the rows of one run store, in their order.

    `events` and `subscriptions` are the rows of these tables by id. A publication or subscription that is missing there
    is skipped, as are rows that no fold reads.
    """
    for row in rows:
        fact = fact_of_row(row, events, subscriptions)
        if fact is not None:
            yield fact


def fact_of_row(row: Record, events: Mapping[str, Record], subscriptions: Mapping[str, Record]) -> TraceFact | None:
    """The fact that a row of the table `trace` stores."""
    kind, time_s, node = row["kind"], row["time_s"], row["node"]
    if kind in _FRAME_KINDS:
        return _make_frame_fact(row, kind)
    event = None if row["event"] is None else event_id(row["event"])
    lifecycle = _LIFECYCLE_FACTS.get(kind)
    if lifecycle is not None:
        return lifecycle(time_s, node)
    if kind == Kind.PUBLISH:
        record = events.get(row["event"])
        return None if record is None else publish_fact(record, time_s)
    if kind == Kind.SUBSCRIBE:
        record = subscriptions.get(row["subscription"])
        return None if record is None else SubscribeFact(time_s, node, subscription=subscription_of_record(record))
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
    if kind in _KINDS_WITHOUT_FACT:
        return None
    return NoteFact(time_s, node, kind=kind, event=event, peer=peer, reason=reason, value=row["value"])


def publish_fact(row: Record, time_s: float) -> PublishFact:
    """The publication of the event in a row of the table `events`."""
    event = event_of_record(row)
    return PublishFact(time_s, row["source"], event=event, counted=row["counted"], processor=row["processor"])


def event_of_record(row: Record) -> Event:
    """The event in a row of the table `events`, without its payload, which is not stored."""
    derived = tuple(event_id(text) for text in (row["derived_from"] or "").split())
    access = None if row["access"] is None else AccessPolicy(row["access"])
    attributes = json.loads(row["attributes"])
    return Event(event_id(row["event"]), attributes, time_s=row["time_s"], access=access, derived_from=derived)


def subscription_of_record(row: Record) -> Subscription:
    """The subscription in a row of the table `subscriptions`."""
    id, attributes = subscription_id(row["subscription"]), json.loads(row["attributes"])
    return Subscription(id, row["filter"], attributes=attributes, processor=row["processor"])


def event_id(text: str) -> EventId:
    """Parse the id of an event, as the tables store it."""
    node, _, sequence = text.partition(":")
    return EventId(int(node), int(sequence))


def subscription_id(text: str) -> SubscriptionId:
    """Parse the id of a subscription, as the tables store it."""
    node, _, sequence = text.partition(":")
    return SubscriptionId(int(node), int(sequence))


def _make_frame_fact(row: Record, kind: str) -> FrameFact:
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
        airtime_us=row.get("airtime_us"),
    )


_FRAME_KINDS = frozenset({Kind.SEND, Kind.RETRY, Kind.RECEIVE})
_TRAFFIC = {traffic.name.lower(): traffic for traffic in Traffic}
_LIFECYCLE_FACTS: Mapping[str, type[TraceFact]] = {Kind.START: StartFact, Kind.STOP: StopFact, Kind.CRASH: CrashFact}
_KINDS_WITHOUT_FACT = frozenset({Kind.REQUEST, Kind.ANSWER, Kind.CLOSE, Kind.LINK_CHANGED})
