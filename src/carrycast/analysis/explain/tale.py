"""The story of one event for one node, as a table of facts; `words.py` tells it to people."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from carrycast.analysis.explain.arrival import path_to
from carrycast.analysis.explain.copies import Copy, copies_of, way_to
from carrycast.analysis.explain.evidence import Evidence, gather
from carrycast.core.matching import Filter, FilterError
from carrycast.trace import Kind

Step = tuple[int, float]
"""A node, and when it had the event."""


@dataclass(frozen=True)
class Missed:
    """A contact of the node with somebody who carried the event then, and what was lost in it."""

    holder: int
    from_s: float
    to_s: float
    drops: tuple[str, ...]


@dataclass(frozen=True)
class Tale:
    """What is known of an event and a node. Times are those of the trace's clock."""

    run: str
    event: str
    node: int
    source: int
    published_s: float
    ends_s: float
    """When its lease is over, or the trace."""
    attributes: Mapping[str, Any]
    wanted: str | None
    """The filter by which the node was to get it; None if it was not."""
    unwanted: str
    """Why it was not to get it."""
    copies: list[Copy]
    delivered_s: float | None
    way: list[Step]
    """Over whom it came, if it did."""
    missed: list[Missed]
    contacts: int
    """The contacts of the node from the publication until the end of the lease."""
    drops: dict[str, int]
    """What was lost of the event anywhere, by reason."""
    last: Copy | None
    """The copy that was carried longest."""
    earliest: list[Step]
    """An earliest way that the contacts allow; empty if there is none."""
    seen: bool
    """Whether contacts are what nodes saw of their links."""

    @property
    def possible(self) -> bool:
        """Whether the contacts allow a delivery in time."""
        return bool(self.earliest)


def explained(path: Path, event: str, node: int) -> Tale:
    """What a trace tells of an event and a node."""
    found = gather(path, event, node)
    copies = copies_of(found.rows)
    published_s = float(found.event["time_s"])
    lease_s = found.event["lease_s"]
    ends_s = min(inf if lease_s is None else published_s + lease_s, max(found.end_s, published_s))
    source = int(found.event["source"])
    wanted, unwanted = _wanted(found, node)
    mine = copies.get(node)
    delivered_s = None if mine is None else mine.delivered_s
    arrivals = found.meetings.arrivals(source, published_s, ends_s)
    meetings = found.meetings.with_node(node, published_s, ends_s)
    held = [copy for copy in copies.values() if copy.stored_s is not None]
    drops: dict[str, int] = {}
    for row in found.rows:
        if row["kind"] == Kind.DROP:
            drops[row["reason"]] = drops.get(row["reason"], 0) + 1
    return Tale(
        run=found.run,
        event=event,
        node=node,
        source=source,
        published_s=published_s,
        ends_s=ends_s,
        attributes=json.loads(found.event["attributes"]),
        wanted=wanted,
        unwanted=unwanted,
        copies=list(copies.values()),
        delivered_s=delivered_s,
        way=way_to(node, copies) if mine is not None and mine.got_s is not None else [],
        missed=_missed(found, node, copies, meetings, delivered_s),
        contacts=len(meetings),
        drops=drops,
        last=max(held, key=lambda copy: (copy.until_s, copy.node), default=None),
        earliest=path_to(node, arrivals) if node in arrivals and arrivals[node].time_s < ends_s else [],
        seen=found.seen,
    )


def _wanted(found: Evidence, node: int) -> tuple[str | None, str]:
    """The filter by which a node was to get the event, or why it was not to."""
    event, time_s = found.event, found.event["time_s"]
    if event["source"] == node:
        return None, "it published the event itself"
    if not found.subscriptions:
        return None, "it has no subscription"
    attributes = json.loads(event["attributes"])
    fitting = [one for one in found.subscriptions if Filter(one["filter"]).matches(attributes)]
    if not fitting:
        filters = ", ".join(repr(str(one["filter"])) for one in found.subscriptions[:3])
        return None, f"none of its filters matches ({filters})"
    standing = [one for one in fitting if one["from_s"] <= time_s and (one["to_s"] is None or time_s < one["to_s"])]
    if not standing:
        return None, "it was not subscribed when the event was published"
    for one in standing:
        if _admits(event["access"], json.loads(one["attributes"])):
            return str(one["filter"]), ""
    return None, f"the event's access policy does not admit it: {event['access']}"


def _admits(condition: str | None, attributes: Mapping[str, Any]) -> bool:
    if condition is None:
        return True
    try:
        return Filter(condition).matches(attributes)
    except FilterError:
        return False


def _missed(
    found: Evidence,
    node: int,
    copies: Mapping[int, Copy],
    meetings: list[tuple[float, float, int]],
    delivered_s: float | None,
) -> list[Missed]:
    """The contacts in which the event was next to the node and did not come over."""
    until_s = inf if delivered_s is None else delivered_s
    missed = []
    for start_s, end_s, other in meetings:
        copy = copies.get(other)
        if copy is None or not copy.holds(start_s, min(end_s, until_s)):
            continue
        from_s = max(start_s, copy.stored_s or start_s)
        to_s = min(end_s, copy.until_s, until_s)
        if to_s <= from_s:
            continue
        lost = [
            str(row["reason"])
            for row in found.rows
            if row["kind"] == Kind.DROP
            and from_s <= row["time_s"] <= to_s
            and {row["node"], row["peer"]} == {node, other}
        ]
        if delivered_s is None or to_s < delivered_s:
            missed.append(Missed(other, from_s, to_s, tuple(dict.fromkeys(lost))))
    return missed
