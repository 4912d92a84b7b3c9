"""Who is around: neighbors by interface and by short name, and broadcasts only where somebody is meant."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from math import inf

from carrycast.core.model import NodeId
from carrycast.core.protocol import Interface, Link, Port
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import MAX_NAMES
from carrycast.protocols.drift.rules import short_name

GUESTS = "guests"
GUEST_S = 3.0
"""So long who was heard counts as a neighbor; by then discovery has found it, or it is gone."""
MAX_GUESTS = 64


class Around:
    """The links of one node: those that discovery has found, and for a moment those of whoever was heard before it was
    found. Contacts may be short, and a beacon is late by half a period."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.links: dict[NodeId, dict[Interface, float]] = {}
        """The cost of each link of each neighbor; to be read only."""
        self.names: dict[NodeId, bytes] = {}
        """The short name of each neighbor; to be read only."""
        self._links_on: dict[Interface, int] = {}
        """How many links each interface has."""
        self._named: dict[tuple[Interface, ...], bytes] = {}
        self._everywhere: tuple[Interface, ...] | None = None
        """The interfaces that reach all neighbors, until a link changes."""
        self._guests: dict[NodeId, tuple[float, Interface]] = {}
        """Until when, and where it was heard."""

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, node: NodeId) -> bool:
        return node in self.links

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.links)

    def add(self, link: Link) -> bool:
        """A link has come or changed; True if it makes a new neighbor."""
        self._changed()
        neighbor, interface = link.neighbor, link.interface
        self._guests.pop(neighbor, None)
        links = self.links.get(neighbor)
        if links is None or interface not in links:
            self._links_on[interface] = self._links_on.get(interface, 0) + 1
        if links is not None:
            links[interface] = link.cost_s
            return False
        self.links[neighbor] = {interface: link.cost_s}
        self.names[neighbor] = short_name(neighbor)
        return True

    def remove(self, link: Link) -> bool:
        """A link has gone; True if the neighbor is gone with it."""
        links = self.links.get(link.neighbor)
        if links is None or links.pop(link.interface, None) is None:
            return False
        self._changed()
        self._links_on[link.interface] -= 1
        if not self._links_on[link.interface]:
            del self._links_on[link.interface]
        if links:
            return False
        del self.links[link.neighbor], self.names[link.neighbor]
        return True

    def welcome(self, now: float, node: NodeId, via: Interface) -> bool:
        """Somebody was heard who is no neighbor yet; False if there are too many of them."""
        if len(self._guests) >= MAX_GUESTS:
            return False
        if not self._guests:
            self._port.set_timer(GUESTS, GUEST_S)
        self.add(Link(node, via, inf))
        self._guests[node] = (now + GUEST_S, via)
        return True

    def on_timer(self, now: float) -> list[NodeId]:
        """Guests that discovery has not found are gone; who they were."""
        # Who came by a clock that has been set back since would stay for long.
        over = [(node, via) for node, (until, via) in self._guests.items() if not now < until <= now + GUEST_S]
        for node, _ in over:
            del self._guests[node]
        if self._guests:
            self._port.set_timer(GUESTS, max(0.0, min(until for until, _ in self._guests.values()) - now))
        return [node for node, via in over if self.remove(Link(node, via, inf))]

    def stop(self) -> None:
        """Wait for nobody."""
        self._port.cancel_timer(GUESTS)

    def unnamed(self, named: frozenset[int], sender: NodeId) -> list[NodeId]:
        """The neighbors that a frame of the sender's does not name."""
        return [node for node in self.links if node & 0xFFFF not in named and node != sender]

    def unnamed_of(self, nodes: Iterable[NodeId], named: frozenset[int], sender: NodeId) -> list[NodeId]:
        """The same, of some neighbors."""
        return [node for node in nodes if node & 0xFFFF not in named and node != sender]

    def interfaces_to(self, nodes: Collection[NodeId]) -> tuple[Interface, ...]:
        """The fewest interfaces that reach them, as far as one look tells; of two ways to a node the cheaper."""
        if len(self._links_on) == 1:
            return () if self.links.keys().isdisjoint(nodes) else tuple(self._links_on)
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

    def named_on(self, interfaces: tuple[Interface, ...]) -> bytes:
        """The short names of all that hear a broadcast on these interfaces."""
        named = self._named.get(interfaces)
        if named is None:
            hear: Iterable[bytes] = self.names.values()
            if len(self._links_on) > 1:
                heard = [node for node, links in self.links.items() if any(one in links for one in interfaces)]
                hear = [self.names[node] for node in heard]
            named = self._named[interfaces] = b"".join(islice(hear, MAX_NAMES))
        return named

    def everywhere(self) -> tuple[Interface, ...]:
        """The fewest interfaces that reach all neighbors."""
        if self._everywhere is None:
            self._everywhere = self.interfaces_to(self.links)
        return self._everywhere

    def say(self, message: Message, nodes: Collection[NodeId] | None = None) -> None:
        """Broadcast where these nodes, or all neighbors, hear it."""
        for interface in self.everywhere() if nodes is None else self.interfaces_to(nodes):
            self._port.broadcast(message, on=interface)

    def _changed(self) -> None:
        self._named.clear()
        self._everywhere = None
