"""Neighbors, and reliable delivery to each: the abstraction layer that flooding and ASP are compared on [001 §4.1].

"Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to be
removed from the neighbor cache". A message that failed is sent again: over another link if there is one, else over the
same one, `retries` times. Removing the neighbor is left to discovery, which hosts tell of the failure.
"""

from collections.abc import Iterator

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts.outbox import MessagePolicy, PathSelector, PeerOutbox, PeerPath
from carrycast.core.protocol import Interface, Link, Port, Token
from carrycast.core.wire import Message


class ReliableLinks(PathSelector):
    """The nodes with at least one link, in the order in which they came.

    A link that discovery drops because a message failed stays while that message's retry, or another one, is under way
    on it: until one of them has failed for good.
    """

    def __init__(self, port: Port, retries: int) -> None:
        self._port = port
        self._retries = retries
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._kept: set[tuple[NodeId, Interface]] = set()
        """Links in use that discovery has dropped because a message failed."""
        self._outbox = PeerOutbox(port, self, FloodHandling(), self._transmit, retries, moves=0)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(list(self._links))

    def found(self, link: Link) -> None:
        """Discovery has found a link, or its new cost."""
        self._kept.discard((link.neighbor, link.interface))
        self._links.setdefault(link.neighbor, {})[link.interface] = link

    def gone(self, link: Link, cause: Failure) -> None:
        """Discovery has lost a link."""
        node, interface = link.neighbor, link.interface
        known = interface in self._links.get(node, {})
        if known and cause is Failure.UNREACHABLE and self._retries and self._outbox.has_in_flight(node, interface):
            self._kept.add((node, interface))
        else:
            self._remove(node, interface)

    def send(self, now: float, node: NodeId, message: Message) -> None:
        """To a neighbor, over its best link."""
        self._outbox.send(now, node, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a message; one that failed may be sent again."""
        self._outbox.on_sent(now, token, failure)

    def _transmit(self, now: float, node: NodeId, message: Message, path: PeerPath, token: Token) -> None:
        self._port.send(node, message, via=path.interface, token=token)

    # The ways of the outbox.

    def best_path(self, peer: NodeId) -> PeerPath | None:
        return self._best(list(self._links.get(peer, {}).values()))

    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        links = list(self._links.get(peer, {}).values())
        return self._best([link for link in links if link.interface != path.interface] or links)

    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        assert path.interface is not None
        if (peer, path.interface) in self._kept:
            self._remove(peer, path.interface)

    def _best(self, links: list[Link]) -> PeerPath | None:
        """The cheapest; one that discovery has dropped only if there is no other."""
        if not links:
            return None
        best = min(links, key=lambda link: ((link.neighbor, link.interface) in self._kept, link.cost_s))
        return PeerPath(best.interface, best.cost_s)

    def _remove(self, node: NodeId, interface: Interface) -> None:
        self._kept.discard((node, interface))
        links = self._links.get(node)
        if links is not None and links.pop(interface, None) is not None and not links:
            del self._links[node]


class FloodHandling(MessagePolicy):
    """Messages of a flood: each stands for itself, and what a full queue did not take is lost."""

    def may_wait(self, message: Message) -> bool:
        return False
