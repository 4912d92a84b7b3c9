"""The network abstraction layer [001 §4.1]: neighbors, and delivery to each or notice of its loss.

"Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to be
removed from the neighbor cache". A message that failed is sent again: over another link if there is one, else over the
same one, `retries` times.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

import msgspec

from driftcast.dissemination.asp.messages import (
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
from driftcast.model import Failure, NodeId
from driftcast.protocol import Fact, Interface, Link, Port, Token
from driftcast.wire import Message

QUEUE_WAIT_S = 0.05
"""After a full queue; some tens of packets of 802.11b leave a queue meanwhile. Doubled each time."""

QUEUE_TRIES = 4
"""So 0.75 s in all: a queue that is full for longer is no burst."""

MAX_MOVES = 4
"""To other links of a neighbor: as many as nodes have interfaces. Links that come back meanwhile do not add to it."""


class _Sent:
    """A message that has no outcome yet."""

    __slots__ = ("cost_s", "message", "moves", "node", "obsolete", "retries", "via", "waits")

    def __init__(self, node: NodeId, via: Interface, cost_s: float | None, message: Message, retries: int) -> None:
        self.node = node
        self.via = via
        self.cost_s = cost_s
        """Of the link it goes over, which its metric includes; None if that is not known."""
        self.message = message
        self.retries = retries
        self.moves = MAX_MOVES
        self.waits = QUEUE_TRIES
        self.obsolete = False
        """Whether a later message has made it pointless to send this one again."""


class Undelivered(NamedTuple):
    """What the broker has to be told of a neighbor: that it is lost, that a message was not delivered, or both."""

    node: NodeId
    lost: bool
    message: Message | None


class NeighborCache:
    """Which brokers can be reached, over which link at what cost.

    A link over which a message could not be delivered is set aside, and with the last link its neighbor is removed. It
    comes back when something is heard over the link, when discovery finds it anew, or after `unreachable_s`.

    A link may be reported down while messages are under way on it. Then their outcome decides: if one fails it is sent
    again all the same, and only if that fails too is the neighbor lost. A link kept so is not put aside when it fails:
    only discovery brings it back.
    """

    def __init__(self, port: Port, unreachable_s: float, retries: int, metrics_include_link: bool) -> None:
        self._port = port
        self._unreachable_s = unreachable_s
        self._retries = retries
        self._metrics_include_link = metrics_include_link
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._aside: dict[NodeId, dict[Interface, Link]] = {}
        self._heard: dict[NodeId, Interface] = {}
        """Who was heard before discovery found it: it may be answered, but its cost is not known."""
        self._unlisted: dict[tuple[NodeId, Interface], bool] = {}
        """Links in use that discovery has lost, and whether a message over them has failed since."""
        self._sent: dict[Token, _Sent] = {}
        self._under_way: dict[NodeId, dict[Token, _Sent]] = {}
        self._waiting: dict[Token, _Sent] = {}
        """What a full queue did not take, until its time comes."""
        self._token = 0

    def __iter__(self) -> Iterator[Link]:
        """The best link to each neighbor, in the order in which they came."""
        for links in list(self._links.values()):
            yield self._best(links.values())

    def reachable(self, node: NodeId) -> bool:
        """Whether it makes sense to send to a node."""
        return node in self._links or node in self._heard

    def cost_s(self, node: NodeId, via: Interface | None = None) -> float | None:
        """The cost of a link, or of the best to a neighbor; None if there is none."""
        links = self._links.get(node)
        if links is None:
            return None
        link = self._best(links.values()) if via is None else links.get(via)
        return None if link is None else link.cost_s

    # From discovery.

    def found(self, link: Link) -> bool:
        """Discovery has found a link or its new cost; True if it brings a new neighbor."""
        self._forget_aside(link.neighbor, link.interface)
        self._heard.pop(link.neighbor, None)
        self._unlisted.pop((link.neighbor, link.interface), None)
        new = link.neighbor not in self._links
        self._links.setdefault(link.neighbor, {})[link.interface] = link
        return new

    def gone(self, link: Link, cause: Failure) -> bool:
        """Discovery has lost a link; True if its neighbor is lost with it."""
        node, interface = link.neighbor, link.interface
        self._forget_aside(node, interface)
        self._heard.pop(node, None)
        busy = any(sent.via == interface for sent in self._under_way.get(node, {}).values())
        if self._retries and busy and interface in self._links.get(node, {}):
            self._unlisted.setdefault((node, interface), cause is Failure.UNREACHABLE)
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

    def send(self, node: NodeId, message: Message) -> bool:
        """Reliably to one neighbor, over its best link; False, with a named drop, if it is no neighbor."""
        via = self._way(node)
        if via is None:
            self._port.note(Fact("drop", peer=node, reason="neighbor_unreachable"))
            return False
        self._overtake(node, message)
        self._transmit(_Sent(node, via, self.cost_s(node, via), message, self._retries))
        return True

    def on_sent(self, token: Token, failure: Failure | None) -> Undelivered | None:
        """The outcome of a send, if the broker has to be told: what failed may just be sent again."""
        sent = self._sent.pop(token)
        under_way = self._under_way[sent.node]
        del under_way[token]
        if not under_way:
            del self._under_way[sent.node]
        if failure is Failure.UNREACHABLE:
            return self._on_unreachable(sent)
        if failure is Failure.QUEUE_FULL:
            return self._on_full_queue(token, sent)
        if not failure and self._unlisted.get((sent.node, sent.via)) is False:
            # It arrived, so this was not why discovery has lost the link.
            lost = self._remove(sent.node, sent.via) is not None and sent.node not in self._links
            return Undelivered(sent.node, lost, None) if lost else None
        return None

    def on_timer(self, token: Token) -> Undelivered | None:
        """A message that a full queue did not take is sent again."""
        sent = self._waiting.pop(token)
        via = self._way(sent.node)
        if via is None:
            return Undelivered(sent.node, False, sent.message)
        if isinstance(sent.message, Announcement):
            # What is left of its times has become less while it waited.
            aged = _aged(sent.message, _wait_s(sent.waits + 1))
            if aged is None:
                self._port.note(Fact("drop", event=sent.message.event.id, peer=sent.node, reason="lease_over"))
                return None
            sent.message = aged
        self._move(sent, via)
        return None

    def stop(self) -> None:
        """Disarm every timer."""
        for node, links in self._aside.items():
            for interface in links:
                self._port.cancel_timer(("back", (node, interface)))
        for token in self._waiting:
            self._port.cancel_timer(("resend", (token,)))
        self._aside.clear()
        self._waiting.clear()

    def _on_unreachable(self, sent: _Sent) -> Undelivered | None:
        node, via = sent.node, sent.via
        if (node, via) in self._unlisted:
            self._unlisted[node, via] = True
        if sent.obsolete:
            return None
        links = self._links.get(node, {})
        known = via in links or self._heard.get(node) == via
        if known and sent.retries and len(links) < 2:
            sent.retries -= 1
            self._transmit(sent)
            return None
        if known:
            self._set_aside(node, via)
        other = self._way(node)
        if other is None or not sent.moves:
            return Undelivered(node, known and other is None, sent.message)
        sent.moves -= 1
        self._move(sent, other)
        return None

    def _on_full_queue(self, token: Token, sent: _Sent) -> Undelivered | None:
        """A burst fills a queue for a moment. What makes paths waits; messages on the paths do not: they would only
        keep the queue full, and the streams' counters and caches are there for them."""
        if isinstance(sent.message, Publication | Fragment) or sent.obsolete:
            return None
        if not sent.waits:
            self._port.note(Fact("drop", peer=sent.node, reason="neighbor_congested"))
            known = self.reachable(sent.node)
            self._set_aside(sent.node, sent.via)
            return Undelivered(sent.node, known and not self.reachable(sent.node), sent.message)
        self._waiting[token] = sent
        self._port.set_timer(("resend", (token,)), _wait_s(sent.waits))
        sent.waits -= 1
        return None

    def _transmit(self, sent: _Sent) -> None:
        self._token += 1
        self._sent[self._token] = sent
        self._under_way.setdefault(sent.node, {})[self._token] = sent
        self._port.send(sent.node, sent.message, via=sent.via, token=self._token)

    def _move(self, sent: _Sent, via: Interface) -> None:
        """Send again over what may be another link, whose cost the metric then has to include instead."""
        before_s, after_s = sent.cost_s, self.cost_s(sent.node, via)
        if before_s is not None and after_s is not None and before_s != after_s:
            sent.message = self._with_link(sent.message, after_s - before_s)
        sent.via, sent.cost_s = via, after_s
        self._transmit(sent)

    def _with_link(self, message: Message, more_s: float) -> Message:
        if isinstance(message, Digest):
            more_us = ceil(more_s * US_PER_S)
            known = tuple(one._replace(metric_us=max(0, one.metric_us + more_us)) for one in message.known)
            return msgspec.structs.replace(message, known=known)
        if isinstance(message, Announcement | ShortAnnouncement) and self._metrics_include_link:
            return msgspec.structs.replace(message, metric_s=max(0.0, message.metric_s + more_s))
        return message

    def _overtake(self, node: NodeId, message: Message) -> None:
        """A message sent again comes after those that were sent meanwhile: what they take back must not return."""
        if not isinstance(message, PathMessage | Announcement | ShortAnnouncement):
            return
        for sent in self._under_way.get(node, {}).values():
            sent.obsolete = sent.obsolete or _overtakes(message, sent.message)
        for token, sent in list(self._waiting.items()):
            if sent.node == node and _overtakes(message, sent.message):
                del self._waiting[token]
                self._port.cancel_timer(("resend", (token,)))

    # Links.

    def _way(self, node: NodeId) -> Interface | None:
        links = self._links.get(node)
        return self._heard.get(node) if links is None else self._best(links.values()).interface

    def _best(self, links: Iterable[Link]) -> Link:
        """The cheapest; one that discovery has lost only if there is no other."""
        return min(links, key=lambda link: ((link.neighbor, link.interface) in self._unlisted, link.cost_s))

    def _set_aside(self, node: NodeId, interface: Interface) -> None:
        if self._heard.get(node) == interface:
            del self._heard[node]
        unlisted = (node, interface) in self._unlisted
        link = self._remove(node, interface)
        if link is not None and not unlisted:
            self._aside.setdefault(node, {})[interface] = link
            self._port.set_timer(("back", (node, interface)), self._unreachable_s)

    def _remove(self, node: NodeId, interface: Interface) -> Link | None:
        self._unlisted.pop((node, interface), None)
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


def _wait_s(waits: int) -> float:
    """How long to wait for a full queue when so many waits are left."""
    return QUEUE_WAIT_S * 2.0 ** (QUEUE_TRIES - waits)


def _aged(message: Announcement, wait_s: float) -> Announcement | None:
    """An announcement after a wait; None if its message's lease or its validity has ended meanwhile."""
    remaining_s, validity_s = message.remaining_s - wait_s, message.validity_s - wait_s
    if min(remaining_s, validity_s) <= 0:
        return None
    return msgspec.structs.replace(message, remaining_s=remaining_s, validity_s=validity_s)


def _overtakes(later: Message, earlier: Message) -> bool:
    """Whether `earlier` must not arrive after `later`. A request to announce anew says nothing of a path."""
    if isinstance(later, PathMessage):
        return (
            isinstance(earlier, PathMessage)
            and (earlier.id, earlier.subscriber) == (later.id, later.subscriber)
            and PathKind.RENEW not in (earlier.kind, later.kind)
        )
    assert isinstance(later, Announcement | ShortAnnouncement)
    return isinstance(earlier, PathLost) and earlier.id == later.id
