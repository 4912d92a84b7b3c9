"""The neighbor table: the links of a node by neighbor and interface, and the short addresses of its neighbors."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from math import inf

from carrycast.core.model import NodeId
from carrycast.core.protocol import Interface, Link, Port
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import MAX_ADDRESSES
from carrycast.protocols.drift.rules import short_address

PROVISIONAL = "provisional"
PROVISIONAL_S = 3.0
"""The time for which a sender that discovery has not found counts as a neighbor. By then a beacon has arrived, or the
sender has left."""
MAX_PROVISIONAL = 64


class DriftNeighborTable:
    """The neighbors that discovery has found, and provisional ones: senders that were received before discovery found
    them. Contacts may be short, and a beacon is late by half a period on average."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.links: dict[NodeId, dict[Interface, float]] = {}
        """The cost of each link of each neighbor; to be read only."""
        self.addresses: dict[NodeId, bytes] = {}
        """The short address of each neighbor; to be read only."""
        self._link_counts: dict[Interface, int] = {}
        """The number of links of each interface."""
        self._addresses_on: dict[tuple[Interface, ...], bytes] = {}
        """The cached results of `addresses_on`, until a link changes."""
        self._all_interfaces: tuple[Interface, ...] | None = None
        """The interfaces that reach all neighbors, until a link changes."""
        self._provisional: dict[NodeId, tuple[float, Interface]] = {}
        """When each provisional neighbor expires, and the interface on which it was received."""

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, node: NodeId) -> bool:
        return node in self.links

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.links)

    def add(self, link: Link) -> bool:
        """Add or update a link; True if its neighbor is new."""
        self._invalidate()
        neighbor, interface = link.neighbor, link.interface
        self._provisional.pop(neighbor, None)
        links = self.links.get(neighbor)
        if links is None or interface not in links:
            self._link_counts[interface] = self._link_counts.get(interface, 0) + 1
        if links is not None:
            links[interface] = link.cost_s
            return False
        self.links[neighbor] = {interface: link.cost_s}
        self.addresses[neighbor] = short_address(neighbor)
        return True

    def remove(self, link: Link) -> bool:
        """Remove a link; True if it was the last one of its neighbor."""
        links = self.links.get(link.neighbor)
        if links is None or links.pop(link.interface, None) is None:
            return False
        self._invalidate()
        self._link_counts[link.interface] -= 1
        if not self._link_counts[link.interface]:
            del self._link_counts[link.interface]
        if links:
            return False
        del self.links[link.neighbor], self.addresses[link.neighbor]
        return True

    def add_provisional(self, now: float, node: NodeId, via: Interface) -> bool:
        """Add a sender that discovery has not found yet; False if there are too many of them."""
        if len(self._provisional) >= MAX_PROVISIONAL:
            return False
        if not self._provisional:
            self._port.set_timer(PROVISIONAL, PROVISIONAL_S)
        self.add(Link(node, via, inf))
        self._provisional[node] = (now + PROVISIONAL_S, via)
        return True

    def expire_provisional(self, now: float) -> list[NodeId]:
        """Remove the provisional neighbors that discovery has not confirmed in time, and return them."""
        # The second bound: after a clock was set back, an entry would otherwise stay for as long as the step.
        expired = [
            (node, via) for node, (until, via) in self._provisional.items() if not now < until <= now + PROVISIONAL_S
        ]
        for node, _ in expired:
            del self._provisional[node]
        if self._provisional:
            self._port.set_timer(PROVISIONAL, max(0.0, min(until for until, _ in self._provisional.values()) - now))
        return [node for node, via in expired if self.remove(Link(node, via, inf))]

    def stop(self) -> None:
        """Cancel the timer."""
        self._port.cancel_timer(PROVISIONAL)

    def find_uncovered(self, covered: frozenset[int], sender: NodeId) -> list[NodeId]:
        """Return the neighbors that a frame of the sender's does not list."""
        return [node for node in self.links if node & 0xFFFF not in covered and node != sender]

    def interfaces_to(self, nodes: Collection[NodeId]) -> tuple[Interface, ...]:
        """Few interfaces that together reach these nodes (a greedy choice, not the minimum); for a node with several
        links the cheapest."""
        if len(self._link_counts) == 1:
            return () if self.links.keys().isdisjoint(nodes) else tuple(self._link_counts)
        chosen: dict[Interface, None] = {}
        several = []
        for node in nodes:
            links = self.links.get(node, {})
            if len(links) == 1:
                chosen[next(iter(links))] = None
            elif links:
                several.append(links)
        for links in several:
            if not any(interface in chosen for interface in links):
                chosen[min(links, key=links.__getitem__)] = None
        return tuple(chosen)

    def addresses_on(self, interfaces: tuple[Interface, ...]) -> bytes:
        """The short addresses of all neighbors that receive a broadcast on these interfaces."""
        packed = self._addresses_on.get(interfaces)
        if packed is None:
            receivers: Iterable[bytes] = self.addresses.values()
            if len(self._link_counts) > 1:
                reached = [node for node, links in self.links.items() if any(one in links for one in interfaces)]
                receivers = [self.addresses[node] for node in reached]
            packed = self._addresses_on[interfaces] = b"".join(islice(receivers, MAX_ADDRESSES))
        return packed

    def all_interfaces(self) -> tuple[Interface, ...]:
        """Few interfaces that together reach all neighbors."""
        if self._all_interfaces is None:
            self._all_interfaces = self.interfaces_to(self.links)
        return self._all_interfaces

    def broadcast(self, message: Message, nodes: Collection[NodeId] | None = None) -> None:
        """Broadcast a message on the interfaces that reach these nodes, by default all neighbors."""
        for interface in self.all_interfaces() if nodes is None else self.interfaces_to(nodes):
            self._port.broadcast(message, on=interface)

    def _invalidate(self) -> None:
        self._addresses_on.clear()
        self._all_interfaces = None


def select_uncovered(nodes: Iterable[NodeId], covered: frozenset[int], sender: NodeId) -> list[NodeId]:
    """Return those of some neighbors that a frame of the sender's does not list."""
    return [node for node in nodes if node & 0xFFFF not in covered and node != sender]
