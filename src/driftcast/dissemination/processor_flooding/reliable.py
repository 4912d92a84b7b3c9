"""Neighbors, and reliable delivery to each: the abstraction layer that flooding and ASP are compared on [001 §4.1].

"Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to be
removed from the neighbor cache". A message that failed is sent again: over another link if there is one, else over the
same one, `retries` times.
"""

from collections.abc import Iterator

from driftcast.model import Failure, NodeId
from driftcast.protocol import Interface, Link, Port, Token
from driftcast.wire import Message


class _Sent:
    """A message that has no outcome yet."""

    __slots__ = ("message", "node", "retries", "via")

    def __init__(self, node: NodeId, via: Interface, message: Message, retries: int) -> None:
        self.node = node
        self.via = via
        self.message = message
        self.retries = retries


class ReliableLinks:
    """The nodes with at least one link, in the order in which they came.

    A link may be reported down while messages are under way on it. Then their outcome decides: the link stays until one
    of them has failed for good, or until one arrives though none has failed, since then something else is why discovery
    has lost it.
    """

    __slots__ = ("_links", "_port", "_retries", "_sent", "_token", "_unlisted")

    def __init__(self, port: Port, retries: int) -> None:
        self._port = port
        self._retries = retries
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._unlisted: dict[tuple[NodeId, Interface], bool] = {}
        """Links that discovery has lost while they were in use, and whether a message over them has failed since."""
        self._sent: dict[Token, _Sent] = {}
        self._token = 0

    def __iter__(self) -> Iterator[NodeId]:
        return iter(list(self._links))

    def found(self, link: Link) -> None:
        """Discovery has found a link, or its new cost."""
        self._unlisted.pop((link.neighbor, link.interface), None)
        self._links.setdefault(link.neighbor, {})[link.interface] = link

    def gone(self, link: Link, cause: Failure) -> None:
        """Discovery has lost a link."""
        node, interface = link.neighbor, link.interface
        used = any((sent.node, sent.via) == (node, interface) for sent in self._sent.values())
        if self._retries and used and interface in self._links.get(node, {}):
            self._unlisted.setdefault((node, interface), cause is Failure.UNREACHABLE)
        else:
            self._remove(node, interface)

    def send(self, node: NodeId, message: Message) -> None:
        """To a neighbor, over its best link."""
        self._transmit(_Sent(node, self._best(node), message, self._retries))

    def on_sent(self, token: Token, failure: Failure | None) -> None:
        """The outcome of a message; one that failed may be sent again."""
        sent = self._sent.pop(token)
        place = sent.node, sent.via
        if failure is Failure.UNREACHABLE:
            if place in self._unlisted:
                self._unlisted[place] = True
            self._on_unreachable(sent)
        elif not failure and self._unlisted.get(place) is False:
            self._remove(*place)

    def _on_unreachable(self, sent: _Sent) -> None:
        links = self._links.get(sent.node, {})
        others = [interface for interface in links if interface != sent.via]
        if sent.retries and links:
            sent.retries -= 1
            if others or sent.via not in links:
                sent.via = self._best(sent.node, but=sent.via)
            self._transmit(sent)
        elif (sent.node, sent.via) in self._unlisted:
            self._remove(sent.node, sent.via)

    def _transmit(self, sent: _Sent) -> None:
        self._token += 1
        self._sent[self._token] = sent
        self._port.send(sent.node, sent.message, via=sent.via, token=self._token)

    def _best(self, node: NodeId, but: Interface | None = None) -> Interface:
        """The cheapest; one that discovery has lost only if there is no other."""
        links = [link for link in self._links[node].values() if link.interface != but]
        return min(links, key=lambda link: ((node, link.interface) in self._unlisted, link.cost_s)).interface

    def _remove(self, node: NodeId, interface: Interface) -> None:
        self._unlisted.pop((node, interface), None)
        links = self._links.get(node)
        if links is not None and links.pop(interface, None) is not None and not links:
            del self._links[node]
