"""The neighbor table, for protocols that do not distinguish the links to a neighbor."""

from collections.abc import Iterator

from carrycast.core.model import NodeId
from carrycast.core.protocol import Link


class Neighbors:
    """The nodes with at least one link, in order of appearance."""

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: dict[NodeId, tuple[Link, ...]] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._links

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._links)

    def add(self, link: Link) -> bool:
        """A link is up or changed; True if the neighbor is new."""
        links = self._links.get(link.neighbor, ())
        self._links[link.neighbor] = (*(other for other in links if other.interface != link.interface), link)
        return not links

    def remove(self, link: Link) -> bool:
        """A link is down; True if it was the last to the neighbor."""
        links = self._links.get(link.neighbor)
        if links is None:
            return False
        left = tuple(other for other in links if other.interface != link.interface)
        if left:
            self._links[link.neighbor] = left
            return False
        del self._links[link.neighbor]
        return True

    def cost_s(self, node: NodeId) -> float:
        """The cost of the cheapest link to a neighbor."""
        return min(link.cost_s for link in self._links[node])
