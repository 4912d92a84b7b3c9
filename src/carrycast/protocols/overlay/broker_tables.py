"""The four tables of a broker about brokers [002 §3.3].

BNT, the broker neighbor table; BIT, the broker information table; BTT, the broker topology table; BRT, the broker
routing table.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.messages import MAX_PATH, Item, Round
from carrycast.protocols.overlay.rules import Graph, Reached, Row, overlay_graph, shortest_paths
from carrycast.protocols.overlay.settings import OverlaySettings

MAX_JUMP = 1 << 20
"""A broker's counter grows by one in a period: one that has leaped further is forged."""

MAX_INCARNATIONS = 1 << 16

NEWS = 0.1
"""A change of load or battery by more is worth an item of its own."""


class Information(NamedTuple):
    """A row of the broker information table."""

    load: float
    spent: float
    free_bytes: int | None
    heard: float


class PathLinks(NamedTuple):
    """Every link of some paths: of which path it is, from where, to where; for measures over many at once."""

    targets: list[NodeId]
    path: NDArray[np.intp]
    start: NDArray[np.intp]
    end: NDArray[np.intp]


class Brokers:
    """The tables of one broker."""

    def __init__(self, node: NodeId, settings: OverlaySettings, incarnation: int) -> None:
        self._node = node
        self._settings = settings
        self._version = Round(incarnation, 0)
        self.neighbors: dict[NodeId, float] = {}
        """BNT: distance of each overlay neighbor."""
        self.information: dict[NodeId, Information] = {}
        """BIT."""
        self.topology: dict[NodeId, tuple[Round, Row]] = {}
        """BTT: the newest row of each broker."""
        self._changed: dict[NodeId, None] = {}
        self._graph: Graph | None = None
        self._reached: dict[NodeId, dict[NodeId, Reached]] = {}
        self._links: PathLinks | None = None

    # [002 §2.3 step 1]
    def look_around(self, now: float, near: Mapping[NodeId, float], own: Information) -> bool:
        """Links are dropped and added; whether anything is otherwise than before."""
        self.neighbors = dict(near)
        told = self.information.get(self._node)
        known = self.topology.get(self._node)
        if known is not None and told is not None and known[1].links == near:
            # Others forget a broker that is silent, and choose by load: now and then it is news that nothing is.
            is_fresh = now - known[1].made < self._settings.item_s / 3
            if is_fresh and abs(own.load - told.load) <= NEWS and abs(own.spent - told.spent) <= NEWS:
                return False
        self.information[self._node] = own
        self._version = self._version.next()
        self._put(now, self._node, self._version, near, own)
        return True

    # [002 §2.3 step 2]
    def changes(self, now: float) -> list[Item]:
        """The items that have changed since the last call."""
        items = []
        for broker in self._changed:
            version, row = self.topology[broker]
            about = self.information[broker]
            age_s = max(now - row.made, 0.0)
            items.append(
                Item(broker, version, age_s, tuple(row.links.items()), about.load, about.spent, about.free_bytes)
            )
        self._changed.clear()
        return items

    def mark_all(self) -> None:
        """A new neighbor knows nothing: all of the table is news to it."""
        self._changed = dict.fromkeys(self.topology)

    # [002 §2.3 step 3] "replaces old items with new ones, and marks the items changed".
    def receive(self, now: float, items: Iterable[Item]) -> list[str]:
        """Take in what a neighbor passes on; why some of it was not."""
        refused = []
        for item in items:
            known = self.topology.get(item.broker)
            if item.broker == self._node:
                # What it says is older than what this broker knows of itself, or from before it started anew.
                if item.version > self._version:
                    refused.append("item_forged")
            elif known is not None and item.version <= known[0]:
                refused.append("item_outdated")
            elif known is not None and self._is_absurd(known[0], item.version):
                refused.append("item_absurd")
            elif known is None and len(self.topology) >= self._settings.max_brokers:
                refused.append("topology_full")
            else:
                about = Information(item.load, item.spent, item.free_bytes, now)
                self.information[item.broker] = about
                self._put(now - item.age_s, item.broker, item.version, dict(item.links), about)
        return refused

    def hear(self, now: float, broker: NodeId, load: float) -> None:
        """A broker has told its load besides."""
        known = self.information.get(broker)
        if known is not None or len(self.information) < self._settings.max_brokers:
            about = known or Information(load, 0.0, None, now)
            self.information[broker] = about._replace(load=load, heard=now)

    def forget_older(self, time: float) -> None:
        """Soft state: who has not been heard of since a time is no more."""
        gone = [one for one, (_, row) in self.topology.items() if row.made < time and one != self._node]
        for broker in gone:
            del self.topology[broker]
            self.information.pop(broker, None)
            self._changed.pop(broker, None)
        if gone:
            self._graph = None

    def assume(self, rows: Mapping[NodeId, Row]) -> None:
        """Take the whole topology as an oracle has it."""
        self.topology = {broker: (self._version, row) for broker, row in rows.items()}
        self.neighbors = dict(rows[self._node].links) if self._node in rows else {}
        self._changed.clear()
        self._graph = None

    def load(self, broker: NodeId) -> float:
        """What it last said; of one that has said nothing, none."""
        known = self.information.get(broker)
        return 0.0 if known is None else known.load

    # [002 §2.3 step 4] BRT, rebuilt when somebody asks after a change.
    def reached(self, source: NodeId) -> dict[NodeId, Reached]:
        """The shortest paths from a broker, by what this one knows."""
        if self._graph is None:
            rows = {broker: row for broker, (_, row) in self.topology.items()}
            self._graph = overlay_graph(rows, self._settings.link_rule, self._settings.weight_hops)
            self._reached.clear()
            self._links = None
        found = self._reached.get(source)
        if found is None:
            found = self._reached[source] = shortest_paths(self._graph, source)
        return found

    def path(self, target: NodeId) -> tuple[NodeId, ...]:
        """The brokers on the way to one, itself the last. Deviation: without a known path straight to it."""
        reached = self.reached(self._node).get(target)
        return (target,) if reached is None or len(reached.path) > MAX_PATH - 2 else reached.path

    def known_links(self) -> PathLinks:
        """The links of all known paths from here, as arrays; the same until something changes."""
        reached = self.reached(self._node)
        if self._links is None:
            targets: list[NodeId] = []
            path, start, end = [], [], []
            for target, one in reached.items():
                if one.path:
                    at = self._node
                    for other in one.path:
                        path.append(len(targets))
                        start.append(at)
                        end.append(other)
                        at = other
                    targets.append(target)
            indices = [np.array(one, dtype=np.intp) for one in (path, start, end)]
            self._links = PathLinks(targets, *indices)
        return self._links

    def _put(
        self, made: float, broker: NodeId, version: Round, links: Mapping[NodeId, float], about: Information
    ) -> None:
        settings = self._settings
        price = settings.weight_load * about.load + settings.weight_energy * about.spent
        row = Row(made, {other: length for other, length in links.items() if other != broker}, price)
        self.topology[broker] = (version, row)
        self._changed[broker] = None
        self._graph = None

    def _is_absurd(self, known: Round, said: Round) -> bool:
        if said.incarnation == known.incarnation:
            return said.number - known.number > MAX_JUMP
        return said.incarnation - known.incarnation > MAX_INCARNATIONS or said.number > MAX_JUMP
