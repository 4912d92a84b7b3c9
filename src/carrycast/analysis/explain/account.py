"""What became of each event for each subscription, over a whole network: delivered, waiting, or dropped by a name.

From the full traces of all nodes, once traffic has stopped. Every pair is one of the three, exactly: what is not
delivered waits if a node holds a copy whose lease runs, and else the last copy that is known of tells how it ended.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from carrycast.core.matching import Filter, FilterIndex
from carrycast.trace import Kind
from carrycast.trace.eligible import owed

Record = Mapping[str, Any]

KINDS = frozenset(
    {Kind.PUBLISH, Kind.DELIVER, Kind.STORE, Kind.EVICT, Kind.DROP, Kind.SEND, Kind.RECEIVE, Kind.CRASH, Kind.START}
)
"""Rows that are looked at; of the others there may be many."""
KILLED = "killed"
"""The node that had the last copy was killed, and has not found it in its store."""
NOT_HEARD = "not_heard"
"""It was sent, and whoever was meant to hear it did not: the sockets or the air lost it."""
NOBODY = "nobody_in_reach"
"""It was never sent to anybody."""
NO_LONGER = "not_kept"
"""It arrived somewhere, and was neither kept nor sent on."""


class Account(NamedTuple):
    """Of all pairs of an event and a subscription that should have it."""

    pairs: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    """By reason."""

    @property
    def exact(self) -> bool:
        """Whether it adds up."""
        return self.delivered + self.waiting + sum(self.dropped.values()) == self.pairs


class _Fate:
    """Where copies of one event are, and how others ended."""

    __slots__ = ("ended", "holders", "received", "sent")

    def __init__(self) -> None:
        self.holders: dict[int, None] = {}
        self.ended: str | None = None
        self.sent = False
        self.received = False


def account(rows: Iterable[Record], events: Sequence[Record], subscriptions: Sequence[Record], end_s: float) -> Account:
    """Rows in the order in which they happened; a subscription that stood over several starts of its node is one."""
    delivered: set[tuple[str, str]] = set()
    fates: dict[str, _Fate] = {event["event"]: _Fate() for event in events}
    by_node: dict[int, dict[str, None]] = {}
    for row in rows:
        kind, id, node = row["kind"], row["event"], row["node"]
        if kind in (Kind.CRASH, Kind.START):
            # What a killed node held is gone, unless its next start says that it holds it again.
            for held in by_node.pop(node, {}):
                fates[held].holders.pop(node, None)
                fates[held].ended = KILLED
        fate = fates.get(id)
        if fate is None:
            continue
        if kind == Kind.DELIVER:
            delivered.add((row["subscription"], id))
        elif kind == Kind.STORE:
            fate.holders[node] = None
            by_node.setdefault(node, {})[id] = None
        elif kind == Kind.EVICT:
            fate.holders.pop(node, None)
            by_node.get(node, {}).pop(id, None)
            fate.ended = row["reason"]
        elif kind == Kind.DROP:
            fate.ended = row["reason"]
        elif kind == Kind.SEND:
            fate.sent = True
        elif kind == Kind.RECEIVE:
            fate.received = True
    return _counted(events, subscriptions, delivered, fates, end_s)


def _counted(
    events: Sequence[Record],
    subscriptions: Sequence[Record],
    delivered: set[tuple[str, str]],
    fates: Mapping[str, _Fate],
    end_s: float,
) -> Account:
    standing = _standing(subscriptions)
    index: FilterIndex[str] = FilterIndex()
    for id, one in standing.items():
        index.add(id, Filter(one["filter"]))
    pairs = had = waiting = 0
    dropped: Counter[str] = Counter()
    for event in events:
        for id in index.match(json.loads(event["attributes"])):
            if not owed(event, standing[id]):
                continue
            pairs += 1
            fate = fates[event["event"]]
            if (id, event["event"]) in delivered:
                had += 1
            elif fate.holders and (event["lease_s"] is None or event["time_s"] + event["lease_s"] > end_s):
                waiting += 1
            else:
                dropped[_end(fate)] += 1
    return Account(pairs, had, waiting, dict(sorted(dropped.items())))


def _end(fate: _Fate) -> str:
    if fate.holders:
        return "lease_over"
    if fate.ended is not None:
        return fate.ended
    if not fate.sent:
        return NOBODY
    return NO_LONGER if fate.received else NOT_HEARD


def _standing(subscriptions: Sequence[Record]) -> dict[str, Record]:
    """Each subscription once, from its first start to its last end."""
    found: dict[str, dict[str, Any]] = {}
    for one in subscriptions:
        if one["processor"] is not None:
            continue
        known = found.get(one["subscription"])
        if known is None:
            found[one["subscription"]] = {**one, "attributes": json.loads(one["attributes"])}
        else:
            known["from_s"] = min(known["from_s"], one["from_s"])
            known["to_s"] = one["to_s"] if one["from_s"] >= known["from_s"] else known["to_s"]
    return dict(found)
