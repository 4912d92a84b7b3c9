"""Simplified Multicast Forwarding [RFC 6621] with source-based multipoint relays (S-MPR, appendix B).

Nodes exchange HELLOs, and each selects relays among its neighbors that together reach all nodes two hops away. A node
forwards an event only if it came from a neighbor that has selected it.
"""

from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import (
    Flood,
    NeighborHello,
    Neighbors,
    RelaySettings,
    SeenCache,
    TwoHopNeighborhood,
    Willingness,
)
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, Protocol, TimerKey
from carrycast.core.wire import EventMessage, Message

HELLO = "hello"
MISSED = 3
"""[RFC 3626 §18.3] NEIGHB_HOLD_TIME is three times the interval of HELLOs."""
JITTER = 0.25
"""[RFC 3626 §18.3] MAXJITTER is a quarter of the interval; it shortens the interval."""
HELLO_BYTES, LISTED_BYTES, COST_BYTES = 24, 5, 500
"""About the size of a HELLO and of each node that it lists; the size of the packet whose time is the cost of a link."""


class SmfSettings(RelaySettings, frozen=True):
    """The interval of HELLOs, and the willingness to forward."""

    # [RFC 3626 §18.2] HELLO_INTERVAL; RFC 6621 leaves the neighborhood discovery to other protocols.
    hello_s: Annotated[float, Meta(ge=0.01, le=3600, description="shortest time between two HELLOs of a node")] = 2.0
    # On a slow channel, HELLOs every 2 s would leave no time for events.
    hello_share: Annotated[
        float, Meta(gt=0, le=1, description="share of the time that HELLOs of a neighborhood take; they become rarer")
    ] = 0.05
    # [RFC 3626 §18.8] WILL_DEFAULT; RFC 6621, appendix B calls it the router priority.
    willingness: Annotated[
        int, Meta(ge=0, le=7, description="willingness to forward: 0 never, 7 always; a high one attracts traffic")
    ] = int(Willingness.DEFAULT)


class RelayedEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event that multipoint relays forward."""


class Hello(NeighborHello, frozen=True, gc=False, tag=2):
    """The neighbors of the sender, and which of them are its relays."""

    durations: ClassVar[tuple[str, ...]] = ("validity_s",)


class Smf(Protocol):
    """Flooding with fewer transmissions: the relays of each node reach all nodes within two hops."""

    name = "smf"
    summary = "flooding in which only multipoint relays forward (RFC 6621)"
    settings_type = SmfSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"hello_s": (1.0, 10.0), "jitter_s": (0.01, 0.5)}
    messages = (RelayedEvent, Hello)

    def __init__(self, node: NodeId, settings: SmfSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._flood = Flood(port, rng, settings, RelayedEvent)
        self._forwarded = SeenCache()
        self._neighbors = Neighbors()
        self._around = TwoHopNeighborhood(node)

    def on_start(self, now: float) -> None:
        # The first HELLO is sent at a random time, so that nodes that start together do not send together.
        self.port.set_timer(HELLO, self._settings.hello_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self._flood.stop()
        self.port.cancel_timer(HELLO)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._flood.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._flood.local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._neighbors.add(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        """[RFC 3626 §13] The link layer reports a lost neighbor before its HELLOs time out."""
        if self._neighbors.remove(link):
            self._around.lose(now, link.neighbor)

    def on_publish(self, now: float, event: Event) -> None:
        self._flood.publish(now, event)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Hello):
            if not self._around.on_hello(now, sender, message):
                self.port.note(Fact("drop", peer=sender, reason="hello_too_many_neighbors"))
            return
        assert isinstance(message, RelayedEvent)
        id = message.event.id
        # [RFC 6621 §6] Duplicate packet detection.
        new = id not in self._flood.seen_ids
        if new and not self._flood.receive(now, message):
            return
        # [RFC 6621, appendix B] A relay forwards what comes from neighbors that have selected it. As in RFC 3626,
        # §3.4.1, a duplicate counts too, if the copies before came from others.
        if id.source == self.node or not self._is_relay_of(now, sender):
            return
        if (new or not self._flood.is_over(message)) and self._forwarded.add(now, id, now + self._settings.seen_s):
            self._flood.forward(now, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == HELLO:
            self._send_hello(now)
        else:
            self._flood.on_timer(now, key)

    def _is_relay_of(self, now: float, sender: NodeId) -> bool:
        """Whether to forward for a sender. The relays of a sender without HELLOs are unknown, so all forward for it
        (classical flooding)."""
        return sender not in self._around or self._around.is_selector(now, sender)

    def _send_hello(self, now: float) -> None:
        lists = self._around.make_lists(now)
        listed = len(lists.mprs) + len(lists.symmetric) + len(lists.heard) + len(lists.lost)
        # All nodes of the neighborhood send as many HELLOs.
        cost_s = max((self._neighbors.cost_s(neighbor) for neighbor in self._neighbors), default=0.0)
        airtime_s = cost_s * (HELLO_BYTES + LISTED_BYTES * listed) / COST_BYTES
        interval_s = max(self._settings.hello_s, (len(self._neighbors) + 1) * airtime_s / self._settings.hello_share)
        interval_s = min(interval_s, 86_400 / MISSED)
        mprs, symmetric, heard, lost = (tuple(one) for one in (lists.mprs, lists.symmetric, lists.heard, lists.lost))
        willingness = self._settings.willingness
        self.port.broadcast(Hello(MISSED * interval_s, willingness, mprs, symmetric, heard, lost))
        self.port.set_timer(HELLO, interval_s * (1.0 - JITTER * self.rng.random()))
