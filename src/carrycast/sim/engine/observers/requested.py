"""The additional metrics that a scenario requests in `measure.more` (docs/requested-metrics.md)."""

from array import array
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from carrycast.core.matching import Filter, FilterIndex, admits
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.wire import Layer, Message, Traffic
from carrycast.sim.engine.kernel import US_PER_S
from carrycast.sim.radio import Frame
from carrycast.sim.scenario import RequestedMetric, aggregate
from carrycast.trace import (
    DeliverFact,
    DropFact,
    EvictFact,
    Kind,
    Metrics,
    NoteFact,
    OrderedFold,
    PublishFact,
    StoreFact,
    SubscribeFact,
    TraceFact,
    UnsubscribeFact,
)

# Constants, because looking up a member of an enumeration costs a call in every transmission.
_CONTROL, _DISCOVERY = Traffic.CONTROL, Traffic.DISCOVERY
MICROSECOND_S = 1e-6
"""The resolution of all times."""


_Members: TypeAlias = frozenset[NodeId] | None
"""The nodes of a metric; None for all nodes."""


class _Amounts:
    """Metrics of kind `values` and `routed`: values that protocols noted, and messages that they passed to routers."""

    def __init__(
        self, asked: Sequence[RequestedMetric], nodes: int, window_s: float, roles: Mapping[str, list[NodeId]]
    ) -> None:
        self._nodes = nodes
        self._window_s = window_s
        self._members: dict[str, _Members] = {
            entry.name: frozenset(roles[entry.role]) if entry.role else None for entry in asked
        }
        self._values: dict[str, list[tuple[RequestedMetric, array[float]]]] = {}
        """Kind of fact -> its metrics, each with the noted values."""
        for entry in asked:
            if entry.counts == "values":
                self._values.setdefault(entry.fact, []).append((entry, array("d")))
        self._wants_routed = any(entry.counts == "routed" for entry in asked)
        self._routed: dict[tuple[str, NodeId], tuple[int, int]] = {}
        """Message type and node -> the number of messages and their bytes."""

    def on_note(self, node: NodeId, fact: Fact) -> None:
        """A protocol noted a fact."""
        if fact.value is None:
            return
        for entry, values in self._values.get(fact.kind, ()):
            members = self._members[entry.name]
            if members is None or node in members:
                values.append(fact.value)

    def on_route(self, node: NodeId, message: str, size_bytes: int) -> None:
        """A protocol passed a message to its router."""
        if self._wants_routed:
            count, total_bytes = self._routed.get((message, node), (0, 0))
            self._routed[message, node] = (count + 1, total_bytes + size_bytes)

    def value(self, entry: RequestedMetric) -> float | int | None:
        """The value of one metric."""
        if entry.counts == "values":
            values = next(values for one, values in self._values[entry.fact] if one is entry)
            return aggregate(values, entry.of)
        members = self._members[entry.name]
        found = 0
        for (message, node), (count, size_bytes) in self._routed.items():
            if (not entry.messages or message in entry.messages) and (members is None or node in members):
                found += count if entry.unit == "messages" else size_bytes
        if entry.unit == "bits":
            found *= 8
        if entry.per == "run":
            return found
        share = (self._nodes if members is None else len(members)) * (
            self._window_s if entry.per == "node_second" else 1.0
        )
        # No nodes or a window of length 0: there is no rate.
        return found / share if share > 0 else None


class _NoPairs:
    """Counts nothing: for scenarios that do not request pairs of event and subscription."""

    def on_subscribe(self, subscription: Subscription) -> None:
        """A subscription begins."""

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription ends."""

    def on_event(self, now_s: float, event: Event) -> None:
        """A new event forms a pair with each matching subscription that exists now, also at its own node."""

    def on_deliver(self, id: SubscriptionId, event: EventId) -> None:
        """An event is delivered to a subscription."""

    def ratio(self) -> float | None:
        """Delivered pairs / all pairs; None if there are no pairs."""
        return None


class _SubscriptionPairs(_NoPairs):
    """Counts the pairs of the events published in a window.

    When a subscription ends, its undelivered events are missed, even if they were already on their way.
    """

    def __init__(self, from_s: float, to_s: float) -> None:
        self._from_s = from_s
        self._to_s = to_s
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._owed: dict[SubscriptionId, set[EventId]] = {}
        self._served = 0
        self._missed = 0

    def on_subscribe(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription
        self._index.add(subscription.id, Filter(subscription.filter))

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        if self._subscriptions.pop(id, None) is not None:
            self._index.remove(id)
            self._missed += len(self._owed.pop(id, ()))

    def on_event(self, now_s: float, event: Event) -> None:
        if self._from_s <= now_s <= self._to_s:
            for id in self._index.match(event.attributes):
                if admits(event, self._subscriptions[id]):
                    self._owed.setdefault(id, set()).add(event.id)

    def on_deliver(self, id: SubscriptionId, event: EventId) -> None:
        owed = self._owed.get(id)
        if owed is not None and event in owed:
            owed.remove(event)
            self._served += 1

    def ratio(self) -> float | None:
        pairs = self._served + self._missed + sum(len(owed) for owed in self._owed.values())
        return self._served / pairs if pairs else None


class RequestedMetrics(OrderedFold[Metrics]):
    """Computes the metrics of `measure.more`.

    The simulator calls the `on_` methods directly, because rows of a trace lack the messages passed to routers and the
    layers and types of frames.
    """

    reads = (PublishFact, SubscribeFact, UnsubscribeFact, DeliverFact, StoreFact, EvictFact, DropFact, NoteFact)

    def __init__(
        self,
        asked: Sequence[RequestedMetric],
        nodes: int,
        from_s: float,
        to_s: float,
        roles: Mapping[str, list[NodeId]] | None = None,
    ) -> None:
        # `Probes` samples the metrics of kind `probe`.
        self._asked = [entry for entry in asked if entry.counts != "probe"]
        self._amounts = _Amounts(self._asked, nodes, to_s - from_s, roles or {})
        self._nodes = nodes
        self._from_s = from_s
        self._to_s = to_s
        counted = [entry for entry in asked if entry.counts in ("facts", "missed", "ratio")]
        self._watched = {entry.fact for entry in counted} | {entry.against for entry in counted}
        self._facts: dict[str, int] = {}
        self._noted: dict[str, dict[EventId, None]] = {}
        """Kind of fact -> the events it was noted about."""
        self._published_s: dict[EventId, float] = {}
        self._sources: dict[EventId, tuple[EventId, ...]] = {}
        """Derived event -> the published events from which it was derived."""
        self._reached_s: dict[NodeId, dict[EventId, float]] = {node: {} for entry in asked for node in entry.nodes}
        """Node -> the published events that reached it, each with the time of its first delivery."""
        self._reached_any: dict[EventId, None] = {}
        self._load_bytes = 0
        self._bytes: dict[tuple[Layer, Traffic, type[Message]], list[int]] = {}
        """Layer, traffic class and type -> bytes in the measured window, without retransmissions and with them."""
        self._reports = 0
        self._forwards = 0
        self._standing: set[SubscriptionId] = set()
        """The current subscriptions, if the input are facts."""
        self.pairs = _SubscriptionPairs(from_s, to_s) if any(entry.counts == "pairs" for entry in asked) else _NoPairs()

    def on_event(self, now_s: float, event: Event) -> None:
        """An application published an event, or a processor derived one."""
        self.pairs.on_event(now_s, event)
        if not event.derived_from:
            self._published_s[event.id] = now_s
            return
        sources = [source for id in event.derived_from for source in self._sources_of(id)]
        self._sources[event.id] = tuple(dict.fromkeys(sources))

    def on_deliver(self, now_s: float, node: NodeId, event: EventId) -> None:
        """An event was delivered to an application."""
        reached = self._reached_s.get(node)
        for source in self._sources_of(event):
            if reached is not None:
                reached.setdefault(source, now_s)
            if source.source != node:
                self._reached_any[source] = None

    def on_note(self, now_s: float, node: NodeId, fact: Fact) -> None:
        """A protocol noted a fact."""
        if self._from_s <= now_s <= self._to_s:
            self._amounts.on_note(node, fact)
        if fact.kind in self._watched:
            self._facts[fact.kind] = self._facts.get(fact.kind, 0) + 1
            if fact.event is not None:
                self._noted.setdefault(fact.kind, {})[fact.event] = None

    def on_route(self, now_s: float, node: NodeId, message: Message, size_bytes: int) -> None:
        """A protocol passed a message to its router."""
        if self._from_s <= now_s <= self._to_s:
            self._amounts.on_route(node, type(message).__name__, size_bytes)

    def on_frame(self, frame: Frame, traffic: Traffic, event: EventId | None, receivers: int) -> None:
        """A transmission with all its attempts ended; `receivers` nodes received it."""
        message, size_bytes = frame.message, frame.copies * len(frame.encoded)
        if traffic is not _DISCOVERY:
            self._load_bytes += size_bytes
        if self._from_s <= frame.sent_us / US_PER_S <= self._to_s:
            if traffic is _CONTROL:
                self._reports += receivers
            if event is not None and any(self._is_counted(source) for source in self._sources_of(event)):
                self._forwards += frame.copies
            kind = (frame.layer, traffic, type(message))
            sums = self._bytes.get(kind)
            if sums is None:
                sums = self._bytes[kind] = [0, 0]
            sums[0] += size_bytes
            sums[1] += frame.attempts * size_bytes

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, PublishFact):
            self.on_event(fact.time_s, fact.event)
        elif isinstance(fact, SubscribeFact):
            self._standing.add(fact.subscription.id)
            self.pairs.on_subscribe(fact.subscription)
        elif isinstance(fact, UnsubscribeFact):
            self._standing.discard(fact.subscription)
            self.pairs.on_unsubscribe(fact.subscription)
        elif isinstance(fact, DeliverFact):
            # A live node may still deliver an event that was on its way when the subscription ended.
            if fact.subscription in self._standing:
                self.on_deliver(fact.time_s, fact.node, fact.event)
                self.pairs.on_deliver(fact.subscription, fact.event)
        elif isinstance(fact, NoteFact):
            note = Fact(fact.kind, fact.event, fact.peer, fact.reason, fact.value)
            self.on_note(fact.time_s, fact.node, note)
        elif isinstance(fact, StoreFact):
            self.on_note(fact.time_s, fact.node, Fact(Kind.STORE, fact.event))
        elif isinstance(fact, EvictFact):
            self.on_note(fact.time_s, fact.node, Fact(Kind.EVICT, fact.event, reason=fact.reason))
        elif isinstance(fact, DropFact) and fact.by_protocol:
            self.on_note(fact.time_s, fact.node, Fact(Kind.DROP, fact.event, fact.peer, fact.reason))

    def result(self) -> Metrics:
        return {entry.name: self._compute(entry) for entry in self._asked}

    def _sources_of(self, id: EventId) -> tuple[EventId, ...]:
        return self._sources.get(id, (id,))

    def _compute(self, entry: RequestedMetric) -> float | int | None:
        if entry.counts in ("values", "routed"):
            return self._amounts.value(entry)
        if entry.counts == "load":
            return self._load_bytes / self._nodes
        if entry.counts == "bytes":
            return self._count_bytes(entry)
        if entry.counts == "reports":
            return self._reports
        if entry.counts == "forwards":
            return self._forwards
        if entry.counts == "reached":
            return sum(self._is_counted(source) for source in self._reached_any)
        if entry.counts == "ratio":
            whole = self._facts.get(entry.against, 0)
            return self._facts.get(entry.fact, 0) / whole if whole else None
        if entry.counts == "pairs":
            return self.pairs.ratio()
        if entry.counts == "facts":
            return len(self._noted.get(entry.fact, {})) if entry.distinct else self._facts.get(entry.fact, 0)
        count = self._count_missed if entry.counts == "missed" else self._count_reached
        counts = [count(entry, self._reached_s[node]) for node in entry.nodes]
        return counts[0] if len(counts) == 1 else sum(counts) / len(counts)

    def _count_bytes(self, entry: RequestedMetric) -> float | int | None:
        found = sum(
            sums[entry.repetitions]
            for (layer, traffic, kind), sums in self._bytes.items()
            if (not entry.layers or layer.name.lower() in entry.layers)
            and (not entry.traffic or traffic.name.lower() in entry.traffic)
            and (not entry.messages or kind.__name__ in entry.messages)
        )
        if entry.per == "run":
            return found
        seconds = self._to_s - self._from_s if entry.per == "node_second" else 1.0
        # A window of length 0 has no rate.
        return found / self._nodes / seconds if seconds > 0 else None

    def _count_missed(self, entry: RequestedMetric, reached_s: dict[EventId, float]) -> int:
        noted = dict.fromkeys(source for id in self._noted.get(entry.fact, {}) for source in self._sources_of(id))
        return sum(source not in reached_s for source in noted)

    def _count_reached(self, entry: RequestedMetric, reached_s: dict[EventId, float]) -> int:
        count = 0
        for source, time_s in reached_s.items():
            if self._is_counted(source):
                late_s = round(time_s - self._published_s[source], 6)
                count += entry.within_s is None or late_s <= entry.within_s + MICROSECOND_S / 2
        return count

    def _is_counted(self, source: EventId) -> bool:
        """Whether an event was published in the measured window."""
        return self._from_s <= self._published_s[source] <= self._to_s
