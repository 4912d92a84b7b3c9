"""Who is around: neighbors by interface and by short name, and broadcasts only where somebody is meant."""

from collections.abc import Iterable, Iterator

from driftcast.dissemination.drift.messages import MAX_NAMES
from driftcast.dissemination.drift.rules import short_name
from driftcast.model import NodeId
from driftcast.protocol import Interface, Link, Port
from driftcast.wire import Message


class Around:
    """The links of one node."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._links: dict[NodeId, dict[Interface, float]] = {}
        self.names: dict[NodeId, bytes] = {}
        """The short name of each neighbor; to be read only."""
        self._named: dict[tuple[Interface, ...], bytes] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._links

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._links)

    def add(self, link: Link) -> bool:
        """A link has come or changed; True if it makes a new neighbor."""
        self._named.clear()
        new = link.neighbor not in self._links
        self._links.setdefault(link.neighbor, {})[link.interface] = link.cost_s
        self.names[link.neighbor] = short_name(link.neighbor)
        return new

    def remove(self, link: Link) -> bool:
        """A link has gone; True if the neighbor is gone with it."""
        links = self._links.get(link.neighbor)
        if links is None or links.pop(link.interface, None) is None:
            return False
        self._named.clear()
        if links:
            return False
        del self._links[link.neighbor], self.names[link.neighbor]
        return True

    def unnamed(self, names: bytes, sender: NodeId) -> list[NodeId]:
        """The neighbors that a frame of the sender's does not name."""
        named = {names[at : at + 2] for at in range(0, len(names), 2)}
        return [node for node, name in self.names.items() if node != sender and name not in named]

    def interfaces_to(self, nodes: Iterable[NodeId]) -> tuple[Interface, ...]:
        """The fewest interfaces that reach them, as far as one look tells; of two ways to a node the cheaper."""
        chosen: dict[Interface, None] = {}
        several = []
        for node in nodes:
            links = self._links.get(node, {})
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
            hear = [node for node, links in self._links.items() if any(one in links for one in interfaces)]
            named = self._named[interfaces] = b"".join(self.names[node] for node in hear[:MAX_NAMES])
        return named

    def say(self, message: Message, nodes: Iterable[NodeId] | None = None) -> None:
        """Broadcast where these nodes, or all neighbors, hear it."""
        for interface in self.interfaces_to(self._links if nodes is None else nodes):
            self._port.broadcast(message, on=interface)
