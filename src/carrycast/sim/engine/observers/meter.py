"""The metrics of a run, counted while it runs. The pipeline computes the same from a trace: see docs/metrics.md."""

import math
from array import array
from typing import TypeAlias

from carrycast.core.matching.eligibility import admits
from carrycast.core.matching.filter import Filter
from carrycast.core.matching.index import FilterIndex
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.wire import Traffic, carried
from carrycast.sim.engine.observers.airtime import airtime_us
from carrycast.sim.engine.observers.outputs import Made
from carrycast.sim.radio.medium import Frame, Reach

_DISCOVERY = Traffic.DISCOVERY

Metrics: TypeAlias = dict[str, float | int | None]


# What a node may be to an event, as bits.
_ELIGIBLE, _REACHED, _MET = 1, 2, 4


class _Audience:
    """Who should get one event, who has, and which nodes have met it: a byte for each node, so that it stays near."""

    __slots__ = ("counted", "marks", "published_s", "through")

    def __init__(self, event: Event, published_s: float, counted: bool, eligible: set[NodeId], nodes: int) -> None:
        self.published_s = published_s
        self.counted = counted
        self.marks = bytearray(nodes)
        for node in eligible:
            self.marks[node] = _ELIGIBLE
        self.marks[event.id.source] |= _MET
        self.through: dict[SubscriptionId, bool] | None = None
        """The subscriptions to which it is owed through their processors, and whether they had it."""


class Meter:
    """Counts. `measure_from_s` to `measure_to_s` is the window in which an event must be published to be counted."""

    def __init__(self, nodes: int, measure_from_s: float, measure_to_s: float) -> None:
        self.nodes = nodes
        self._from_s = measure_from_s
        self._to_s = measure_to_s
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._audiences: dict[EventId, _Audience] = {}
        self._inputs: dict[EventId, list[_Audience]] = {}
        """What a processor made -> the audiences of what it was made of."""
        self._delays_s = array("d")
        self._hops = 0
        self._stored: dict[NodeId, int] = {}
        self._bytes = [0, 0, 0]
        self._sent = [0, 0, 0]
        self._airtime_us = 0
        self.published = 0
        self.eligible = 0
        self.receptions = 0
        self.forwards = 0
        self.duplicates = 0
        self.buffer_peak = 0

    def __len__(self) -> int:
        """How many events may still be delivered."""
        return len(self._audiences)

    def counts(self, published_s: float) -> bool:
        """Whether an event published then is counted."""
        return self._from_s <= published_s <= self._to_s

    def on_subscribe(self, subscription: Subscription) -> None:
        """A subscription stands from now on."""
        self._subscriptions[subscription.id] = subscription
        self._index.add(subscription.id, Filter(subscription.filter))

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        """It no longer does."""
        if self._subscriptions.pop(id, None) is not None:
            self._index.remove(id)

    def on_event(self, now_s: float, event: Event, made: Made | None = None) -> None:
        """An event exists. Eligible are the nodes, other than its source, with a subscription that it serves now; and
        each subscription with a processor that is to be given it, unless that has just made it."""
        eligible, through = set(), {}
        for id in self._index.match(event.attributes):
            subscription = self._subscriptions[id]
            if id.subscriber == event.id.source or not admits(event, subscription):
                continue
            if subscription.processor is None:
                eligible.add(id.subscriber)
            elif made is None or made.processor != subscription.processor:
                through[id] = False
        counted = self.counts(now_s)
        audience = self._audiences[event.id] = _Audience(event, now_s, counted, eligible, self.nodes)
        if through:
            audience.through = through
        if made is not None:
            owed = [self._audiences[one.id] for one in made.inputs if one.id in self._audiences]
            self._inputs[event.id] = [one for one in owed if one.through is not None and one.counted]
        if counted:
            self.published += 1
            self.eligible += len(eligible) + len(through)

    def on_lease_over(self, id: EventId) -> None:
        """Nothing more will happen to the event."""
        self._audiences.pop(id, None)
        self._inputs.pop(id, None)

    def on_frame(self, frame: Frame, reach: Reach) -> None:
        """A transmission and everybody who heard it."""
        traffic, event = carried(frame.message)
        transmissions = frame.attempts * frame.copies
        self._bytes[traffic] += transmissions * len(frame.encoded)
        self._sent[traffic] += transmissions
        self._airtime_us += transmissions * airtime_us(len(frame.encoded), frame.unicast)
        if traffic is _DISCOVERY:
            return
        self.receptions += len(reach.nodes)
        if event is not None:
            audience = self._audiences.get(event)
            if audience is None:
                return
            if audience.counted:
                self.forwards += frame.copies
            marks, again = audience.marks, 0
            for node in reach.nodes:
                mark = marks[node]
                if mark & _MET:
                    again += 1
                else:
                    marks[node] = mark | _MET
            self.duplicates += again

    def on_deliver(self, now_s: float, id: SubscriptionId, event: EventId, hops: int) -> None:
        """To a local application; the first delivery at an eligible node counts, and, through its processor, to an
        eligible subscription."""
        subscription, node = self._subscriptions[id], id.subscriber
        if subscription.processor is not None:
            self._on_deliver_through(now_s, id, event, hops)
            return
        audience = self._audiences.get(event)
        if audience is None or not audience.counted or audience.marks[node] & (_ELIGIBLE | _REACHED) != _ELIGIBLE:
            return
        audience.marks[node] |= _REACHED
        self._delays_s.append(round(now_s - audience.published_s, 6))
        self._hops += hops

    def _on_deliver_through(self, now_s: float, id: SubscriptionId, event: EventId, hops: int) -> None:
        for audience in self._inputs.get(event, ()):
            if audience.through is not None and audience.through.get(id) is False:
                audience.through[id] = True
                self._delays_s.append(round(now_s - audience.published_s, 6))
                self._hops += hops

    def on_stored(self, node: NodeId, change: int) -> None:
        """A node keeps a copy more or less."""
        stored = self._stored[node] = self._stored.get(node, 0) + change
        if stored > self.buffer_peak:
            self.buffer_peak = stored

    def on_crash(self, node: NodeId) -> int:
        """What a node kept in memory is gone; how many copies that was."""
        return self._stored.pop(node, 0)

    def metrics(self) -> Metrics:
        """All of them. What does not exist, such as the delay when nothing arrived, is None."""
        delays_s = sorted(self._delays_s)
        delivered = len(delays_s)
        return {
            "published": self.published,
            "eligible": self.eligible,
            "delivered": delivered,
            "delivery_ratio": delivered / self.eligible if self.eligible else None,
            "delay_mean_s": math.fsum(delays_s) / delivered if delivered else None,
            "delay_p50_s": quantile(delays_s, 0.5),
            "delay_p95_s": quantile(delays_s, 0.95),
            "hops_mean": self._hops / delivered if delivered else None,
            "transmissions": self._sent[Traffic.DATA] + self._sent[Traffic.CONTROL],
            "control_transmissions": self._sent[Traffic.CONTROL],
            "receptions": self.receptions,
            "forwards": self.forwards,
            "duplicates": self.duplicates,
            "data_bytes": self._bytes[Traffic.DATA],
            "control_bytes": self._bytes[Traffic.CONTROL],
            "discovery_bytes": self._bytes[Traffic.DISCOVERY],
            "total_bytes": sum(self._bytes),
            "airtime_us": self._airtime_us,
            "buffer_peak": self.buffer_peak,
        }


def quantile(ordered: list[float], q: float) -> float | None:
    """The q-quantile of sorted values, interpolated linearly (as Spark's `percentile` has it)."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * q
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
