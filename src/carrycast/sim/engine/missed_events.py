"""Finds the events that subscriptions missed in the tables of a run, each with the last trace row about it."""

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from carrycast.trace import Eligibility, Kind

if TYPE_CHECKING:
    import pyarrow as pa

Record = Mapping[str, Any]

_SUBJECTS = {
    Kind.PUBLISH: "published by node {node}",
    Kind.DELIVER: "delivered to node {node}",
    Kind.SEND: "sent by node {node}",
    Kind.RETRY: "sent again by node {node}",
    Kind.RECEIVE: "received by node {node}",
    Kind.DROP: "dropped by node {node}",
    Kind.STORE: "stored by node {node}",
    Kind.EVICT: "evicted by node {node}",
}


class MissedEvent(NamedTuple):
    """One event that was eligible for one subscription and not delivered to it."""

    node: int
    subscription: str
    event: str
    published_s: float
    last: str
    """The last trace row about the event: at this node, or else at any node."""


def find_missed_events(trace: "pa.Table", events: "pa.Table", subscriptions: "pa.Table") -> list[MissedEvent]:
    """The counted events that subscriptions missed, in the order of publication.

    An event is eligible for a subscription if another node published it while the subscription existed and both the
    filter and the event's access policy admit it. Subscriptions that name a processor are left out, since the trace
    does not say which results the processor would have derived.
    """
    eligibility = Eligibility(subscriptions.to_pylist())
    rows = trace.select(["time_s", "node", "kind", "event", "subscription", "peer", "reason"]).to_pylist()
    delivered = {(row["subscription"], row["event"]) for row in rows if row["kind"] == Kind.DELIVER}
    lasts = _last_rows(rows)
    found: list[MissedEvent] = []
    for event in sorted(events.to_pylist(), key=operator.itemgetter("time_s")):
        if not event["counted"]:
            continue
        owed = [eligibility.rows[place] for place in eligibility.find_subscriptions(event).tolist()]
        for one in sorted(owed, key=operator.itemgetter("subscription")):
            id, node = one["subscription"], one["node"]
            if (id, event["event"]) not in delivered:
                last = lasts.get((event["event"], node)) or lasts[event["event"], None]
                found.append(MissedEvent(node, id, event["event"], event["time_s"], _describe_row(last)))
    return found


def _last_rows(rows: Iterable[Record]) -> dict[tuple[str, int | None], Record]:
    """The last row about each event, at each node and anywhere (None)."""
    found: dict[tuple[str, int | None], Record] = {}
    for row in rows:
        if row["event"] is not None:
            found[row["event"], row["node"]] = found[row["event"], None] = row
    return found


def _describe_row(row: Record) -> str:
    text = _SUBJECTS.get(row["kind"], row["kind"] + " at node {node}").format(node=row["node"])
    peer = "" if row["peer"] is None else f", from or to node {row['peer']}"
    reason = "" if row["reason"] is None else f": {row['reason']}"
    return f"{text} at {row['time_s']:g} s{peer}{reason}"
