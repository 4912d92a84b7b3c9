"""The network abstraction layer [001 §4.1]: the neighbor cache, and delivery to a neighbor or notice of its loss.

"Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to be
removed from the neighbor cache". The outbox retransmits messages until then.
"""

from collections.abc import Hashable, Iterator
from math import ceil

import msgspec

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts.outbox import MessagePolicy, PathSelector, PeerOutbox, PeerPath, Undelivered
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
    """Which brokers can be reached, over which link at what cost.

    A link over which a message could not be delivered is set aside, and with the last link its neighbor is removed. It
    comes back when something is heard over the link, when discovery finds it anew, or after `unreachable_s`.

    A link that discovery drops because a message failed is kept while that message's retry, or another one, is under
    way on it: their outcome decides. A link kept so is not put aside when it fails: only discovery brings it back.
    """

    def __init__(self, port: Port, unreachable_s: float, retries: int, metrics_include_link: bool) -> None:
        self._port = port
        self._unreachable_s = unreachable_s
        self._retries = retries
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._aside: dict[NodeId, dict[Interface, Link]] = {}
        self._heard: dict[NodeId, Interface] = {}
        """Who was heard before discovery found it: it may be answered, but its cost is not known."""
        self._kept: set[tuple[NodeId, Interface]] = set()
        """Links in use that discovery has dropped because a message failed."""
        self._outbox = PeerOutbox(port, self, AspHandling(metrics_include_link), self._transmit, retries)

    def __iter__(self) -> Iterator[Link]:
        """The best link to each neighbor, in the order in which they came."""
        for links in list(self._links.values()):
            yield self._best(links)

    def reachable(self, node: NodeId) -> bool:
        """Whether it makes sense to send to a node."""
        return node in self._links or node in self._heard

    def cost_s(self, node: NodeId, via: Interface | None = None) -> float | None:
        """The cost of a link, or of the best to a neighbor; None if there is none."""
        links = self._links.get(node)
        if links is None:
            return None
        link = self._best(links) if via is None else links.get(via)
        return None if link is None else link.cost_s

    # From discovery.

    def found(self, link: Link) -> bool:
        """Discovery has found a link or its new cost; True if it brings a new neighbor."""
        self._forget_aside(link.neighbor, link.interface)
        self._heard.pop(link.neighbor, None)
        self._kept.discard((link.neighbor, link.interface))
        new = link.neighbor not in self._links
        self._links.setdefault(link.neighbor, {})[link.interface] = link
        return new

    def gone(self, link: Link, cause: Failure) -> bool:
        """Discovery has lost a link; True if its neighbor is lost with it."""
        node, interface = link.neighbor, link.interface
        self._forget_aside(node, interface)
        self._heard.pop(node, None)
        known = interface in self._links.get(node, {})
        if known and cause is Failure.UNREACHABLE and self._retries and self._outbox.has_in_flight(node, interface):
            self._kept.add((node, interface))
            return False
        return self._remove(node, interface) is not None and node not in self._links

    def heard(self, node: NodeId, via: Interface) -> bool:
        """A message came; True if its sender could not be reached before and can be now."""
        link = self._aside.get(node, {}).get(via)
        if link is not None:
            return self.found(link)
        if node in self._links:
            return False
        new = node not in self._heard
        self._heard[node] = via
        return new

    def on_back(self, node: NodeId, interface: Interface) -> bool:
        """The time of a link aside is over; True if that brings its neighbor back."""
        link = self._aside.get(node, {}).get(interface)
        return link is not None and self.found(link)

    # Messages.

    def send(self, now: float, node: NodeId, message: Message) -> bool:
        """Reliably to one neighbor, over its best link; False, with a named drop, if it is no neighbor."""
        return self._outbox.send(now, node, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> list[Undelivered]:
        """The outcome of a send: what the broker has to be told."""
        return self._outbox.on_sent(now, token, failure)

    def on_resend(self, now: float, token: Token) -> list[Undelivered]:
        """A message that a full queue did not take is sent again."""
        return self._outbox.on_timer(now, token)

    def stop(self) -> None:
        """Disarm every timer."""
        for node, links in self._aside.items():
            for interface in links:
                self._port.cancel_timer(("back", (node, interface)))
        self._aside.clear()
        self._outbox.stop()

    def _transmit(self, now: float, node: NodeId, message: Message, way: PeerPath, token: Token) -> None:
        self._port.send(node, message, via=way.interface, token=token)

    # The ways of the outbox.

    def best_path(self, peer: NodeId) -> PeerPath | None:
        links = self._links.get(peer)
        if links is not None:
            best = self._best(links)
            return PeerPath(best.interface, best.cost_s)
        heard = self._heard.get(peer)
        return None if heard is None else PeerPath(heard)

    def retry_path(self, peer: NodeId, way: PeerPath) -> PeerPath | None:
        """Over the same link if it is the only one: else it is set aside, and the others have their turn."""
        links = self._links.get(peer)
        if links is None:
            return way if self._heard.get(peer) == way.interface else None
        return way if len(links) == 1 and way.interface in links else None

    def on_path_failed(self, peer: NodeId, way: PeerPath) -> None:
        """Set a link aside; what was only heard, or is dropped by discovery, goes altogether."""
        interface = way.interface
        assert interface is not None
        if self._heard.get(peer) == interface:
            del self._heard[peer]
        kept = (peer, interface) in self._kept
        link = self._remove(peer, interface)
        if link is not None and not kept:
            self._aside.setdefault(peer, {})[interface] = link
            self._port.set_timer(("back", (peer, interface)), self._unreachable_s)

    # Links.

    def _best(self, links: dict[Interface, Link]) -> Link:
        """The cheapest; one that discovery has dropped only if there is no other."""
        if len(links) == 1:
            return next(iter(links.values()))
        return min(links.values(), key=lambda link: ((link.neighbor, link.interface) in self._kept, link.cost_s))

    def _remove(self, node: NodeId, interface: Interface) -> Link | None:
        self._kept.discard((node, interface))
        links = self._links.get(node)
        link = None if links is None else links.pop(interface, None)
        if links is not None and not links:
            del self._links[node]
        return link

    def _forget_aside(self, node: NodeId, interface: Interface) -> None:
        links = self._aside.get(node)
        if links is not None and links.pop(interface, None) is not None:
            self._port.cancel_timer(("back", (node, interface)))
            if not links:
                del self._aside[node]


class AspHandling(MessagePolicy):
    """What ASP's messages are like on their way to a neighbor."""

    def __init__(self, metrics_include_link: bool) -> None:
        self._metrics_include_link = metrics_include_link

    def key(self, message: Message) -> Hashable:
        """A later word on the same path takes an earlier one back; a request to announce anew says nothing of a path.
        What says that a path is lost is taken back by an announcement."""
        if isinstance(message, PathMessage):
            return None if message.kind is PathKind.RENEW else (message.id, message.subscriber)
        return message.id if isinstance(message, PathLost) else None

    def superseded_key(self, message: Message) -> Hashable:
        if isinstance(message, Announcement | ShortAnnouncement):
            return message.id
        return self.key(message) if isinstance(message, PathMessage) else None

    def may_wait(self, message: Message) -> bool:
        """What makes paths waits for a queue; messages on the paths do not: they would only keep the queue full, and
        the streams' counters and caches are there for them."""
        return not isinstance(message, Publication | Fragment)

    def adapt_to_path(self, message: Message, before: PeerPath, after: PeerPath) -> Message:
        """[001 §4.2] The metric includes the link, so over another link it is another one."""
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
