"""The delivery report of a whole network: each pair of an event and a subscription is delivered, waiting, or dropped
for a named reason.

It is made from the full traces of all nodes, once traffic has stopped. Every pair is one of the three, exactly: an
event that is not delivered waits if a node holds a copy whose lease runs; else the last known copy says how it ended.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from carrycast.core.model import EventId
from carrycast.trace import (
    CrashFact,
    DeliverFact,
    DropFact,
    Eligibility,
    EvictFact,
    FrameFact,
    Kind,
    OrderedFold,
    Record,
    StartFact,
    StoreFact,
    TraceFact,
    event_id,
    facts_of_rows,
    fold_facts,
)

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


class DeliveryReport(NamedTuple):
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


class _CopyState:
    """The nodes that hold a copy of one event, and how the last other copy ended."""

    __slots__ = ("ended", "holders", "received", "sent")

    def __init__(self) -> None:
        self.holders: dict[int, None] = {}
        self.ended: str | None = None
        self.sent = False
        self.received = False


class DeliveryReportFold(OrderedFold[DeliveryReport]):
    """Makes the report of a network whose events and subscriptions are known. A subscription that stood over several
    starts of its node is one."""

    reads = (DeliverFact, StoreFact, EvictFact, DropFact, FrameFact, CrashFact, StartFact)

    def __init__(self, events: Sequence[Record], subscriptions: Sequence[Record], end_s: float) -> None:
        self._events = events
        self._subscriptions = subscriptions
        self._end_s = end_s
        self._delivered: set[tuple[str, str]] = set()
        self._copies = {event_id(event["event"]): _CopyState() for event in events}
        self._by_node: dict[int, dict[EventId, None]] = {}

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, CrashFact | StartFact):
            # The copies of a killed node are gone, unless its next start says that it holds them again.
            for held in self._by_node.pop(fact.node, {}):
                self._copies[held].holders.pop(fact.node, None)
                self._copies[held].ended = KILLED
            return
        assert isinstance(fact, DeliverFact | StoreFact | EvictFact | DropFact | FrameFact)
        copies = None if fact.event is None else self._copies.get(fact.event)
        if copies is None or fact.event is None:
            return
        if isinstance(fact, DeliverFact):
            self._delivered.add((str(fact.subscription), str(fact.event)))
        elif isinstance(fact, StoreFact):
            copies.holders[fact.node] = None
            self._by_node.setdefault(fact.node, {})[fact.event] = None
        elif isinstance(fact, EvictFact):
            copies.holders.pop(fact.node, None)
            self._by_node.get(fact.node, {}).pop(fact.event, None)
            copies.ended = fact.reason or None
        elif isinstance(fact, DropFact):
            copies.ended = fact.reason or None
        else:
            copies.sent |= fact.frames > 0
            copies.received |= bool(fact.receivers)

    def result(self) -> DeliveryReport:
        copies = {str(id): state for id, state in self._copies.items()}
        return _count_pairs(self._events, self._subscriptions, self._delivered, copies, self._end_s)


def delivery_report(
    rows: Iterable[Record], events: Sequence[Record], subscriptions: Sequence[Record], end_s: float
) -> DeliveryReport:
    """The report from the rows of all traces, in the order in which they happened."""
    return fold_facts(DeliveryReportFold(events, subscriptions, end_s), facts_of_rows(rows, {}, {}))


def _count_pairs(
    events: Sequence[Record],
    subscriptions: Sequence[Record],
    delivered: set[tuple[str, str]],
    copies: Mapping[str, _CopyState],
    end_s: float,
) -> DeliveryReport:
    eligibility = Eligibility(_merge_subscriptions(subscriptions))
    pairs = had = waiting = 0
    dropped: Counter[str] = Counter()
    for event in events:
        for place in eligibility.find_subscriptions(event).tolist():
            id = eligibility.rows[place]["subscription"]
            pairs += 1
            state = copies[event["event"]]
            if (id, event["event"]) in delivered:
                had += 1
            elif state.holders and (event["lease_s"] is None or event["time_s"] + event["lease_s"] > end_s):
                waiting += 1
            else:
                dropped[_drop_reason(state)] += 1
    return DeliveryReport(pairs, had, waiting, dict(sorted(dropped.items())))


def _drop_reason(state: _CopyState) -> str:
    if state.holders:
        return "lease_over"
    if state.ended is not None:
        return state.ended
    if not state.sent:
        return NOBODY
    return NO_LONGER if state.received else NOT_HEARD


def _merge_subscriptions(subscriptions: Sequence[Record]) -> list[Record]:
    """Each subscription once, from its first start to its last end."""
    found: dict[str, dict[str, Any]] = {}
    for one in subscriptions:
        known = found.setdefault(one["subscription"], dict(one))
        if one["from_s"] >= known["from_s"]:
            known["to_s"] = one["to_s"]
        known["from_s"] = min(known["from_s"], one["from_s"])
    return list(found.values())
