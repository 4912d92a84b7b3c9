"""003: topic holders reached through a router, by a node's id or by a place."""

import hashlib
from random import Random
from typing import Annotated

from msgspec import Meta

from driftcast.matching import serves
from driftcast.model import Event, NodeId, Position, Subscription, SubscriptionId
from driftcast.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Place,
    Port,
    Protocol,
    Settings,
    TimerKey,
    UsesRouter,
)
from driftcast.wire import EventMessage, Message

REFRESH_S = 1.0
"""[003 §5] Each subscriber sends its subscription every second."""
TIMEOUT_S = 3.0
"""Three refreshes; the paper gives no number."""

Topic = Annotated[str, Meta(max_length=128)]


class HolderSettings(Settings, frozen=True):
    """How a topic finds its holder, and who matches. The area repeats what the scenario says."""

    by_place: bool = False
    rendezvous: bool = False
    width_m: Annotated[float, Meta(gt=0)] = 1000.0
    height_m: Annotated[float, Meta(gt=0)] = 1000.0
    capture_m: Annotated[float, Meta(ge=0, description="K, half the radio's range")] = 125.0


class Refresh(Message, frozen=True, gc=False, tag=1):
    """[003 §3.2] A subscription on its way to its topic's holder, and from there to the holder's neighbors."""

    topic: Topic
    subscription: Subscription
    position: Position


class ToHolder(EventMessage, frozen=True, gc=False, kw_only=True, tag=2):
    """[003 §3.2] An event on its way to the topic's holder."""

    topic: Topic


class ToSubscriber(EventMessage, frozen=True, gc=False, kw_only=True, tag=3):
    """[003 §3.2] An event for one eligible subscriber."""

    subscription: SubscriptionId


class Lookup(Message, frozen=True, gc=False, tag=4):
    """[003 §3.2] A publisher asks the rendezvous node for the subscriptions of a topic."""

    topic: Topic
    position: Position


class Subscribers(Message, frozen=True, gc=False, tag=5):
    """[003 §3.2] The answer: who subscribes, and where each was."""

    topic: Topic
    entries: Annotated[tuple[tuple[Subscription, Position], ...], Meta(max_length=1024)]


def topic_hash(topic: str, salt: int) -> float:
    """Uniform in [0, 1), the same on every node."""
    return int.from_bytes(hashlib.sha1(f"{salt}:{topic}".encode()).digest()[:8]) / 2**64


class TopicHolders(Protocol, UsesRouter):
    """Subscriber, publisher and holder; which of them a node is for a topic, the hash decides."""

    name = "topic-holders"
    settings_type = HolderSettings
    messages = (Refresh, ToHolder, ToSubscriber, Lookup, Subscribers)
    needs = frozenset({Capability.POSITION, Capability.DIRECTORY})

    def __init__(self, node: NodeId, settings: HolderSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local: dict[SubscriptionId, tuple[str, Subscription]] = {}
        self._held: dict[SubscriptionId, tuple[str, Subscription, Position, float]] = {}
        self._listed: dict[SubscriptionId, tuple[str, Subscription, Position, float]] = {}

    def holder(self, topic: str) -> NodeId | Place:
        """[003 §3.3] Where a topic lives."""
        settings = self._settings
        if settings.by_place:
            center = Position(settings.width_m * topic_hash(topic, 1), settings.height_m * topic_hash(topic, 2))
            return Place(center, settings.capture_m)
        holders = self.host.directory("holder")
        return holders[int(len(holders) * topic_hash(topic, 0))]

    def _at(self, node: NodeId, position: Position) -> NodeId | Place:
        """The very node; a geographic router is also told where it was last."""
        return Place(position, 0.0, node) if self._settings.by_place else node

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        topic = str(subscription.attributes["topic"])
        self._local[subscription.id] = (topic, subscription)
        self.port.set_timer("refresh", REFRESH_S * self.rng.random())

    def on_timer(self, now: float, key: TimerKey) -> None:
        here = self.host.position(now)
        if here is not None:
            for topic, subscription in self._local.values():
                self.port.route(self.holder(topic), Refresh(topic, subscription, here))
        self.port.set_timer("refresh", REFRESH_S)

    def on_publish(self, now: float, event: Event) -> None:
        topic = str(event.attributes["topic"])
        to_holder = ToHolder(event, 0, event.lease_s, topic=topic)
        if self._settings.rendezvous:
            self._fan_out(now, topic, to_holder, 0, self._listed)
        else:
            self.port.route(self.holder(topic), to_holder)

    def look_up(self, now: float, topic: str) -> None:
        """[003 §3.2] Rendezvous mode, once per advertisement period."""
        here = self.host.position(now)
        if here is not None:
            self.port.route(self.holder(topic), Lookup(topic, here))

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Refresh():
                self._hold(now, message)
                # [003 §3.5] The captor tells its neighbors, so that all within K hold the same.
                self.port.broadcast(message)
            case ToHolder(topic=topic):
                self._fan_out(now, topic, message, message.hops + hops, self._held)
            case ToSubscriber():
                self.port.deliver(message.subscription, message.event, message.hops + hops)
            case Lookup(topic=topic):
                held = [(s, p) for t, s, p, until in self._held.values() if t == topic and until > now]
                self.port.route(self._at(origin, message.position), Subscribers(topic, tuple(held)))
            case Subscribers(topic=topic):
                for subscription, position in message.entries:
                    self._listed[subscription.id] = (topic, subscription, position, now + TIMEOUT_S)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        # The only message that does not come through the router: a captor's copy.
        assert isinstance(message, Refresh)
        self._hold(now, message)

    def _hold(self, now: float, refresh: Refresh) -> None:
        subscription = refresh.subscription
        self._held[subscription.id] = (refresh.topic, subscription, refresh.position, now + TIMEOUT_S)

    def _fan_out(
        self,
        now: float,
        topic: str,
        carried: EventMessage,
        hops: int,
        table: dict[SubscriptionId, tuple[str, Subscription, Position, float]],
    ) -> None:
        for id, (held_topic, subscription, where, until) in table.items():
            if held_topic == topic and until > now and serves(carried.event, subscription):
                onward = ToSubscriber(carried.event, hops, carried.remaining_s, subscription=id)
                self.port.route(self._at(subscription.subscriber, where), onward)

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        event = message.event.id if isinstance(message, EventMessage) else None
        self.port.note(Fact("drop", event=event, reason="unreachable"))
