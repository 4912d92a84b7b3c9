"""The metrics of an emulated run, from the traces of its nodes: the folds of the simulator, over facts from rows."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.sim.engine import RequestedMetrics, Window
from carrycast.sim.scenario import Scenario
from carrycast.trace import BUILT_IN, Fold, Kind, Metrics, Record, Trace, facts_of_rows, installed_folds, usual_metrics

COUNTED_MORE = frozenset({"facts", "ratio", "values", "pairs", "missed", "sources", "reached"})
"""The kinds of `measure.more` that rows of live nodes tell."""


class LabTables(NamedTuple):
    """What the nodes wrote, together: rows in the order in which they happened, times from the start of the run."""

    rows: list[Record]
    events: dict[str, Record]
    subscriptions: dict[str, Record]


def collect_tables(traces: Iterable[Trace], zero_s: float, duration_s: float) -> LabTables:
    """The traces of all nodes, as far as the run goes. Nothing is delivered before it was published, whatever two
    nodes' clocks say of microseconds."""
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
    # At one time, what a node does with an event follows its publication.
    kept.sort(key=lambda row: (row["time_s"], row["kind"] != Kind.PUBLISH, row["kind"] == Kind.DELIVER))
    return LabTables(kept, events, subscriptions)


def emulation_metrics(scenario: Scenario, roles: Mapping[str, list[NodeId]], tables: LabTables) -> Metrics:
    """Every usual metric, and those of `measure.more` that rows tell."""
    measure = scenario.measure
    window = Window(measure.from_s, scenario.duration_s if measure.to_s is None else measure.to_s)
    asked = [entry for entry in measure.more if entry.counts in COUNTED_MORE]
    requested = RequestedMetrics(asked, scenario.nodes, *window, roles)
    usual = [fold() for fold in BUILT_IN]
    installed = [fold() for fold in installed_folds()]
    folds: list[Fold[Metrics]] = [*usual, *installed, requested]
    # A live node does not know which window is measured; a publication has the time of its row.
    events = {id: {**event, "counted": window.counts(event["time_s"])} for id, event in tables.events.items()}
    for fact in facts_of_rows(tables.rows, events, tables.subscriptions):
        for fold in folds:
            if isinstance(fact, fold.reads):
                fold.on_fact(fact)
    found = usual_metrics(usual)
    for more in (*installed, requested):
        found |= more.result()
    return found
