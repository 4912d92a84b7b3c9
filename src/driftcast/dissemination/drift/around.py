"""Who is around: neighbors by interface and by short name, and broadcasts only where somebody is meant."""

from collections.abc import Iterable, Iterator
from math import inf

from driftcast.dissemination.drift.messages import MAX_NAMES, NAME_BYTES
from driftcast.dissemination.drift.rules import short_name
from driftcast.model import NodeId
from driftcast.protocol import Interface, Link, Port
from driftcast.wire import Message

GUESTS = "guests"
GUEST_S = 3.0
"""So long who was heard counts as a neighbor; by then discovery has found it, or it is gone."""
MAX_GUESTS = 64
MAX_PARSED = 64
"""Frames whose names are remembered; then it begins anew."""


class Around:
    """The links of one node: those that discovery has found, and for a moment those of whoever was heard before it was
    found. Contacts may be short, and a beacon is late by half a period."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.links: dict[NodeId, dict[Interface, float]] = {}
        """The cost of each link of each neighbor; to be read only."""
        self.names: dict[NodeId, bytes] = {}
        """The short name of each neighbor; to be read only."""
        self._named: dict[tuple[Interface, ...], bytes] = {}
        self._everywhere: tuple[Interface, ...] | None = None
        """The interfaces that reach all neighbors, until a link changes."""
        self._parsed: dict[bytes, frozenset[bytes]] = {}
        """The names in frames: a neighbor says the same ones again and again."""
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
        self._guests.pop(link.neighbor, None)
        new = link.neighbor not in self.links
        self.links.setdefault(link.neighbor, {})[link.interface] = link.cost_s
        self.names[link.neighbor] = short_name(link.neighbor)
        return new

    def remove(self, link: Link) -> bool:
        """A link has gone; True if the neighbor is gone with it."""
        links = self.links.get(link.neighbor)
        if links is None or links.pop(link.interface, None) is None:
            return False
        self._changed()
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
        over = [(node, via) for node, (until, via) in self._guests.items() if until <= now]
        for node, _ in over:
            del self._guests[node]
        if self._guests:
            self._port.set_timer(GUESTS, max(0.0, min(until for until, _ in self._guests.values()) - now))
        return [node for node, via in over if self.remove(Link(node, via, inf))]

    def stop(self) -> None:
        """Wait for nobody."""
        self._port.cancel_timer(GUESTS)

    def unnamed(self, names: bytes, sender: NodeId) -> list[NodeId]:
        """The neighbors that a frame of the sender's does not name."""
        named = self._parse(names)
        return [node for node, name in self.names.items() if name not in named and node != sender]

    def unnamed_of(self, nodes: Iterable[NodeId], names: bytes, sender: NodeId) -> list[NodeId]:
        """The same, of some neighbors."""
        named, known = self._parse(names), self.names
        return [node for node in nodes if node != sender and known[node] not in named]

    def interfaces_to(self, nodes: Iterable[NodeId]) -> tuple[Interface, ...]:
        """The fewest interfaces that reach them, as far as one look tells; of two ways to a node the cheaper."""
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
            hear = [node for node, links in self.links.items() if any(one in links for one in interfaces)]
            named = self._named[interfaces] = b"".join(self.names[node] for node in hear[:MAX_NAMES])
        return named

    def everywhere(self) -> tuple[Interface, ...]:
        """The fewest interfaces that reach all neighbors."""
        if self._everywhere is None:
            self._everywhere = self.interfaces_to(self.links)
        return self._everywhere

    def say(self, message: Message, nodes: Iterable[NodeId] | None = None) -> None:
        """Broadcast where these nodes, or all neighbors, hear it."""
        for interface in self.everywhere() if nodes is None else self.interfaces_to(nodes):
            self._port.broadcast(message, on=interface)

    def _changed(self) -> None:
        self._named.clear()
        self._everywhere = None

    def _parse(self, names: bytes) -> frozenset[bytes]:
        named = self._parsed.get(names)
        if named is None:
            if len(self._parsed) >= MAX_PARSED:
                self._parsed.clear()
            named = frozenset(names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES))
            self._parsed[names] = named
        return named
