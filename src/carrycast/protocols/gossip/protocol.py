"""Gossip: a node rebroadcasts an event with probability p when it first receives it (GOSSIP1(p, k): Haas, Halpern and
Li, INFOCOM 2002)."""

from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import Event, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import Flood, RelaySettings
from carrycast.core.protocol import Host, Interface, Port, Protocol, Settings, TimerKey
from carrycast.core.wire import EventMessage, Message


class GossipSettings(RelaySettings, frozen=True):
    """The probability of a rebroadcast: p and k of GOSSIP1."""

    p: Annotated[float, Meta(ge=0, le=1, description="probability of rebroadcasting an event")] = 0.7
    sure_hops: Annotated[
        int, Meta(ge=0, le=65535, description="within this many hops of the source every node rebroadcasts")
    ] = 0


class GossipedEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event that nodes rebroadcast with probability p."""


class Gossip(Protocol):
    """Flooding in which each node decides by a random draw; the source itself always broadcasts."""

    name = "gossip"
    summary = "every node rebroadcasts each event once, with probability p"
    settings_type = GossipSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"p": (0.3, 0.5, 0.9), "jitter_s": (0.01, 0.5)}
    messages = (GossipedEvent,)
    retunable = frozenset({"p", "sure_hops"})

    def __init__(self, node: NodeId, settings: GossipSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._p = settings.p
        self._sure_hops = settings.sure_hops
        self._flood = Flood(port, rng, settings, GossipedEvent)
        self._seen_ids = self._flood.seen_ids

    def on_retune(self, now: float, settings: Settings) -> None:
        assert isinstance(settings, GossipSettings)
        self._p, self._sure_hops = settings.p, settings.sure_hops

    def on_stop(self, now: float) -> None:
        self._flood.stop()

    def on_publish(self, now: float, event: Event) -> None:
        self._flood.publish(now, event)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._flood.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._flood.local.remove(subscription)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, GossipedEvent)
        if message.event.id in self._seen_ids or not self._flood.receive(now, message):
            return
        # One draw per event whatever the hops, so that runs with other settings draw the same numbers.
        drawn = self.rng.random() < self._p
        if drawn or message.hops <= self._sure_hops:
            self._flood.forward(now, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._flood.on_timer(now, key)
