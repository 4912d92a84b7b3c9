"""The delivery report of a network: each pair of an event and a subscription is delivered, waiting, or dropped for a
named reason.

The report is made from the full traces of all nodes after traffic has stopped. An event that is not delivered is
waiting if a node holds a copy whose lease has not expired; else the end of the last known copy gives the reason of the
drop.
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
"""The kinds of rows that the report needs. Others may be numerous."""
KILLED = "killed"
"""The node with the last copy was killed and did not recover the copy from its store."""
NOT_HEARD = "not_heard"
"""The event was sent and no receiver got it: sockets or the radio lost it."""
NOBODY = "nobody_in_reach"
"""The event was never sent."""
NO_LONGER = "not_kept"
"""The event was received, and neither stored nor forwarded."""


class DeliveryReport(NamedTuple):
    """The numbers of pairs of an event and a subscription that should receive it."""

    pairs: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    """By reason."""

    @property
    def exact(self) -> bool:
        """Whether the numbers add up."""
        return self.delivered + self.waiting + sum(self.dropped.values()) == self.pairs


class _CopyState:
    """The nodes that hold a copy of one event, and the reason why the last removed copy ended."""

    __slots__ = ("ended", "holders", "received", "sent")

    def __init__(self) -> None:
        self.holders: dict[int, None] = {}
        self.ended: str | None = None
        self.sent = False
        self.received = False


class DeliveryReportFold(OrderedFold[DeliveryReport]):
    """Makes the report from the facts of a network with known events and subscriptions. A subscription that continues
    over several starts of its node counts once."""

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
            # A killed node loses its copies, unless facts after its next start say that it recovered them.
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
    """Make the report from the rows of all traces, ordered by time."""
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
    """Return each subscription once, from its first start to its last end."""
    found: dict[str, dict[str, Any]] = {}
    for one in subscriptions:
        known = found.setdefault(one["subscription"], dict(one))
        if one["from_s"] >= known["from_s"]:
            known["to_s"] = one["to_s"]
        known["from_s"] = min(known["from_s"], one["from_s"])
    return list(found.values())
