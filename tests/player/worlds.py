"""Small runs, whose traces can be checked row by row."""

import base64
import gzip
from pathlib import Path

from carrycast.analysis.player.columns import Columns
from carrycast.analysis.player.scene import Scene
from carrycast.analysis.player.story import TraceTables
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.overrides import apply_overrides
from carrycast.sim.scenario.scenario import Scenario, load_scenario
from carrycast.trace import Level, Row

EXAMPLES = Path(__file__).parents[2] / "examples"
SEED = 3
RANGE_M = 60.0
MOMENTS_S = (12.5, 31.0, 57.25)


def scenario(protocol: str = "epidemic") -> Scenario:
    """Ten nodes for a minute: one crashes and restarts, a link is cut, a node is cut off, and frames are lost."""
    faults = [
        {"kind": "crash", "nodes": [4], "at_s": 20.0, "down_s": 15.0},
        {"kind": "link_cut", "between": [5, 0], "at_s": 30.0, "for_s": 5.0},
        {"kind": "cut_off", "nodes": [1], "at_s": 50.0, "for_s": 8.0},
        {"kind": "loss", "probability": 0.1},
    ]
    return apply_overrides(
        load_scenario(EXAMPLES / "quick.toml"), {"protocol": protocol, "faults": faults, "radio.range_m": RANGE_M}
    )


def record_run(protocol: str = "epidemic") -> tuple[Scene, TraceTables, list[Row]]:
    """Run the scenario; return its scene, its tables and the rows of its trace."""
    one = scenario(protocol)
    trace = run(one, SEED, Level.FULL).trace
    table = trace.table()
    rows = [Row(*list(row.values())[1:]) for row in table.to_pylist()]
    return Scene.of(one, SEED), TraceTables(table, trace.events(), trace.subscriptions()), rows


def is_cut(pair: tuple[int, int], time_s: float) -> bool:
    """Whether the faults above cut a pair."""
    return (pair == (0, 5) and 30 <= time_s < 35) or (1 in pair and 50 <= time_s < 58)


class Truth:
    """The state of an event at a moment, computed from the rows of a trace one by one."""

    def __init__(self, rows: list[Row], event: str, time_s: float) -> None:
        self.reached: set[int] = set()
        self.carries: set[int] = set()
        self.delivered: set[int] = set()
        self.down: set[int] = set()
        self.stored: dict[int, int] = {}
        self.drops = self.frames = 0
        self.served: set[tuple[int, str]] = set()
        for row in sorted(rows, key=lambda row: row.time_s):
            if row.time_s <= time_s:
                self._add(row, event)

    def _add(self, row: Row, event: str) -> None:
        node, mine = row.node, row.event == event
        if row.kind in ("publish", "receive", "store", "deliver") and mine:
            self.reached.add(node)
        if row.kind == "store" and row.event is not None:
            self.stored[node] = self.stored.get(node, 0) + 1
            self.carries |= {node} if mine else set()
        if row.kind == "evict" and row.event is not None:
            self.stored[node] -= 1
            self.carries -= {node} if mine else set()
        if row.kind == "deliver" and row.event is not None:
            self.served.add((node, row.event))
            self.delivered |= {node} if mine else set()
        if row.kind in ("crash", "start"):
            self.stored[node] = 0
            self.carries.discard(node)
        if row.kind in ("crash", "stop"):
            self.down.add(node)
        if row.kind == "start":
            self.down.discard(node)
        self.drops += row.kind == "drop"
        self.frames += row.kind in ("send", "retry") and row.traffic != "discovery"


class ColumnReader:
    """Reads columns as the page does: decompressed, number by number."""

    def __init__(self, columns: Columns) -> None:
        self.data = gzip.decompress(base64.b64decode(columns.text()))
        self.places = columns.places()

    def __getitem__(self, name: str) -> list[int]:
        at, count, rising = self.places[name]
        found: list[int] = []
        total = 0
        for _ in range(count):
            value = shift = 0
            while True:
                byte = self.data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            number = (value >> 1) ^ -(value & 1)
            total = total + number if rising else number
            found.append(total)
        return found
