"""The metrics of an emulated run, from the traces of its nodes: counted by the simulator's own meter and tally."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from carrycast.core.model import AccessPolicy, Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.sim.engine.observers.airtime import airtime_us
from carrycast.sim.engine.observers.meter import Meter, Metrics
from carrycast.sim.engine.observers.outputs import Made
from carrycast.sim.engine.observers.tally import Tally
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Kind, Trace

COUNTED_MORE = frozenset({"facts", "ratio", "values", "pairs", "missed", "sources", "reached"})
"""What of `measure.more` rows of live nodes tell."""
FACTS = frozenset({Kind.STORE.value, Kind.EVICT.value, Kind.DROP.value, Kind.PROCESSOR_ERROR.value})
NO_FACTS = frozenset(kind.value for kind in Kind) - FACTS

Row = Mapping[str, Any]


class Tables(NamedTuple):
    """What the nodes wrote, together: rows in the order in which they happened, times from the start of the run."""

    rows: list[Row]
    events: dict[str, Row]
    subscriptions: dict[str, Row]


def collected(traces: Iterable[Trace], zero_s: float, duration_s: float) -> Tables:
    """The traces of all nodes, as far as the run goes. Nothing is delivered before it was published, whatever two
    nodes' clocks say of microseconds."""
    rows: list[Row] = []
    events: dict[str, Row] = {}
    subscriptions: dict[str, Row] = {}
    for trace in traces:
        events |= {row["event"]: {**row, "time_s": row["time_s"] - zero_s} for row in trace.events().to_pylist()}
        subscriptions |= {row["subscription"]: row for row in trace.subscriptions().to_pylist()}
        rows += trace.table().to_pylist()
    kept: list[Row] = []
    for row in rows:
        time_s = round(row["time_s"] - zero_s, 6)
        if row["kind"] == Kind.DELIVER and row["event"] in events:
            time_s = max(time_s, round(events[row["event"]]["time_s"], 6))
        if time_s <= duration_s:
            kept.append({**row, "time_s": time_s})
    kept.sort(key=lambda row: (row["time_s"], row["kind"] == Kind.DELIVER))
    return Tables(kept, events, subscriptions)


def judged(scenario: Scenario, roles: Mapping[str, list[NodeId]], tables: Tables) -> Metrics:
    """Every usual metric, and those of `measure.more` that rows tell."""
    measure = scenario.measure
    from_s, to_s = measure.from_s, scenario.duration_s if measure.to_s is None else measure.to_s
    meter = Meter(scenario.nodes, from_s, to_s)
    asked = [entry for entry in measure.more if entry.counts in COUNTED_MORE]
    tally = Tally(asked, scenario.nodes, from_s, to_s, roles)
    witness = _Witness(meter, tally, tables)
    for row in tables.rows:
        witness.see(row)
    return meter.metrics() | _frames(tables, meter.counts) | tally.metrics()


class _Witness:
    """Tells the meter and the tally what rows say."""

    def __init__(self, meter: Meter, tally: Tally, tables: Tables) -> None:
        self._meter = meter
        self._tally = tally
        self._tables = tables
        self._events: dict[EventId, Event] = {}
        self._standing: set[SubscriptionId] = set()
        self._seers: dict[str, Callable[[Row], None]] = {
            Kind.SUBSCRIBE: self._subscribe,
            Kind.UNSUBSCRIBE: self._unsubscribe,
            Kind.PUBLISH: self._publish,
            Kind.DELIVER: self._deliver,
        }

    def see(self, row: Row) -> None:
        if row["kind"] in self._seers:
            self._seers[row["kind"]](row)
        elif row["kind"] not in NO_FACTS and row["message"] is None:
            self._note(row)

    def _subscribe(self, row: Row) -> None:
        said = self._tables.subscriptions[row["subscription"]]
        id = SubscriptionId(*_numbers(row["subscription"]))
        subscription = Subscription(
            id, said["filter"], attributes=json.loads(said["attributes"]), processor=said["processor"]
        )
        self._standing.add(id)
        self._tally.pairs.on_subscribe(subscription)
        self._meter.on_subscribe(subscription)

    def _unsubscribe(self, row: Row) -> None:
        id = SubscriptionId(*_numbers(row["subscription"]))
        self._standing.discard(id)
        self._tally.pairs.on_unsubscribe(id)
        self._meter.on_unsubscribe(id)

    def _publish(self, row: Row) -> None:
        event, processor = _event(self._tables.events[row["event"]]), self._tables.events[row["event"]]["processor"]
        self._events[event.id] = event
        made = None
        if processor is not None:
            made = Made(processor, tuple(self._events[id] for id in event.derived_from if id in self._events), 0)
        self._meter.on_event(row["time_s"], event, made)
        self._tally.on_event(row["time_s"], event)

    def _deliver(self, row: Row) -> None:
        id, event = SubscriptionId(*_numbers(row["subscription"])), EventId(*_numbers(row["event"]))
        if id in self._standing:
            self._meter.on_deliver(row["time_s"], id, event, row["hops"])
            self._tally.on_deliver(row["time_s"], row["node"], event)
            self._tally.pairs.on_deliver(id, event)

    def _note(self, row: Row) -> None:
        event = None if row["event"] is None else EventId(*_numbers(row["event"]))
        fact = Fact(row["kind"], event, row["peer"], row["reason"] or "", row["value"])
        self._tally.on_fact(row["time_s"], row["node"], fact)
        if event is not None and fact.kind in (Kind.STORE, Kind.EVICT):
            self._meter.on_stored(row["node"], 1 if fact.kind == Kind.STORE else -1)


def _event(row: Row) -> Event:
    derived = tuple(EventId(*_numbers(text)) for text in (row["derived_from"] or "").split())
    access = None if row["access"] is None else AccessPolicy(row["access"])
    id = EventId(*_numbers(row["event"]))
    return Event(id, json.loads(row["attributes"]), time_s=row["time_s"], access=access, derived_from=derived)


def _frames(tables: Tables, counts: Callable[[float], bool]) -> Metrics:
    """Everything counted in frames and bytes, as docs/metrics.md has it."""
    sends, received = (Kind.SEND, Kind.RETRY), [row for row in tables.rows if row["kind"] == Kind.RECEIVE]
    sent = [row for row in tables.rows if row["kind"] in sends]
    heard = [row for row in received if row["event"] in tables.events]
    met = {(row["event"], row["node"]) for row in heard if row["node"] != tables.events[row["event"]]["source"]}
    forwards = [row for row in sent if row["kind"] == Kind.SEND and row["event"] in tables.events]
    return {
        "transmissions": sum(row["class"] != "discovery" for row in sent),
        "control_transmissions": sum(row["class"] == "control" for row in sent),
        "receptions": sum(row["class"] != "discovery" for row in received),
        "forwards": sum(counts(tables.events[row["event"]]["time_s"]) for row in forwards),
        "duplicates": len(heard) - len(met),
        **{f"{name}_bytes": _bytes(sent, name) for name in ("data", "control", "discovery")},
        "total_bytes": _bytes(sent),
        "airtime_us": sum(airtime_us(row["size_bytes"], row["peer"] is not None) for row in sent),
    }


def _bytes(sent: Sequence[Row], traffic: str | None = None) -> int:
    return sum(row["size_bytes"] for row in sent if traffic is None or row["class"] == traffic)


def _numbers(text: str) -> tuple[int, int]:
    node, _, sequence = text.partition(":")
    return int(node), int(sequence)
