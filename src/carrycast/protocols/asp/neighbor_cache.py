"""The network abstraction layer [001 §4.1]: the neighbor cache, and delivery to a neighbor or notice of its loss.

"Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to be
removed from the neighbor cache". The outbox retransmits messages until then.
"""

from collections.abc import Hashable, Iterator
from math import ceil

import msgspec

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts import MessagePolicy, PathSelector, PeerOutbox, PeerPath, Undelivered
from carrycast.core.protocol import Interface, Link, Port, Token
from carrycast.core.wire import Message
from carrycast.protocols.asp.messages import (
    US_PER_S,
    Announcement,
    Digest,
    Fragment,
    PathKind,
    PathLost,
    PathMessage,
    Publication,
    ShortAnnouncement,
)


class NeighborCache(PathSelector):
    """The brokers that can be reached, over which link at what cost.

    A link over which a message could not be delivered is suspended, and with its last link a neighbor is removed. The
    link comes back when a message arrives over it, when discovery finds it again, or after `unreachable_s`.

    A link that discovery drops because a message failed is retained while a retransmission is in progress on it: its
    outcome decides. A retained link is not suspended when it fails: only discovery brings it back.
    """

    def __init__(self, port: Port, unreachable_s: float, retries: int, metrics_include_link: bool) -> None:
        self._port = port
        self._unreachable_s = unreachable_s
        self._retries = retries
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._suspended: dict[NodeId, dict[Interface, Link]] = {}
        self._heard: dict[NodeId, Interface] = {}
        """Nodes that were heard before discovery found them: they can be answered, but their cost is not known."""
        self._retained: set[tuple[NodeId, Interface]] = set()
        """Links in use that discovery has dropped because a message failed."""
        self._outbox = PeerOutbox(port, self, AspMessagePolicy(metrics_include_link), self._transmit, retries)

    def __iter__(self) -> Iterator[Link]:
        """The best link to each neighbor, in the order in which they came."""
        for links in list(self._links.values()):
            yield self._best_link(links)

    def is_reachable(self, node: NodeId) -> bool:
        """Whether there is a link to a node."""
        return node in self._links or node in self._heard

    def cost_s(self, node: NodeId, via: Interface | None = None) -> float | None:
        """The cost of a link, or of the best link to a neighbor; None if there is none."""
        links = self._links.get(node)
        if links is None:
            return None
        link = self._best_link(links) if via is None else links.get(via)
        return None if link is None else link.cost_s

    # From discovery.

    def on_link_found(self, link: Link) -> bool:
        """Discovery has found a link or its new cost; True if it brings a new neighbor."""
        self._end_suspension(link.neighbor, link.interface)
        self._heard.pop(link.neighbor, None)
        self._retained.discard((link.neighbor, link.interface))
        new = link.neighbor not in self._links
        self._links.setdefault(link.neighbor, {})[link.interface] = link
        return new

    def on_link_lost(self, link: Link, cause: Failure) -> bool:
        """Discovery has lost a link; True if its neighbor is lost with it."""
        node, interface = link.neighbor, link.interface
        self._end_suspension(node, interface)
        self._heard.pop(node, None)
        known = interface in self._links.get(node, {})
        if known and cause is Failure.UNREACHABLE and self._retries and self._outbox.has_in_flight(node, interface):
            self._retained.add((node, interface))
            return False
        return self._remove(node, interface) is not None and node not in self._links

    def on_heard(self, node: NodeId, via: Interface) -> bool:
        """A message has arrived; True if its sender could not be reached before and can be now."""
        link = self._suspended.get(node, {}).get(via)
        if link is not None:
            return self.on_link_found(link)
        if node in self._links:
            return False
        new = node not in self._heard
        self._heard[node] = via
        return new

    def on_suspension_over(self, node: NodeId, interface: Interface) -> bool:
        """The time of a suspended link is over; True if that brings its neighbor back."""
        link = self._suspended.get(node, {}).get(interface)
        return link is not None and self.on_link_found(link)

    # Messages.

    def send(self, now: float, node: NodeId, message: Message) -> bool:
        """Send reliably to one neighbor over its best link; False, with a named drop, if it is no neighbor."""
        return self._outbox.send(now, node, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> list[Undelivered]:
        """Handle the outcome of a transmission. Returns the messages that are given up."""
        return self._outbox.on_sent(now, token, failure)

    def on_resend(self, now: float, token: Token) -> list[Undelivered]:
        """Send a message again that a full queue rejected."""
        return self._outbox.on_timer(now, token)

    def stop(self) -> None:
        """Stop all timers."""
        for node, links in self._suspended.items():
            for interface in links:
                self._port.cancel_timer(("back", (node, interface)))
        self._suspended.clear()
        self._outbox.stop()

    def _transmit(self, now: float, node: NodeId, message: Message, path: PeerPath, token: Token) -> None:
        self._port.send(node, message, via=path.interface, token=token)

    # The path selection of the outbox.

    def best_path(self, peer: NodeId) -> PeerPath | None:
        links = self._links.get(peer)
        if links is not None:
            best = self._best_link(links)
            return PeerPath(best.interface, best.cost_s)
        interface = self._heard.get(peer)
        return None if interface is None else PeerPath(interface)

    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        """Return the same link if it is the only one. Otherwise it is suspended, and another link is tried."""
        links = self._links.get(peer)
        if links is None:
            return path if self._heard.get(peer) == path.interface else None
        return path if len(links) == 1 and path.interface in links else None

    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        """Suspend a link. A link of a node that was only heard, or that discovery has dropped, is removed."""
        interface = path.interface
        assert interface is not None
        if self._heard.get(peer) == interface:
            del self._heard[peer]
        is_retained = (peer, interface) in self._retained
        link = self._remove(peer, interface)
        if link is not None and not is_retained:
            self._suspended.setdefault(peer, {})[interface] = link
            self._port.set_timer(("back", (peer, interface)), self._unreachable_s)

    # Links.

    def _best_link(self, links: dict[Interface, Link]) -> Link:
        """The cheapest link; one that discovery has dropped only if there is no other."""
        if len(links) == 1:
            return next(iter(links.values()))
        return min(links.values(), key=lambda link: ((link.neighbor, link.interface) in self._retained, link.cost_s))

    def _remove(self, node: NodeId, interface: Interface) -> Link | None:
        self._retained.discard((node, interface))
        links = self._links.get(node)
        link = None if links is None else links.pop(interface, None)
        if links is not None and not links:
            del self._links[node]
        return link

    def _end_suspension(self, node: NodeId, interface: Interface) -> None:
        links = self._suspended.get(node)
        if links is not None and links.pop(interface, None) is not None:
            self._port.cancel_timer(("back", (node, interface)))
            if not links:
                del self._suspended[node]


class AspMessagePolicy(MessagePolicy):
    """Decides which of ASP's messages to a neighbor supersede others, may wait, or change with the link."""

    def __init__(self, metrics_include_link: bool) -> None:
        self._metrics_include_link = metrics_include_link

    def key(self, message: Message) -> Hashable:
        """A later message about the same path supersedes an earlier one; a request to announce again is not about a
        path. An announcement supersedes the notice that a path is lost."""
        if isinstance(message, PathMessage):
            return None if message.kind is PathKind.RENEW else (message.id, message.subscriber)
        return message.id if isinstance(message, PathLost) else None

    def superseded_key(self, message: Message) -> Hashable:
        if isinstance(message, Announcement | ShortAnnouncement):
            return message.id
        return self.key(message) if isinstance(message, PathMessage) else None

    def may_wait(self, message: Message) -> bool:
        """Messages that make paths wait for a full queue. Messages on the paths do not: they would keep the queue full,
        and counters and caches of the streams recover them."""
        return not isinstance(message, Publication | Fragment)

    def adapt_to_path(self, message: Message, before: PeerPath, after: PeerPath) -> Message:
        """[001 §4.2] The metric includes the link, so it changes with the link."""
        if before.cost_s is None or after.cost_s is None or before.cost_s == after.cost_s:
            return message
        more_s = after.cost_s - before.cost_s
        if isinstance(message, Digest):
            more_us = ceil(more_s * US_PER_S)
            known = tuple(one._replace(metric_us=max(0, one.metric_us + more_us)) for one in message.known)
            return msgspec.structs.replace(message, known=known)
        if isinstance(message, Announcement | ShortAnnouncement) and self._metrics_include_link:
            return msgspec.structs.replace(message, metric_s=max(0.0, message.metric_s + more_s))
        return message
