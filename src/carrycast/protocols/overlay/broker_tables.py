"""The four tables of a broker about brokers [002 §3.3].

BNT, the broker neighbor table; BIT, the broker information table; BTT, the broker topology table; BRT, the broker
routing table.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.messages import MAX_PATH, SequenceNumber, TopologyItem
from carrycast.protocols.overlay.rules import BrokerPath, OverlayGraph, TopologyRow, build_graph, find_shortest_paths
from carrycast.protocols.overlay.settings import OverlaySettings

MAX_BROKERS = 1024
"""The most brokers in the tables of a broker."""
MAX_JUMP = 1 << 20
"""A broker's sequence number grows by one in a period: one that has jumped further is forged."""
MAX_INCARNATIONS = 1 << 16
SIGNIFICANT_CHANGE = 0.1
"""A larger change of load or battery is propagated even if no link has changed."""


class BrokerInformation(NamedTuple):
    """A row of the broker information table."""

    load: float
    battery_used: float
    free_bytes: int | None
    heard: float


class PathLinks(NamedTuple):
    """All links of some paths as arrays, for computations over many paths: the path of each link and its two ends."""

    targets: list[NodeId]
    path: NDArray[np.intp]
    start: NDArray[np.intp]
    end: NDArray[np.intp]


class BrokerTables:
    """The tables of one broker."""

    def __init__(self, node: NodeId, settings: OverlaySettings, incarnation: int) -> None:
        self._node = node
        self._settings = settings
        self._version = SequenceNumber(incarnation, 0)
        self.neighbors: dict[NodeId, float] = {}
        """BNT: the distance of each overlay neighbor."""
        self.information: dict[NodeId, BrokerInformation] = {}
        """BIT."""
        self.topology: dict[NodeId, tuple[SequenceNumber, TopologyRow]] = {}
        """BTT: the newest row of each broker."""
        self._changed: dict[NodeId, None] = {}
        self._graph: OverlayGraph | None = None
        self._paths: dict[NodeId, dict[NodeId, BrokerPath]] = {}
        self._links: PathLinks | None = None

    # [002 §2.3 step 1]
    def update_neighbors(self, now: float, near: Mapping[NodeId, float], own: BrokerInformation) -> bool:
        """Drop and add links. Returns whether anything has to be propagated."""
        self.neighbors = dict(near)
        last = self.information.get(self._node)
        known = self.topology.get(self._node)
        if known is not None and last is not None and known[1].links == near:
            # Other brokers forget one that is silent, and choose by load: an unchanged row is propagated again in time.
            is_fresh = now - known[1].made < self._settings.item_s / 3
            changes = abs(own.load - last.load), abs(own.battery_used - last.battery_used)
            if is_fresh and max(changes) <= SIGNIFICANT_CHANGE:
                return False
        self.information[self._node] = own
        self._version = self._version.next()
        self._put(now, self._node, self._version, near, own)
        return True

    # [002 §2.3 step 2]
    def take_changes(self, now: float) -> list[TopologyItem]:
        """The items that have changed since the last call."""
        items = []
        for broker in self._changed:
            version, row = self.topology[broker]
            about = self.information[broker]
            links = tuple(row.links.items())
            age_s = max(now - row.made, 0.0)
            items.append(TopologyItem(broker, version, age_s, links, about.load, about.battery_used, about.free_bytes))
        self._changed.clear()
        return items

    def mark_all_changed(self) -> None:
        """Mark the whole table as changed, because a new neighbor knows nothing."""
        self._changed = dict.fromkeys(self.topology)

    # [002 §2.3 step 3] "replaces old items with new ones, and marks the items changed".
    def merge(self, now: float, items: Iterable[TopologyItem]) -> list[str]:
        """Take in the items of a neighbor. Returns the reasons why some were rejected."""
        rejected = []
        for item in items:
            known = self.topology.get(item.broker)
            if item.broker == self._node:
                # The item is older than what this broker knows about itself, or from before its restart.
                if item.version > self._version:
                    rejected.append("item_forged")
            elif known is not None and item.version <= known[0]:
                rejected.append("item_outdated")
            elif known is not None and self._is_forged(known[0], item.version):
                rejected.append("item_absurd")
            elif known is None and len(self.topology) >= MAX_BROKERS:
                rejected.append("topology_full")
            else:
                about = BrokerInformation(item.load, item.battery_used, item.free_bytes, now)
                self.information[item.broker] = about
                self._put(now - item.age_s, item.broker, item.version, dict(item.links), about)
        return rejected

    def update_load(self, now: float, broker: NodeId, load: float) -> None:
        """Store a load that was learned outside of topology items."""
        known = self.information.get(broker)
        if known is not None or len(self.information) < MAX_BROKERS:
            about = known or BrokerInformation(load, 0.0, None, now)
            self.information[broker] = about._replace(load=load, heard=now)

    def remove_older(self, time: float) -> None:
        """Soft state: remove the brokers whose row is older than a time."""
        removed = [one for one, (_, row) in self.topology.items() if row.made < time and one != self._node]
        for broker in removed:
            del self.topology[broker]
            self.information.pop(broker, None)
            self._changed.pop(broker, None)
        if removed:
            self._graph = None

    def set_topology(self, rows: Mapping[NodeId, TopologyRow]) -> None:
        """Replace the whole topology by that of an oracle."""
        self.topology = {broker: (self._version, row) for broker, row in rows.items()}
        self.neighbors = dict(rows[self._node].links) if self._node in rows else {}
        self._changed.clear()
        self._graph = None

    def load_of(self, broker: NodeId) -> float:
        """The last known load of a broker, or 0."""
        known = self.information.get(broker)
        return 0.0 if known is None else known.load

    # [002 §2.3 step 4] BRT, computed at the first use after a change.
    def paths_from(self, source: NodeId) -> dict[NodeId, BrokerPath]:
        """The shortest paths from a broker, by the topology that this one knows."""
        if self._graph is None:
            rows = {broker: row for broker, (_, row) in self.topology.items()}
            self._graph = build_graph(rows, self._settings.link_rule, self._settings.weight_hops)
            self._paths.clear()
            self._links = None
        found = self._paths.get(source)
        if found is None:
            found = self._paths[source] = find_shortest_paths(self._graph, source)
        return found

    def path_to(self, target: NodeId) -> tuple[NodeId, ...]:
        """The brokers on the path to a target, which is the last. Deviation: only the target if no path is known."""
        found = self.paths_from(self._node).get(target)
        return (target,) if found is None or len(found.path) > MAX_PATH - 2 else found.path

    def known_links(self) -> PathLinks:
        """The links of all known paths from here, as arrays; cached until the topology changes."""
        paths = self.paths_from(self._node)
        if self._links is None:
            targets: list[NodeId] = []
            path, start, end = [], [], []
            for target, found in paths.items():
                if found.path:
                    at = self._node
                    for other in found.path:
                        path.append(len(targets))
                        start.append(at)
                        end.append(other)
                        at = other
                    targets.append(target)
            indices = [np.array(column, dtype=np.intp) for column in (path, start, end)]
            self._links = PathLinks(targets, *indices)
        return self._links

    def _put(
        self,
        made: float,
        broker: NodeId,
        version: SequenceNumber,
        links: Mapping[NodeId, float],
        about: BrokerInformation,
    ) -> None:
        settings = self._settings
        extra_cost = settings.weight_load * about.load + settings.weight_energy * about.battery_used
        row = TopologyRow(made, {other: length for other, length in links.items() if other != broker}, extra_cost)
        self.topology[broker] = (version, row)
        self._changed[broker] = None
        self._graph = None

    def _is_forged(self, known: SequenceNumber, received: SequenceNumber) -> bool:
        if received.incarnation == known.incarnation:
            return received.number - known.number > MAX_JUMP
        return received.incarnation - known.incarnation > MAX_INCARNATIONS or received.number > MAX_JUMP
