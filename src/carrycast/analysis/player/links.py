"""The links of a run: from the contact plan if movement is known, else as nodes reported them."""

from typing import TYPE_CHECKING

import numpy as np

from carrycast.analysis.player.columns import Integers
from carrycast.analysis.player.scene import Scene
from carrycast.analysis.player.story import MICROSECONDS, Stage
from carrycast.trace import Kind

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
