"""Topic holders: publish/subscribe through nodes that a hash of the topic finds [003].

A subscriber tells the holder of its topic every second; a publisher sends its event there (broker mode), or asks there
who subscribes and sends the event itself (rendezvous mode).
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import ClassVar

import msgspec

from carrycast.core.matching import Filter, pinned_values, serves
from carrycast.core.model import Event, NodeId, Position, Subscription, SubscriptionId
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.seen import BoundedSeenCache
from carrycast.core.protocol import Fact, Host, Interface, Place, Port, Protocol, TimerKey, UsesRouter
from carrycast.core.wire import EventMessage, Message
from carrycast.protocols.topic_holder.homes import Homes
from carrycast.protocols.topic_holder.messages import (
    Advertise,
    Entry,
    HandOver,
    Refresh,
    Subscribers,
    ToHolder,
    ToSubscriber,
    parts,
)
from carrycast.protocols.topic_holder.publisher import Publisher
from carrycast.protocols.topic_holder.rules import topic_key
from carrycast.protocols.topic_holder.settings import SCHEMES, TopicHolderSettings
from carrycast.protocols.topic_holder.table import SubscriptionTable
from carrycast.protocols.topic_holder.watch import PlaceWatch

MAX_HOPS = 65535


class TopicHolder(Protocol, UsesRouter):
    """Subscriber, publisher and holder in one; which of them a node is for a topic, applications and hash decide."""

    name = "topic_holder"
    summary = "a topic's hash names the node or place where subscriptions and events meet"
    settings_type = TopicHolderSettings
    messages = (Refresh, ToHolder, ToSubscriber, Advertise, Subscribers, HandOver)
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = SCHEMES
    router = "aodv"

    def __init__(self, node: NodeId, settings: TopicHolderSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self.homes = Homes(node, settings, host)
        self.held = SubscriptionTable(settings.max_held)
        self.watch = PlaceWatch(self.homes, self.held, settings.list_bytes)
        self.publisher = Publisher(settings, port)
        self._local = LocalSubscriptions(port)
        self._wanted: dict[SubscriptionId, tuple[Subscription, tuple[str, ...]]] = {}
        """What this node's applications subscribe to, as it travels, and the topics of each."""
        self._refreshes = 0
        self._armed: set[str] = set()
        self._met = BoundedSeenCache(settings.max_seen)
        self.handled = BoundedSeenCache(settings.max_seen)

    def on_stop(self, now: float) -> None:
        for key in sorted(self._armed):
            self.port.cancel_timer(key)
        self._armed.clear()

    # A subscriber.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)
        self._wanted.pop(subscription.id, None)
        topics = pinned_values(Filter(subscription.filter), self._settings.topic)
        lean = Subscription(subscription.id, subscription.filter, attributes=subscription.attributes)
        if topics is None:
            # Whatever its topic an event may match, so no holder can know of it: what is published here is all it gets.
            self._drop("topic_not_pinned")
        elif len(topics) > self._settings.max_topics:
            self._drop("too_many_topics")
        elif len(msgspec.msgpack.encode(lean)) > self._settings.list_bytes:
            self._drop("subscription_too_long")
        elif topics:
            self._wanted[subscription.id] = (lean, tuple(topic_key(value) for value in topics))
            # At a random moment of the first period, so that nodes started together do not speak together for ever.
            self._arm("refresh", self._settings.refresh_s * self.rng.random())

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        # [003 §3.4] Holders are not told: what is not refreshed times out, and till then it is not wanted here.
        self._local.remove(subscription)
        self._wanted.pop(subscription, None)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert isinstance(key, str)
        self._armed.discard(key)
        if key == "refresh":
            self._refresh(now)
        elif key == "watch":
            self._leave(now)
        else:
            self._ask(now, self.publisher.topics(now))

    def _refresh(self, now: float) -> None:
        """[003 §3.2.1] Each subscriber periodically sends its subscription, with its location."""
        if not self._wanted:
            return
        self._arm("refresh", self._settings.refresh_s)
        here = self._here(now)
        if here is None and self._settings.by_place:
            # Nowhere, as a vehicle that has not entered the map: nobody could send it anything.
            return
        self._refreshes += 1
        version = (self.host.incarnation, self._refreshes)
        for subscription, topics in self._wanted.values():
            entry = Entry(subscription, here, version)
            for topic in topics:
                self._route(self.homes.all(now, topic), Refresh(topic, entry))

    def _on_event(self, now: float, message: ToSubscriber, hops: int) -> None:
        event = message.event
        if not self._local.wants(event):
            # It has unsubscribed or changed its mind since, or the holder is wrong about it.
            self._drop("not_wanted", event)
        elif self._met.add(now, event.id, now + self._settings.seen_s):
            self._local.deliver(event, _sum(message.hops, hops))
        else:
            self._drop("already_delivered", event)

    # A publisher.

    def on_publish(self, now: float, event: Event) -> None:
        self._met.add(now, event.id, now + self._settings.seen_s)
        self._local.deliver(event, 0)
        topic = self._topic(event)
        if topic is None:
            self._drop("no_topic", event)
        elif self._settings.mode == "broker":
            self._to_holder(now, topic, ToHolder(event, 0, event.lease_s))
        else:
            self._publish_directly(now, topic, ToSubscriber(event, 0, event.lease_s))

    def _to_holder(self, now: float, topic: str, message: ToHolder) -> None:
        """[003 §3.2.1] The publisher sends the event to its chosen brokers."""
        if not self._route(self.homes.asked(now, topic, self._here(now)), message):
            self._drop("no_holder", message.event)

    def _publish_directly(self, now: float, topic: str, message: ToSubscriber) -> None:
        """[003 §3.2.2] The publisher evaluates the list it has. The first event of a topic waits for one."""
        self.publisher.publishes(now, topic)
        entries = self.publisher.subscribers(now, topic)
        if entries is not None:
            self._fan_out(message.event, message, 0, entries)
        else:
            self.publisher.wait(now, topic, message)
            self._ask(now, [topic])
        self._arm("advertise", self._settings.advertise_s)

    def _ask(self, now: float, topics: Iterable[str]) -> None:
        """[003 §3.2.2] A publisher periodically sends an advertisement to the rendezvous nodes."""
        here = self._here(now)
        for topic in topics:
            self._arm("advertise", self._settings.advertise_s)
            if here is not None or not self._settings.by_place:
                self._route(self.homes.asked(now, topic, here), Advertise(topic, here))

    def _on_list(self, now: float, origin: NodeId, message: Subscribers) -> None:
        topic = message.topic
        if topic not in self.publisher:
            self._drop("not_asked", peer=origin)
            return
        if not self.homes.holds(origin, topic):
            self._drop("not_a_holder", peer=origin)
            return
        believed = [entry for entry in message.entries if self._is_sound(entry, origin)]
        for waiting in self.publisher.learn(now, topic, believed, message.more):
            self._fan_out(waiting.event, waiting, 0, self.publisher.subscribers(now, topic) or [])

    # A holder.

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Refresh():
                self._on_refresh(now, origin, message)
            case ToHolder():
                self._on_published(now, message, hops)
            case ToSubscriber():
                self._on_event(now, message, hops)
            case Advertise():
                self._on_advertised(now, origin, message)
            case Subscribers():
                self._on_list(now, origin, message)
            case HandOver():
                self._on_handed(now, origin, message, is_captor=True)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        # [003 §3.5] Only what a captor broadcasts comes without the router.
        if isinstance(message, Refresh) and self._settings.by_place:
            self._hold(now, sender, message.topic, message.entry, self._settings.timeout_s)
        elif isinstance(message, HandOver):
            self._on_handed(now, sender, message, is_captor=False)
        else:
            self._drop("not_routed", peer=sender)

    def _on_refresh(self, now: float, origin: NodeId, message: Refresh) -> None:
        if origin != message.entry.subscription.subscriber:
            self._drop("forged_subscriber", peer=origin)
        elif self._hold(now, origin, message.topic, message.entry, self._settings.timeout_s) and self.homes.is_within(
            message.topic, self._here(now)
        ):
            # [003 §3.5] Within K of the place: U captures s and broadcasts it to all of its neighbors.
            self.port.broadcast(message)

    def _hold(self, now: float, peer: NodeId, topic: str, entry: Entry, for_s: float) -> bool:
        if not self._is_sound(entry, peer):
            return False
        if not self.held.hold(now, topic, entry, now + for_s):
            self._drop("table_full", peer=peer)
            return False
        if self._settings.hand_over:
            self.watch.holds(topic, self._here(now))
            if self.watch:
                self._arm("watch", self._settings.watch_s)
        return True

    def _leave(self, now: float) -> None:
        """Beyond [003 §3.4]: who is no longer within K sends what it holds to the place."""
        for place, message in self.watch.left(now, self._here(now)):
            self.port.note(Fact("hand_over", value=float(len(message.handed))))
            self.port.route(place, message)
        if self.watch:
            self._arm("watch", self._settings.watch_s)

    def _on_handed(self, now: float, peer: NodeId, message: HandOver, is_captor: bool) -> None:
        """As with subscriptions [003 §3.5]: who captures a table within K tells its neighbors."""
        if not self._settings.hand_over:
            self._drop("no_hand_over", peer=peer)
            return
        held = [
            self._hold(now, peer, message.topic, entry, min(remaining_s, self._settings.timeout_s))
            for entry, remaining_s in message.standing()
        ]
        if held and all(held) and is_captor and self.homes.is_within(message.topic, self._here(now)):
            self.port.broadcast(message)

    def _is_sound(self, entry: Entry, peer: NodeId) -> bool:
        """Whether an entry can be matched, passed on and sent to. Bytes from the network are hostile."""
        flaw = self.homes.flaw(entry)
        if flaw is not None:
            self._drop(flaw, peer=peer)
        return flaw is None

    def _on_published(self, now: float, message: ToHolder, hops: int) -> None:
        """[003 §3.5] V captures e without broadcasting, and processes it with its own table."""
        event = message.event
        topic = self._topic(event)
        if topic is None:
            self._drop("no_topic", event)
        elif self.handled.add(now, event.id, now + self._settings.seen_s):
            self._fan_out(event, message, _sum(message.hops, hops), self.held.entries(now, topic))
        else:
            self._drop("already_handled", event)

    def _fan_out(self, event: Event, message: EventMessage, hops: int, entries: Iterable[Entry]) -> None:
        """[003 §2, §3.2] Topic, predicate and access policy, subscription by subscription; one message per node."""
        eligible: dict[NodeId, Entry] = {}
        for entry in entries:
            node = entry.subscription.subscriber
            # The publisher's own applications have it already.
            if node != event.source and serves(event, entry.subscription):
                known = eligible.get(node)
                eligible[node] = entry if known is None or known.version < entry.version else known
        targets = [self._at(node, entry.position) for node, entry in eligible.items()]
        sent = ToSubscriber(event, hops, message.remaining_s)
        if self._settings.fan_out == "tree":
            self.port.route_each(targets, sent)
        else:
            self._route(targets, sent)

    def _on_advertised(self, now: float, origin: NodeId, message: Advertise) -> None:
        """[003 §3.2.2] The rendezvous node matches the topic, without evaluation, and sends the list back."""
        if not self.homes.believes(message.position):
            self._drop("absurd_position", peer=origin)
            return
        cut = parts(self.held.entries(now, message.topic), self._settings.list_bytes)
        for number, part in enumerate(cut, 1):
            listed = Subscribers(message.topic, tuple(part), number < len(cut))
            self.port.route(self._at(origin, message.position), listed)

    # Ways and ends.

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        event = message.event if isinstance(message, EventMessage) else None
        topic = self._topic(event) if event is not None else getattr(message, "topic", None)
        if isinstance(message, ToSubscriber | Subscribers | HandOver) or isinstance(target, Place) or topic is None:
            self._drop("unreachable", event)
            return
        # [003 §3.4] If a holder fails, another one takes its place: the next by hash.
        onward = self.homes.after(now, target, topic)
        if isinstance(message, Refresh) and message.entry.version[1] < self._refreshes:
            # The search took so long that there are newer ones on their way.
            self._drop("outdated", peer=target)
        elif onward is None:
            self._drop("no_holder", event, target)
        else:
            self.port.note(Fact("next_holder", event=None if event is None else event.id, peer=target))
            self.port.route(onward, message)

    def _route(self, targets: Iterable[NodeId | Place], message: Message) -> bool:
        routed = False
        for target in targets:
            self.port.route(target, message)
            routed = True
        return routed

    def _at(self, node: NodeId, position: Position | None) -> NodeId | Place:
        """The very node; [003 §3.1] a geographic router is also told where it was last."""
        return node if position is None or not self._settings.by_place else Place(position, 0.0, node)

    def _here(self, now: float) -> Position | None:
        return self.host.position(now) if self._settings.by_place else None

    def _topic(self, event: Event) -> str | None:
        value = event.attributes.get(self._settings.topic)
        return None if value is None else topic_key(value)

    def _arm(self, key: str, delay_s: float) -> None:
        if key not in self._armed:
            self._armed.add(key)
            self.port.set_timer(key, delay_s)

    def _drop(self, reason: str, event: Event | None = None, peer: NodeId | None = None) -> None:
        self.port.note(Fact("drop", None if event is None else event.id, peer, reason))


def _sum(hops: int, more: int) -> int:
    return min(hops + more, MAX_HOPS)
