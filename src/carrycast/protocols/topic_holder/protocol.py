"""Topic holders: publish/subscribe through nodes or places that a hash of the topic selects [003].

A subscriber refreshes its subscription at the holder of its topic every second. A publisher sends its event to the
holder (broker mode), or gets the list of subscriptions from the holder and sends the event itself (rendezvous mode).
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import ClassVar

import msgspec

from carrycast.core.matching import Filter, pinned_values, serves
from carrycast.core.model import Event, NodeId, Position, Subscription, SubscriptionId
from carrycast.core.parts import BoundedSeenCache, LocalSubscriptions
from carrycast.core.protocol import Fact, Host, Interface, Place, Port, Protocol, TimerKey, UsesRouter
from carrycast.core.wire import EventMessage, Message, hops_after
from carrycast.protocols.topic_holder.holder_lookup import HolderLookup
from carrycast.protocols.topic_holder.messages import (
    Advertise,
    HandOver,
    Notification,
    Publication,
    Refresh,
    SubscriptionEntry,
    SubscriptionList,
    split_entries,
)
from carrycast.protocols.topic_holder.publisher import RendezvousPublisher
from carrycast.protocols.topic_holder.rules import topic_key
from carrycast.protocols.topic_holder.settings import SCHEMES, TopicHolderSettings
from carrycast.protocols.topic_holder.subscription_table import SubscriptionTable, TableHandOver

MAX_TOPICS = 64
"""Topics of one filter, more than filters written by hand have."""


class TopicHolder(Protocol, UsesRouter):
    """Subscriber, publisher and holder in one: the applications and the hash decide which of them a node is for a
    topic."""

    name = "topic_holder"
    summary = "a topic's hash names the node or place where subscriptions and events meet"
    settings_type = TopicHolderSettings
    messages = (Refresh, Publication, Notification, Advertise, SubscriptionList, HandOver)
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = SCHEMES
    router = "aodv"

    def __init__(self, node: NodeId, settings: TopicHolderSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self.holders = HolderLookup(node, settings, host)
        self.table = SubscriptionTable(settings.max_held)
        self.hand_over = TableHandOver(self.holders, self.table, settings.list_bytes)
        self.publisher = RendezvousPublisher(settings, port)
        self._local = LocalSubscriptions(port)
        self._subscriptions: dict[SubscriptionId, tuple[Subscription, tuple[str, ...]]] = {}
        """The local subscriptions as they are sent, and the topics of each."""
        self._refreshes = 0
        self._armed: set[str] = set()
        self._seen = BoundedSeenCache(settings.max_seen)
        self.handled = BoundedSeenCache(settings.max_seen)

    def on_stop(self, now: float) -> None:
        for key in sorted(self._armed):
            self.port.cancel_timer(key)
        self._armed.clear()

    # A subscriber.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)
        self._subscriptions.pop(subscription.id, None)
        topics = pinned_values(Filter(subscription.filter), self._settings.topic)
        sent = Subscription(subscription.id, subscription.filter, attributes=subscription.attributes)
        if topics is None:
            # Events of any topic may match, so no holder can be chosen: only events of this node are delivered.
            self._drop("topic_not_pinned")
        elif len(topics) > MAX_TOPICS:
            self._drop("too_many_topics")
        elif len(msgspec.msgpack.encode(sent)) > self._settings.list_bytes:
            self._drop("subscription_too_long")
        elif topics:
            self._subscriptions[subscription.id] = (sent, tuple(topic_key(value) for value in topics))
            # At a random time of the first period, so that nodes started together do not stay synchronized.
            self._arm("refresh", self._settings.refresh_s * self.rng.random())

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        # [003 §3.4] Holders get no message: the subscription expires there, and until then its events are dropped here.
        self._local.remove(subscription)
        self._subscriptions.pop(subscription, None)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert isinstance(key, str)
        self._armed.discard(key)
        if key == "refresh":
            self._refresh(now)
        elif key == "watch":
            self._hand_over_tables(now)
        else:
            self._advertise(now, self.publisher.active_topics(now))

    def _refresh(self, now: float) -> None:
        """[003 §3.2.1] Each subscriber periodically sends its subscription, with its location."""
        if not self._subscriptions:
            return
        self._arm("refresh", self._settings.refresh_s)
        here = self._here(now)
        if here is None and self._settings.by_place:
            # Without a position, as a vehicle that has not entered the map: no event could be sent to it.
            return
        self._refreshes += 1
        version = (self.host.incarnation, self._refreshes)
        for subscription, topics in self._subscriptions.values():
            entry = SubscriptionEntry(subscription, here, version)
            for topic in topics:
                self._route(self.holders.find_all(now, topic), Refresh(topic, entry))

    def _on_notification(self, now: float, message: Notification, hops: int) -> None:
        event = message.event
        if not self._local.wants(event):
            # The subscription has been withdrawn or changed since, or the holder is wrong about it.
            self._drop("not_wanted", event)
        elif self._seen.add(now, event.id, now + self._settings.seen_s):
            self._local.deliver(event, hops_after(message.hops, hops))
        else:
            self._drop("already_delivered", event)

    # A publisher.

    def on_publish(self, now: float, event: Event) -> None:
        self._seen.add(now, event.id, now + self._settings.seen_s)
        self._local.deliver(event, 0)
        topic = self._topic(event)
        if topic is None:
            self._drop("no_topic", event)
        elif self._settings.mode == "broker":
            self._send_to_holders(now, topic, Publication(event, 0, event.lease_s))
        else:
            self._publish_directly(now, topic, Notification(event, 0, event.lease_s))

    def _send_to_holders(self, now: float, topic: str, message: Publication) -> None:
        """[003 §3.2.1] The publisher sends the event to its chosen brokers."""
        if not self._route(self.holders.find_for_publisher(now, topic, self._here(now)), message):
            self._drop("no_holder", message.event)

    def _publish_directly(self, now: float, topic: str, message: Notification) -> None:
        """[003 §3.2.2] The publisher evaluates the list it has. The first event of a topic waits for one."""
        self.publisher.on_published(now, topic)
        entries = self.publisher.entries(now, topic)
        if entries is not None:
            self._fan_out(message.event, message, 0, entries)
        else:
            self.publisher.enqueue(now, topic, message)
            self._advertise(now, [topic])
        self._arm("advertise", self._settings.advertise_s)

    def _advertise(self, now: float, topics: Iterable[str]) -> None:
        """[003 §3.2.2] A publisher periodically sends an advertisement to the rendezvous nodes."""
        here = self._here(now)
        for topic in topics:
            self._arm("advertise", self._settings.advertise_s)
            if here is not None or not self._settings.by_place:
                self._route(self.holders.find_for_publisher(now, topic, here), Advertise(topic, here))

    def _on_list(self, now: float, origin: NodeId, message: SubscriptionList) -> None:
        topic = message.topic
        if topic not in self.publisher:
            self._drop("not_asked", peer=origin)
            return
        if not self.holders.may_hold(origin, topic):
            self._drop("not_a_holder", peer=origin)
            return
        accepted = [entry for entry in message.entries if self._is_valid(entry, origin)]
        for waiting in self.publisher.on_list(now, topic, accepted, message.more):
            self._fan_out(waiting.event, waiting, 0, self.publisher.entries(now, topic) or [])

    # A holder.

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Refresh():
                self._on_refresh(now, origin, message)
            case Publication():
                self._on_publication(now, message, hops)
            case Notification():
                self._on_notification(now, message, hops)
            case Advertise():
                self._on_advertisement(now, origin, message)
            case SubscriptionList():
                self._on_list(now, origin, message)
            case HandOver():
                self._on_hand_over(now, origin, message, is_captor=True)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        # [003 §3.5] Only messages that a captor broadcasts come without the router.
        if isinstance(message, Refresh) and self._settings.by_place:
            self._store(now, sender, message.topic, message.entry, self._settings.timeout_s)
        elif isinstance(message, HandOver):
            self._on_hand_over(now, sender, message, is_captor=False)
        else:
            self._drop("not_routed", peer=sender)

    def _on_refresh(self, now: float, origin: NodeId, message: Refresh) -> None:
        if origin != message.entry.subscription.subscriber:
            self._drop("forged_subscriber", peer=origin)
        elif self._store(
            now, origin, message.topic, message.entry, self._settings.timeout_s
        ) and self.holders.is_within(message.topic, self._here(now)):
            # [003 §3.5] Within K of the place: U captures s and broadcasts it to all of its neighbors.
            self.port.broadcast(message)

    def _store(self, now: float, peer: NodeId, topic: str, entry: SubscriptionEntry, for_s: float) -> bool:
        if not self._is_valid(entry, peer):
            return False
        if not self.table.refresh(now, topic, entry, now + for_s):
            self._drop("table_full", peer=peer)
            return False
        if self._settings.hand_over:
            self.hand_over.on_entry(topic, self._here(now))
            if self.hand_over:
                self._arm("watch", self._settings.watch_s)
        return True

    def _hand_over_tables(self, now: float) -> None:
        """Beyond [003 §3.4]: a node that is no longer within K sends its table to the place."""
        for place, message in self.hand_over.make_hand_overs(now, self._here(now)):
            self.port.note(Fact("hand_over", value=float(len(message.entries))))
            self.port.route(place, message)
        if self.hand_over:
            self._arm("watch", self._settings.watch_s)

    def _on_hand_over(self, now: float, peer: NodeId, message: HandOver, is_captor: bool) -> None:
        """As with subscriptions [003 §3.5]: a node that captures a table within K broadcasts it to its neighbors."""
        if not self._settings.hand_over:
            self._drop("no_hand_over", peer=peer)
            return
        stored = [
            self._store(now, peer, message.topic, entry, min(remaining_s, self._settings.timeout_s))
            for entry, remaining_s in message.valid_entries()
        ]
        if stored and all(stored) and is_captor and self.holders.is_within(message.topic, self._here(now)):
            self.port.broadcast(message)

    def _is_valid(self, entry: SubscriptionEntry, peer: NodeId) -> bool:
        """Whether an entry can be used; else drop it with a reason. Bytes from the network are hostile."""
        flaw = self.holders.find_flaw(entry)
        if flaw is not None:
            self._drop(flaw, peer=peer)
        return flaw is None

    def _on_publication(self, now: float, message: Publication, hops: int) -> None:
        """[003 §3.5] V captures e without broadcasting, and processes it with its own table."""
        event = message.event
        topic = self._topic(event)
        if topic is None:
            self._drop("no_topic", event)
        elif self.handled.add(now, event.id, now + self._settings.seen_s):
            self._fan_out(event, message, hops_after(message.hops, hops), self.table.entries(now, topic))
        else:
            self._drop("already_handled", event)

    def _fan_out(self, event: Event, message: EventMessage, hops: int, entries: Iterable[SubscriptionEntry]) -> None:
        """[003 §2, §3.2] Topic, predicate and access policy, subscription by subscription; one message per node."""
        eligible: dict[NodeId, SubscriptionEntry] = {}
        for entry in entries:
            node = entry.subscription.subscriber
            # The event was delivered to the publisher's own applications already.
            if node != event.source and serves(event, entry.subscription):
                known = eligible.get(node)
                eligible[node] = entry if known is None or known.version < entry.version else known
        targets = [self._target(node, entry.position) for node, entry in eligible.items()]
        sent = Notification(event, hops, message.remaining_s)
        if self._settings.fan_out == "tree":
            self.port.route_each(targets, sent)
        else:
            self._route(targets, sent)

    def _on_advertisement(self, now: float, origin: NodeId, message: Advertise) -> None:
        """[003 §3.2.2] The rendezvous node matches the topic, without evaluation, and sends the list back."""
        if not self.holders.is_plausible_position(message.position):
            self._drop("absurd_position", peer=origin)
            return
        parts = split_entries(self.table.entries(now, message.topic), self._settings.list_bytes)
        for number, part in enumerate(parts, 1):
            listed = SubscriptionList(message.topic, tuple(part), number < len(parts))
            self.port.route(self._target(origin, message.position), listed)

    # Routing.

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        event = message.event if isinstance(message, EventMessage) else None
        topic = self._topic(event) if event is not None else getattr(message, "topic", None)
        if (
            isinstance(message, Notification | SubscriptionList | HandOver)
            or isinstance(target, Place)
            or topic is None
        ):
            self._drop("unreachable", event)
            return
        # [003 §3.4] If a holder fails, another one takes its place: the next by hash.
        onward = self.holders.find_next(now, target, topic)
        if isinstance(message, Refresh) and message.entry.version[1] < self._refreshes:
            # The route search took so long that newer refreshes are in transit.
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

    def _target(self, node: NodeId, position: Position | None) -> NodeId | Place:
        """The target for a node; [003 §3.1] a geographic router also gets its last position."""
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
