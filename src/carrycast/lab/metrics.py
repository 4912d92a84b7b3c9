"""The metrics of an emulated run: the simulator's folds over the facts in the traces of its nodes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.sim.engine import RequestedMetrics, Window
from carrycast.sim.scenario import Scenario
from carrycast.trace import BUILT_IN, Fold, Kind, Metrics, Record, Trace, facts_of_rows, more_folds, usual_metrics

SUPPORTED_MEASURES = frozenset({"facts", "ratio", "values", "pairs", "missed", "sources", "reached"})
"""The kinds of `measure.more` that can be computed from the rows of live nodes."""


class LabTables(NamedTuple):
    """The rows of all nodes in order of time, counted from the start of the run, and their events and subscriptions."""

    rows: list[Record]
    events: dict[str, Record]
    subscriptions: dict[str, Record]


def collect_tables(traces: Iterable[Trace], zero_s: float, duration_s: float) -> LabTables:
    """Merge the traces of all nodes up to the end of the run.

    The clocks of two nodes may differ by microseconds, so a delivery or reception is set to no earlier than the
    publication of its event.
    """
    rows: list[Record] = []
    events: dict[str, Record] = {}
    subscriptions: dict[str, Record] = {}
    for trace in traces:
        events |= {row["event"]: {**row, "time_s": row["time_s"] - zero_s} for row in trace.events().to_pylist()}
        subscriptions |= {row["subscription"]: row for row in trace.subscriptions().to_pylist()}
        rows += trace.table().to_pylist()
    kept: list[Record] = []
    for row in rows:
        time_s = round(row["time_s"] - zero_s, 6)
        if row["kind"] in (Kind.DELIVER, Kind.RECEIVE) and row["event"] in events:
            time_s = max(time_s, round(events[row["event"]]["time_s"], 6))
        if time_s <= duration_s:
            kept.append({**row, "time_s": time_s})
    # Of rows with the same time, publications come first and deliveries last.
    kept.sort(key=lambda row: (row["time_s"], row["kind"] != Kind.PUBLISH, row["kind"] == Kind.DELIVER))
    return LabTables(kept, events, subscriptions)


def compute_metrics(scenario: Scenario, roles: Mapping[str, list[NodeId]], tables: LabTables) -> Metrics:
    """The metrics of every run, and those of `measure.more` that rows support."""
    measure = scenario.measure
    window = Window(measure.from_s, scenario.duration_s if measure.to_s is None else measure.to_s)
    measures = [entry for entry in measure.more if entry.counts in SUPPORTED_MEASURES]
    requested = RequestedMetrics(measures, scenario.nodes, *window, roles)
    usual = [fold() for fold in BUILT_IN]
    installed = [fold() for fold in more_folds(bool(scenario.flow))]
    folds: list[Fold[Metrics]] = [*usual, *installed, requested]
    # A live node does not know the measured window, so `counted` is computed here.
    events = {id: {**event, "counted": window.counts(event["time_s"])} for id, event in tables.events.items()}
    for fact in facts_of_rows(tables.rows, events, tables.subscriptions):
        for fold in folds:
            if isinstance(fact, fold.reads):
                fold.on_fact(fact)
    found = usual_metrics(usual)
    for more in (*installed, requested):
        found |= more.result()
    return found
