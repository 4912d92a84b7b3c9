"""The timeline of one event for one node, from a trace and its contacts. `timeline_text` prints it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.analysis.explain.arrival import ContactIndex, path_to
from carrycast.analysis.explain.copies import Copy, CopyFold, path_of_copies
from carrycast.analysis.player import Scene
from carrycast.core.matching import Filter, FilterError
from carrycast.errors import UserError
from carrycast.trace import (
    DropFact,
    DropFold,
    Kind,
    Level,
    TraceFact,
    facts_of_rows,
    find_traces,
    fold_facts,
    read_rows,
    trace_level,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc

LINKS = (Kind.LINK_UP, Kind.LINK_DOWN, Kind.STOP, Kind.CRASH)

Rows = Sequence[Mapping[str, Any]]

Step = tuple[int, float]
"""A node, and when it received the event."""


@dataclass(frozen=True)
class EventRecords:
    """The records of one event in the trace of one run."""

    run: str
    event: Mapping[str, Any]
    facts: Sequence[TraceFact]
    """All facts of the event, and crashes, ordered by time."""
    subscriptions: Rows
    """The subscriptions of the node."""
    contacts: ContactIndex
    seen: bool
    """Whether `contacts` are the links that nodes observed, not the contacts of the simulated run."""
    end_s: float
    """The time of the last row of the trace."""


@dataclass(frozen=True)
class MissedContact:
    """A contact of the node with a carrier in which the event was not transferred, and the drops in it."""

    holder: int
    from_s: float
    to_s: float
    drops: tuple[str, ...]


@dataclass(frozen=True)
class Timeline:
    """The history of an event with respect to a node. Times are those of the trace's clock."""

    run: str
    event: str
    node: int
    source: int
    published_s: float
    ends_s: float
    """The end of the lease, or of the trace if that is earlier."""
    attributes: Mapping[str, Any]
    wanted: str | None
    """The filter of the node that the event matches; None if the node should not receive the event."""
    unwanted: str
    """Why the node should not receive the event."""
    copies: list[Copy]
    delivered_s: float | None
    way: list[Step]
    """The path of the event to the node, if it arrived."""
    missed: list[MissedContact]
    contacts: int
    """The contacts of the node from the publication until the end of the lease."""
    drops: dict[str, int]
    """The number of drops of the event at any node, by reason."""
    last: Copy | None
    """The copy that was stored longest."""
    earliest: list[Step]
    """An earliest path that the contacts allow; empty if there is none."""
    seen: bool
    """Whether the contacts are links that nodes observed."""

    @property
    def possible(self) -> bool:
        """Whether the contacts allow a delivery in time."""
        return bool(self.earliest)


def event_timeline(path: Path, event: str, node: int) -> Timeline:
    """Return the timeline of an event for a node from a trace."""
    found = _read_records(path, event, node)
    copies = fold_facts(CopyFold(), found.facts)
    published_s = float(found.event["time_s"])
    lease_s = found.event["lease_s"]
    ends_s = min(inf if lease_s is None else published_s + lease_s, max(found.end_s, published_s))
    source = int(found.event["source"])
    wanted, unwanted = _find_filter(found, node)
    mine = copies.get(node)
    delivered_s = None if mine is None else mine.delivered_s
    arrivals = found.contacts.earliest_arrivals(source, published_s, ends_s)
    contacts = found.contacts.contacts_of(node, published_s, ends_s)
    held = [copy for copy in copies.values() if copy.stored_s is not None]
    drops = DropFold()
    fold_facts(drops, found.facts)
    return Timeline(
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
        way=path_of_copies(node, copies) if mine is not None and mine.got_s is not None else [],
        missed=_find_missed_contacts(found, node, copies, contacts, delivered_s),
        contacts=len(contacts),
        drops=dict(sorted(drops.drops.items())),
        last=max(held, key=lambda copy: (copy.until_s, copy.node), default=None),
        earliest=path_to(node, arrivals) if node in arrivals and arrivals[node].time_s < ends_s else [],
        seen=found.seen,
    )


def _find_filter(found: EventRecords, node: int) -> tuple[str | None, str]:
    """Return the filter of a node that the event matches, or None and the reason why the node should not receive it."""
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


def _find_missed_contacts(
    found: EventRecords,
    node: int,
    copies: Mapping[int, Copy],
    contacts: list[tuple[float, float, int]],
    delivered_s: float | None,
) -> list[MissedContact]:
    """Return the contacts of a node with carriers of the event in which the event was not transferred."""
    until_s = inf if delivered_s is None else delivered_s
    missed = []
    for start_s, end_s, other in contacts:
        copy = copies.get(other)
        if copy is None or not copy.holds(start_s, min(end_s, until_s)):
            continue
        from_s = max(start_s, copy.stored_s or start_s)
        to_s = min(end_s, copy.until_s, until_s)
        if to_s <= from_s:
            continue
        lost = [
            fact.reason
            for fact in found.facts
            if isinstance(fact, DropFact) and from_s <= fact.time_s <= to_s and {fact.node, fact.peer} == {node, other}
        ]
        if delivered_s is None or to_s < delivered_s:
            missed.append(MissedContact(other, from_s, to_s, tuple(dict.fromkeys(lost))))
    return missed


def _read_records(path: Path, event: str, node: int) -> EventRecords:
    """Read the records of an event; raise a UserError if the trace has no such event, or keeps too little."""
    folders = find_traces([path])
    for folder in folders:
        if trace_level(folder) != Level.FULL:
            raise UserError(
                f"{folder}: keeps {trace_level(folder)}, which does not say who held an event; record it again with "
                '`carrycast run SCENARIO --trace DIR --level full`, on live nodes with level = "full" in [trace]'
            )
    field = _field
    found = [row for folder in folders for row in read_rows(folder, "events", field("event") == event)]
    runs = sorted({row["run"] for row in found})
    if not runs:
        known = [row["event"] for folder in folders for row in read_rows(folder, "events", None, 3)][:3]
        example = f", such as {' or '.join(known)}" if known else ""
        raise UserError(f"{path}: there is no event {event} in it; events are named SOURCE:NUMBER{example}")
    if len(runs) > 1:
        raise UserError(f"{path}: event {event} is in {len(runs)} runs ({', '.join(runs[:3])}); name the trace of one")
    run = runs[0]
    rows, subscriptions, changes, last_s = [], [], [], 0.0
    scene = Scene.load(folders[0])
    for folder in folders:
        here = field("run") == run
        rows += read_rows(folder, "trace", here & (field("event") == event))
        subscriptions += read_rows(folder, "subscriptions", here & (field("node") == node))
        kept = read_rows(folder, "trace", here & field("kind").isin([kind.value for kind in LINKS]))
        changes += kept
        rows += [row for row in kept if row["kind"] == Kind.CRASH]
        last_s = max([last_s, *(row["time_s"] for row in kept), *(row["time_s"] for row in rows)])
    rows.sort(key=lambda row: row["time_s"])
    changes.sort(key=lambda row: row["time_s"])
    nodes = {row["node"] for row in changes}
    if nodes and node not in nodes and not subscriptions:
        raise UserError(f"{path}: there is no node {node} in it")
    contacts = _contacts_of_links(changes) if scene is None else ContactIndex.of(scene.plan, scene.wires)
    facts = list(facts_of_rows(rows, {event: found[0]}, {}))
    return EventRecords(run, found[0], facts, subscriptions, contacts, scene is None, last_s)


def _field(name: str) -> "pc.Expression":
    import pyarrow.compute as pc

    return pc.field(name)


def _contacts_of_links(changes: Rows) -> ContactIndex:
    """Return the contacts that links show. A pair is in contact while either node has the link; open links never
    end."""
    open_s: dict[tuple[int, int], float] = {}
    found: list[tuple[int, int, float, float]] = []

    def close(pair: tuple[int, int], end_s: float) -> None:
        start_s = open_s.pop(pair, None)
        if start_s is not None and end_s > start_s:
            found.append((min(pair), max(pair), start_s, end_s))

    for row in changes:
        node, time_s = row["node"], row["time_s"]
        if row["kind"] == Kind.LINK_UP:
            open_s.setdefault((node, row["peer"]), time_s)
        elif row["kind"] == Kind.LINK_DOWN:
            close((node, row["peer"]), time_s)
        else:
            for pair in [pair for pair in open_s if pair[0] == node]:
                close(pair, time_s)
    for pair in list(open_s):
        close(pair, inf)
    merged: list[tuple[int, int, float, float]] = []
    for a, b, start_s, end_s in sorted(found):
        if merged and merged[-1][:2] == (a, b) and start_s <= merged[-1][3]:
            merged[-1] = (a, b, merged[-1][2], max(end_s, merged[-1][3]))
        else:
            merged.append((a, b, start_s, end_s))
    return ContactIndex(merged)
