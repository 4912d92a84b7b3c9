"""A simulated run, written as live nodes write their traces: a folder for each node, with its rows in parts."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Level
from carrycast.trace.schema import LEVEL_KEY, VERSION, VERSION_KEY

BEGUN_S = 1_790_000_040.0
"""The start of a minute in 2026."""


class LiveParts:
    """The parts of each flush of all nodes. Time passes `pace` times as fast as in the simulation."""

    def __init__(self, scenario: Scenario, flushes: int, pace: float, seed: int = 11) -> None:
        outcome = run(scenario, seed, Level.FULL, None)
        trace, events, subscriptions = outcome.trace.table(), outcome.trace.events(), outcome.trace.subscriptions()
        self._trace = _scale_time(trace, "time_s", pace)
        self._events = _scale_time(events, "time_s", pace)
        self._subscriptions = _scale_time(_scale_time(subscriptions, "from_s", pace), "to_s", pace)
        self._nodes = sorted(set(trace["node"].to_pylist()) | set(subscriptions["node"].to_pylist()))
        self._step_s = scenario.duration_s * pace / flushes
        self.flushes = flushes

    def flush(self, folder: Path, number: int, level: Level = Level.FULL) -> None:
        """Write the parts of all nodes."""
        for node in self._nodes:
            self.flush_node(folder, number, node, level)

    def flush_node(self, folder: Path, number: int, node: int, level: Level = Level.FULL) -> None:
        """Write a node's rows since the last flush, and its current subscriptions."""
        home = folder / f"node-{node}"
        from_s, to_s = (BEGUN_S + self._step_s * one for one in (number, number + 1))
        if number == self.flushes - 1:
            to_s = float("inf")
        for name, table, column in (("trace", self._trace, "node"), ("events", self._events, "source")):
            mine = pc.and_(pc.equal(table[column], node), pc.greater_equal(table["time_s"], from_s))
            write_part(home / name, number, table.filter(pc.and_(mine, pc.less(table["time_s"], to_s))), level)
        known = self._subscriptions
        known = known.filter(pc.and_(pc.equal(known["node"], node), pc.less(known["from_s"], to_s)))
        ended = pc.if_else(pc.less(known["to_s"], to_s), known["to_s"], pa.scalar(None, pa.float64()))
        write_part(home / "subscriptions", 0, known.set_column(known.column_names.index("to_s"), "to_s", ended), level)


def write_part(folder: Path, number: int, table: pa.Table, level: Level = Level.FULL) -> Path:
    """Write a part and rename it into place when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {VERSION_KEY: str(VERSION).encode(), LEVEL_KEY: level.value.encode()}
    path = folder / f"part-{number:05d}.parquet"
    pq.write_table(table.replace_schema_metadata(said), folder / ".unfinished")
    (folder / ".unfinished").rename(path)
    return path


def _scale_time(table: pa.Table, column: str, pace: float) -> pa.Table:
    times = pc.add(pc.multiply(table[column], pace), BEGUN_S)
    return table.set_column(table.column_names.index(column), column, times)
