"""The delivery ratio, delays and hops of deliveries to the nodes that should get an event (docs/metrics.md)."""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from carrycast.core.matching import Filter, FilterIndex, admits
from carrycast.core.model import Event, EventId, NodeId, ProcessorId, Subscription, SubscriptionId
from carrycast.trace.facts import DeliverFact, PublishFact, SubscribeFact, TraceFact, UnsubscribeFact
from carrycast.trace.folds.batch import (
    Floats,
    Integers,
    RunTables,
    TraceBatch,
    code_of,
    first_of_each,
    number_values,
    pair_numbers,
)
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics, quantile
from carrycast.trace.folds.partials import EventPartials, Marks, Partials, concatenate_columns, make_marks
from carrycast.trace.schema import Kind

if TYPE_CHECKING:
    import pyarrow as pa

_ELIGIBLE, _REACHED = 1, 2


class Audience:
    """The eligible nodes of one event, and those that have received it, as a mark for each node."""

    __slots__ = ("marks", "published_s", "through")

    def __init__(self, published_s: float, nodes: int | None, through: dict[SubscriptionId, bool]) -> None:
        self.published_s = published_s
        self.marks: bytearray | Marks = make_marks(nodes)
        self.through = through
        """The subscriptions eligible through their processors, and whether they have received the event."""


class DeliveryFold(MergeableFold, EventPartials):
    """The delivery ratio: counts eligible pairs of event and node, and the first delivery to each.

    For a subscription with a processor the pair is (event, subscription), and the delivery is that of the processor's
    output. If `nodes` is given, node ids are below it.
    """

    reads = (SubscribeFact, UnsubscribeFact, PublishFact, DeliverFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "published": MetricInfo("events published in the measured window"),
        "eligible": MetricInfo("(event, subscriber) pairs that should be served"),
        "delivered": MetricInfo("eligible pairs that were served"),
        "delivery_ratio": MetricInfo("delivered / eligible", real=True),
        "delay_mean_s": MetricInfo("mean time from publication to first delivery", real=True),
        "delay_p50_s": MetricInfo("median time from publication to first delivery", real=True),
        "delay_p95_s": MetricInfo("0.95 quantile of the time from publication to first delivery", real=True),
        "hops_mean": MetricInfo("mean number of hops of a first delivery", real=True),
    }
    needs_frames = False
    width = 4
    """The columns of an entry: node, part, place, hops; besides its time and its subscription."""

    def __init__(self, nodes: int | None = None) -> None:
        super().__init__()
        self._nodes = nodes
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._audiences: dict[EventId, Audience] = {}
        """The audiences of counted events."""
        self._inputs: dict[EventId, list[Audience]] = {}
        """The output of a processor -> the audiences of its input events."""
        self._published = 0
        self._eligible = 0
        self._delays_s = array("d")
        self._hops = 0

    @property
    def delays_s(self) -> Sequence[float]:
        """The delays of the served pairs, in the order of their deliveries."""
        return self._delays_s

    def __len__(self) -> int:
        """The number of events that may still be delivered."""
        return len(self._audiences)

    def on_subscribe(self, subscription: Subscription) -> None:
        """A subscription begins."""
        self._subscriptions[subscription.id] = subscription
        self._index.add(subscription.id, Filter(subscription.filter))

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription ends."""
        if self._subscriptions.pop(id, None) is not None:
            self._index.remove(id)

    def on_publish(self, now_s: float, event: Event, counted: bool, processor: ProcessorId | None) -> None:
        """An event is published. Eligible are the nodes, except its source, with a matching subscription at this time,
        and each matching subscription with a processor, unless this processor has produced the event."""
        if processor is not None:
            inputs = (self._audiences.get(id) for id in event.derived_from)
            self._inputs[event.id] = [one for one in inputs if one is not None and one.through]
        if not counted:
            return
        eligible: set[NodeId] = set()
        through: dict[SubscriptionId, bool] = {}
        for id in self._index.match(event.attributes):
            subscription = self._subscriptions[id]
            if id.subscriber == event.id.source or not admits(event, subscription):
                continue
            if subscription.processor is None:
                eligible.add(id.subscriber)
            elif processor != subscription.processor:
                through[id] = False
        self._add_audience(now_s, event.id, eligible, through)
        self._published += 1
        self._eligible += len(eligible) + len(through)

    def _add_audience(
        self, now_s: float, event: EventId, eligible: set[NodeId], through: dict[SubscriptionId, bool]
    ) -> None:
        audience = self._audiences[event] = Audience(now_s, self._nodes, through)
        for node in eligible:
            audience.marks[node] = _ELIGIBLE

    def on_deliver(self, now_s: float, id: SubscriptionId, event: EventId, hops: int) -> None:
        """An event is delivered to an application. The first delivery counts for each eligible node, and for each
        eligible subscription with a processor."""
        subscription = self._subscriptions.get(id)
        if subscription is None:
            return
        if subscription.processor is not None:
            self._on_deliver_output(now_s, id, event, hops)
            return
        audience = self._audiences.get(event)
        if audience is None or audience.marks[id.subscriber] != _ELIGIBLE:
            return
        audience.marks[id.subscriber] = _ELIGIBLE | _REACHED
        self._delays_s.append(round(now_s - audience.published_s, 6))
        self._hops += hops

    def _on_deliver_output(self, now_s: float, id: SubscriptionId, event: EventId, hops: int) -> None:
        for audience in self._inputs.get(event, ()):
            if audience.through.get(id) is False:
                audience.through[id] = True
                self._delays_s.append(round(now_s - audience.published_s, 6))
                self._hops += hops

    def add_deliveries(self, delays_s: Sequence[float], hops: int) -> None:
        """Add first deliveries with their delays and their sum of hops."""
        self._delays_s.extend(delays_s)
        self._hops += hops

    def forget(self, event: EventId) -> None:
        """Forget an event that can no longer be delivered."""
        self._audiences.pop(event, None)
        self._inputs.pop(event, None)

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, DeliverFact):
            self.on_deliver(fact.time_s, fact.subscription, fact.event, fact.hops)
        elif isinstance(fact, PublishFact):
            self.on_publish(fact.time_s, fact.event, fact.counted, fact.processor)
        elif isinstance(fact, SubscribeFact):
            self.on_subscribe(fact.subscription)
        elif isinstance(fact, UnsubscribeFact):
            self.on_unsubscribe(fact.subscription)

    def on_batch(self, batch: TraceBatch) -> None:
        """Keep the first delivery of each event to each node and subscription."""
        rows = np.flatnonzero((batch.kind == code_of(Kind.DELIVER)) & (batch.event >= 0))
        if not len(rows):
            return
        time_s, by = batch.rows["time_s"].take(rows).to_numpy(), batch.rows["subscription"].take(rows)
        through, names = number_values(by)
        key = (batch.event[rows] * len(batch.nodes) + batch.node[rows]) * (len(names) + 1) + through
        first = first_of_each(key, time_s, batch.part[rows], batch.place[rows])
        rows = rows[first]
        hops = batch.rows["hops"].take(rows).fill_null(0).to_numpy()
        entries = np.column_stack([batch.nodes[batch.node[rows]], batch.part[rows], batch.place[rows], hops])
        to = _decode_strings(by.take(first))
        self.partials.append(Partials(batch.events, batch.event[rows], entries.astype(np.int64), time_s[first], to))

    def resolve(self, tables: RunTables) -> None:
        self._published += int(tables.counted.sum())
        for pairs in delivery_pairs(tables, self.partials):
            self._eligible += len(pairs.event)
            self._delays_s.extend(pairs.delay_s[pairs.delivered].tolist())
            self._hops += int(pairs.hops[pairs.delivered].sum())
        self.partials.clear()

    def merge(self, other: Self) -> None:
        self.partials += other.partials
        self._published += other._published
        self._eligible += other._eligible
        self._delays_s.extend(other._delays_s)
        self._hops += other._hops

    def result(self) -> Metrics:
        delays_s = sorted(self._delays_s)
        delivered = len(delays_s)
        return {
            "published": self._published,
            "eligible": self._eligible,
            "delivered": delivered,
            "delivery_ratio": delivered / self._eligible if self._eligible else None,
            "delay_mean_s": math.fsum(delays_s) / delivered if delivered else None,
            "delay_p50_s": quantile(delays_s, 0.5),
            "delay_p95_s": quantile(delays_s, 0.95),
            "hops_mean": self._hops / delivered if delivered else None,
        }


class DeliveryPairs(NamedTuple):
    """Eligible pairs of counted events, and the first delivery of each pair."""

    event: Integers
    """The index of the event in the table of events."""
    node: Integers
    """The subscriber; or the index of the subscription, if it has a processor."""
    delivered: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    delay_s: Floats
    """0 for a pair without a delivery."""
    hops: Integers
    through: bool
    """Whether `node` is the index of a subscription with a processor."""


def delivery_pairs(tables: RunTables, partials: Sequence[Partials]) -> Iterator[DeliveryPairs]:
    """All eligible pairs of counted events of one run: first of nodes, then of subscriptions with processors."""
    eligibility = tables.eligibility
    event, entries, time_s, to = _collect_deliveries(tables, partials)
    processed = {row["subscription"]: n for n, row in enumerate(eligibility.rows) if row["processor"] is not None}
    through = np.array([processed.get(name, -1) for name in to] if processed else np.full(len(to), -1), dtype=np.int64)
    counted: list[int] = np.flatnonzero(tables.counted).tolist()
    nodes = [eligibility.find_nodes(tables.events[place]) for place in counted]
    wanted = np.concatenate([np.zeros(0, np.int64), *nodes])
    owner = np.repeat(np.array(counted, dtype=np.int64), [len(one) for one in nodes])
    plain = through < 0
    yield _match_deliveries(owner, wanted, event[plain], entries[plain], time_s[plain], tables.published_s, False)
    if not processed:
        return
    # The output of a processor serves the pairs of its inputs. There the subscription takes the place of the node.
    inputs = [[tables.number[name] for name in _split_inputs(one) if name in tables.number] for one in tables.events]
    made = np.flatnonzero(~plain)
    source = [inputs[place] for place in event[made]]
    again = np.repeat(made, [len(one) for one in source])
    owners = np.array([place for one in source for place in one], dtype=np.int64)
    given = entries[again].copy()
    given[:, 0] = through[again]
    pairs = [(place, one) for place in counted for one in eligibility.find_processed(tables.events[place]).tolist()]
    asked = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    yield _match_deliveries(asked[0], asked[1], owners, given, time_s[again], tables.published_s, True)


def _collect_deliveries(
    tables: RunTables, partials: Sequence[Partials]
) -> tuple[Integers, Integers, Floats, Sequence[str | None]]:
    """The deliveries of events in the table: event, entry, time and subscription of each."""
    empty = np.zeros(0, dtype=np.int64), np.zeros((0, DeliveryFold.width), dtype=np.int64), np.zeros(0)
    pieces = [(tables.find_places(one.events)[one.owner], one.ints, one.floats) for one in partials]
    event, entries, time_s = concatenate_columns(pieces, empty)
    to = [name for one in partials if one.texts is not None for name in one.texts.to_pylist()]
    known = event >= 0
    return (
        event[known],
        entries[known],
        time_s[known],
        [name for name, is_known in zip(to, known, strict=True) if is_known],
    )


def _match_deliveries(
    owner: Integers,
    wanted: Integers,
    event: Integers,
    entries: Integers,
    time_s: Floats,
    published_s: Floats,
    through: bool,
) -> DeliveryPairs:
    """The eligible pairs (`owner`, `wanted`), with the first delivery of each."""
    many = np.concatenate([entries[:, 0], wanted])
    given, asked = pair_numbers(event, entries[:, 0], many), pair_numbers(owner, wanted, many)
    first = first_of_each(given, time_s, entries[:, 1], entries[:, 2])
    place = np.searchsorted(given[first], asked)
    delivered = np.append(given[first], -1)[place] == asked
    row = np.append(first, 0)[place] if len(first) else np.zeros(len(asked), dtype=np.int64)
    delay_s, hops = np.zeros(len(asked)), np.zeros(len(asked), dtype=np.int64)
    row = row[delivered]
    # Times are whole microseconds, and so are their differences; rounding removes floating-point noise.
    late_s = (time_s[row] - published_s[owner[delivered]]).tolist()
    delay_s[delivered] = [round(value, 6) for value in late_s]
    hops[delivered] = entries[row, 3]
    return DeliveryPairs(owner, wanted, delivered, delay_s, hops, through)


def _split_inputs(event: Mapping[str, object]) -> Sequence[str]:
    return () if event["derived_from"] is None else str(event["derived_from"]).split(" ")


def _decode_strings(column: "pa.ChunkedArray") -> "pa.Array":
    import pyarrow as pa

    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return found.cast(pa.string())
