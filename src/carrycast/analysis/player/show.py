"""Makes the player's page from a scenario or a trace.

Links come from the contact plan if movement is known, else from what nodes reported.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.analysis.player.columns import Columns, Integers
from carrycast.analysis.player.cuts import Cut
from carrycast.analysis.player.html import page
from carrycast.analysis.player.scene import Ground, Scene
from carrycast.analysis.player.story import MICROSECONDS, Stage, TraceTables, write_story
from carrycast.errors import UserError
from carrycast.sim.engine import run
from carrycast.sim.scenario import Scenario
from carrycast.trace import Kind, Level, find_traces, read_trace

if TYPE_CHECKING:
    import pyarrow as pa

Links = tuple[Integers, Integers, Integers, Integers]
"""a, b, start and end in microseconds, ordered by start."""


def find_links(scene: Scene | None, trace: "pa.Table", stage: Stage) -> Links:
    """Find all links of a run, sorted by start."""
    return _sort_links(_collect_reported_links(trace, stage) if scene is None else _collect_scene_links(scene))


def _collect_scene_links(scene: Scene) -> Links:
    plan, end = scene.plan, round(scene.ground.duration_s * MICROSECONDS)
    wires = np.array(scene.wires, dtype=np.int64).reshape(-1, 2)
    always = np.zeros(len(wires), dtype=np.int64)
    start, until = (np.rint(time_s * MICROSECONDS).astype(np.int64) for time_s in (plan.start_s, plan.end_s))
    return (
        np.concatenate((plan.a, wires[:, 0])),
        np.concatenate((plan.b, wires[:, 1])),
        np.concatenate((start, always)),
        np.concatenate((until, always + end)),
    )


def _collect_reported_links(trace: "pa.Table", stage: Stage) -> Links:
    """A pair is linked while one of the two nodes reports the link. A node that stops or restarts has no links."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = [kind.value for kind in (Kind.LINK_UP, Kind.LINK_DOWN, Kind.START, Kind.STOP, Kind.CRASH)]
    rows = trace.filter(pc.is_in(trace.column("kind"), pa.array(kinds)))
    time, node, peer = (
        stage.microseconds(rows.column("time_s")),
        stage.nodes(rows.column("node")),
        stage.nodes(rows.column("peer")),
    )
    kind = rows.column("kind").to_pylist()
    interface = rows.column("interface").to_pylist()
    reports = _LinkReports()
    for row in np.argsort(time, kind="stable").tolist():
        now, here, there = int(time[row]), int(node[row]), int(peer[row])
        if there < 0:
            reports.forget(here, now)
        elif kind[row] == Kind.LINK_UP:
            reports.add(here, there, interface[row], now)
        elif kind[row] == Kind.LINK_DOWN:
            reports.remove(here, there, interface[row], now)
    a, b, start, until = np.array(reports.links(round(stage.duration_s * MICROSECONDS)), np.int64).reshape(-1, 4).T
    return a, b, start, until


class _LinkReports:
    """The links that nodes currently report, and all links so far."""

    def __init__(self) -> None:
        # The neighbors and interfaces of each node, and the start of each pair's link.
        self._neighbors: dict[int, dict[tuple[int, str | None], None]] = {}
        self._since: dict[tuple[int, int], int] = {}
        self._count: dict[tuple[int, int], int] = {}
        self._links: list[tuple[int, int, int, int]] = []

    def add(self, here: int, there: int, interface: str | None, now: int) -> None:
        neighbors = self._neighbors.setdefault(here, {})
        if (there, interface) not in neighbors:
            neighbors[there, interface] = None
            pair = (min(here, there), max(here, there))
            self._since.setdefault(pair, now)
            self._count[pair] = self._count.get(pair, 0) + 1

    def remove(self, here: int, there: int, interface: str | None, now: int) -> None:
        if (there, interface) not in self._neighbors.get(here, {}):
            return
        del self._neighbors[here][there, interface]
        pair = (min(here, there), max(here, there))
        self._count[pair] -= 1
        if not self._count[pair]:
            since = self._since.pop(pair)
            if now > since:
                self._links.append((*pair, since, now))

    def forget(self, here: int, now: int) -> None:
        for there, interface in list(self._neighbors.get(here, {})):
            self.remove(here, there, interface, now)

    def links(self, end: int) -> list[tuple[int, int, int, int]]:
        """All links so far. Current links last to the end."""
        return self._links + [(*pair, since, end) for pair, since in self._since.items()]


def _sort_links(links: Links) -> Links:
    a, b, start, end = links
    order = np.lexsort((b, a, start))
    return a[order], b[order], start[order], end[order]


MAX_RUNS = 2
CENTIMETERS = 100
MAX_TIME_S = 1e12
"""Later than any clock, and in microseconds within 64 bits."""


Watching = Callable[[Scenario], AbstractContextManager[Callable[[float], None] | None]]
"""Makes the callback that a run reports its progress to."""


def _report_nothing(scenario: Scenario) -> AbstractContextManager[None]:
    return nullcontext()


def player_of_scenario(scenarios: Mapping[str, Scenario], seed: int, watching: Watching = _report_nothing) -> str:
    """The page of one or two protocols, by their labels, on the same movement."""
    scenario = next(iter(scenarios.values()))
    runs = {}
    for label, one in scenarios.items():
        with watching(one) as progress:
            trace = run(one, seed, Level.FULL, on_progress=progress).trace
        runs[label] = TraceTables(trace.table(), trace.events(), trace.subscriptions())
    return make_player(f"{scenario.name}, seed {seed}", Scene.of(scenario, seed), runs)


def player_of_trace(path: Path) -> str:
    """The page of a recorded run. The traces of all nodes of a live network are one run."""
    import pyarrow as pa

    folders = find_traces([path])
    read = [read_trace(folder) for folder in folders]
    tables = TraceTables(*(pa.concat_tables(parts) for parts in zip(*read, strict=True)))
    names = sorted(
        {*tables.trace.column("run").unique().to_pylist(), *tables.events.column("run").unique().to_pylist()}
    )
    if len(names) > 1:
        raise UserError(f"{path}: holds {len(names)} runs ({', '.join(names[:3])} ...); give the trace of one")
    for table in (tables.trace, tables.events):
        times = table.column("time_s").to_numpy()
        if not (np.abs(times) < MAX_TIME_S).all():
            raise UserError(f"{path}: has times that are none, as nan and inf are; record the trace again")
    name = names[0] if names else path.name
    return make_player(name, Scene.load(folders[0]) if len(folders) == 1 else None, {name: tables})


def make_player(title: str, scene: Scene | None, runs: Mapping[str, TraceTables]) -> str:
    """The page of some runs on one scene."""
    header, columns = player_data(title, scene, runs)
    return page(title, header, columns.text())


def player_data(title: str, scene: Scene | None, runs: Mapping[str, TraceTables]) -> tuple[dict[str, Any], Columns]:
    """The data of the page: a header, and columns of numbers."""
    assert 1 <= len(runs) <= MAX_RUNS, "the page has room for two"
    stage = _make_stage(scene, list(runs.values()))
    columns = Columns()
    ground = scene.ground if scene is not None else _make_bare_ground(stage)
    if scene is not None and scene.moving is not None:
        _write_legs(columns, scene)
    a, b, start, end = find_links(scene, next(iter(runs.values())).trace, stage)
    columns.add("link.start", start, rising=True)
    columns.add("link.lasts", end - start)
    columns.add("link.a", a)
    columns.add("link.b", b)
    if scene is not None and scene.hearing is not None:
        for name, values in zip(scene.hearing._fields[1:], scene.hearing[1:], strict=True):
            columns.add(f"hears.{name}", values)
    _write_cuts(columns, [] if scene is None else scene.cuts)
    described = [
        {"label": label, "prefix": f"{place}.", **write_story(columns, f"{place}.", tables, stage)}
        for place, (label, tables) in enumerate(runs.items())
    ]
    plain = bool((stage.names == np.arange(len(stage.names))).all())
    header = {
        "title": title,
        # In whole microseconds as all other times, so that links that last to the end are shown at the end.
        "duration_s": round(stage.duration_s * MICROSECONDS) / MICROSECONDS,
        "nodes": len(stage.names),
        "names": None if plain else [str(name) for name in stage.names.tolist()],
        "area_m": ground.area_m,
        "roads": ground.roads,
        "buildings": ground.buildings,
        "hears_us": scene.hearing.step_us if scene is not None and scene.hearing is not None else None,
        "squares": ground.squares,
        "moves": ground.moves,
        "runs": described,
        "columns": columns.places(),
    }
    return header, columns


def _make_stage(scene: Scene | None, runs: Sequence[TraceTables]) -> Stage:
    if scene is not None:
        return Stage(np.arange(scene.ground.nodes), 0.0, scene.ground.duration_s)
    seen: list[Integers] = []
    times = [np.zeros(0)]
    for tables in runs:
        for column in (tables.trace.column("node"), tables.trace.column("peer"), tables.events.column("source")):
            seen.append(column.drop_null().to_numpy().astype(np.int64))
        seen.append(tables.subscriptions.column("node").to_numpy().astype(np.int64))
        times.append(tables.trace.column("time_s").to_numpy())
    time_s = np.concatenate(times)
    names = np.unique(np.concatenate(seen))
    if not len(time_s):
        return Stage(names, 0.0, 1.0)
    origin_s = float(np.floor(time_s.min()))
    return Stage(names, origin_s, max(float(time_s.max()) - origin_s, 1.0))


def _make_bare_ground(stage: Stage) -> Ground:
    """A ground without positions."""
    return Ground(nodes=len(stage.names), duration_s=stage.duration_s, area_m=None, moves=False)


def _write_cuts(columns: Columns, cuts: Sequence[Cut]) -> None:
    a, b, start, end = np.array(cuts, dtype=np.int64).reshape(-1, 4).T
    columns.add("cut.start", start, rising=True)
    columns.add("cut.lasts", end - start)
    columns.add("cut.a", a)
    columns.add("cut.b", b)


def _write_legs(columns: Columns, scene: Scene) -> None:
    """Store each leg relative to the end of the leg before it: most values are then 0."""
    moving = scene.moving
    assert moving is not None
    start, end = (np.rint(time_s * MICROSECONDS).astype(np.int64) for time_s in (moving.start_s, moving.end_s))
    lasts_s = moving.end_s - moving.start_s
    inner = np.ones(len(start), dtype=np.bool_)
    inner[moving.first[:-1][moving.first[:-1] < len(start)]] = False
    columns.add("leg.count", np.diff(moving.first))
    columns.add("leg.wait", start - np.where(inner, np.roll(end, 1), 0))
    columns.add("leg.lasts", end - start)
    for name, from_m, speed_mps in (("x", moving.x_m, moving.vx_mps), ("y", moving.y_m, moving.vy_mps)):
        begin = np.rint(from_m * CENTIMETERS).astype(np.int64)
        reached = np.rint((from_m + speed_mps * lasts_s) * CENTIMETERS).astype(np.int64)
        columns.add(f"leg.{name}", begin - np.where(inner, np.roll(reached, 1), 0))
        columns.add(f"leg.d{name}", reached - begin)
