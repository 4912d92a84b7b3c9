"""What is read of a trace for the story of one event: its rows, who wanted it, and who met whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.analysis.explain.arrival import Meetings
from carrycast.analysis.player.scene import Scene
from carrycast.errors import UserError
from carrycast.trace import Kind, Level
from carrycast.trace.files import find_traces, read_some, trace_level

if TYPE_CHECKING:
    import pyarrow.compute as pc

LINKS = (Kind.LINK_UP, Kind.LINK_DOWN, Kind.STOP, Kind.CRASH)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Evidence:
    """Of one event in one run."""

    run: str
    event: Mapping[str, Any]
    rows: Rows
    """All that the trace tells of the event, and of crashes, in the order of time."""
    subscriptions: Rows
    """Those of the node that is asked about."""
    meetings: Meetings
    seen: bool
    """Whether the meetings are links as the nodes saw them, and not the contacts of the run itself."""
    end_s: float
    """The last that the trace tells of anything."""


def gather(path: Path, event: str, node: int) -> Evidence:
    """Read what is needed; a UserError if the trace has no such event, or keeps too little."""
    folders = find_traces([path])
    for folder in folders:
        if trace_level(folder) != Level.FULL:
            raise UserError(
                f"{folder}: keeps {trace_level(folder)}, which does not say who held an event; record it again with "
                '`carrycast run SCENARIO --trace DIR --level full`, on live nodes with level = "full" in [trace]'
            )
    field = _field
    found = [row for folder in folders for row in read_some(folder, "events", field("event") == event)]
    runs = sorted({row["run"] for row in found})
    if not runs:
        known = [row["event"] for folder in folders for row in read_some(folder, "events", None, 3)][:3]
        example = f", such as {' or '.join(known)}" if known else ""
        raise UserError(f"{path}: there is no event {event} in it; events are named SOURCE:NUMBER{example}")
    if len(runs) > 1:
        raise UserError(f"{path}: event {event} is in {len(runs)} runs ({', '.join(runs[:3])}); name the trace of one")
    run = runs[0]
    rows, subscriptions, changes, last_s = [], [], [], 0.0
    scene = Scene.load(folders[0])
    for folder in folders:
        here = field("run") == run
        rows += read_some(folder, "trace", here & (field("event") == event))
        subscriptions += read_some(folder, "subscriptions", here & (field("node") == node))
        kept = read_some(folder, "trace", here & field("kind").isin([kind.value for kind in LINKS]))
        changes += kept
        rows += [row for row in kept if row["kind"] == Kind.CRASH]
        last_s = max([last_s, *(row["time_s"] for row in kept), *(row["time_s"] for row in rows)])
    rows.sort(key=lambda row: row["time_s"])
    changes.sort(key=lambda row: row["time_s"])
    nodes = {row["node"] for row in changes}
    if nodes and node not in nodes and not subscriptions:
        raise UserError(f"{path}: there is no node {node} in it")
    meetings = _linked(changes) if scene is None else Meetings.of(scene.plan, scene.wires)
    return Evidence(run, found[0], rows, subscriptions, meetings, scene is None, last_s)


def _field(name: str) -> "pc.Expression":
    import pyarrow.compute as pc

    return pc.field(name)


def _linked(changes: Rows) -> Meetings:
    """A pair is linked while either of it says so; what is open at the end stays so."""
    open_s: dict[tuple[int, int], float] = {}
    found: list[tuple[int, int, float, float]] = []

    def close(pair: tuple[int, int], end_s: float) -> None:
        start_s = open_s.pop(pair, None)
        if start_s is not None and end_s > start_s:
            found.append((min(pair), max(pair), start_s, end_s))

    for row in changes:
        node, time_s = row["node"], row["time_s"]
        if row["kind"] == Kind.LINK_UP:
            open_s.setdefault((node, row["peer"]), time_s)
        elif row["kind"] == Kind.LINK_DOWN:
            close((node, row["peer"]), time_s)
        else:
            for pair in [pair for pair in open_s if pair[0] == node]:
                close(pair, time_s)
    for pair in list(open_s):
        close(pair, inf)
    merged: list[tuple[int, int, float, float]] = []
    for a, b, start_s, end_s in sorted(found):
        if merged and merged[-1][:2] == (a, b) and start_s <= merged[-1][3]:
            merged[-1] = (a, b, merged[-1][2], max(end_s, merged[-1][3]))
        else:
            merged.append((a, b, start_s, end_s))
    return Meetings(merged)
