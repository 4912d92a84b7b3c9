"""A client over its connections: what it subscribed to, what it still has to get, and what it has said of QoS 2."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.durable_subscription import Consumer, LocalDelivery
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.config import Rights
from carrycast.node.gateways.mqtt.entry import Entry
from carrycast.node.gateways.mqtt.events import Messages
from carrycast.node.gateways.mqtt.outbox import Flight, Origin, Outbox, Parcel
from carrycast.node.gateways.mqtt.packets import Wish
from carrycast.node.gateways.mqtt.publishing import Publishing
from carrycast.node.gateways.mqtt.reasons import PacketError, Reason
from carrycast.node.gateways.mqtt.records import Records, SessionRecord, WishRecord
from carrycast.node.gateways.mqtt.refusals import Refusals
from carrycast.node.gateways.mqtt.retained import Retained
from carrycast.node.gateways.mqtt.shared import Groups
from carrycast.node.gateways.mqtt.vitals import Vitals
from carrycast.node.gateways.mqtt.wishes import read_wish

PREFETCH = 128
"""Events of one subscription that wait here rather than in the store."""


class Shop(Struct):
    """What all sessions of a gateway share."""

    backing: GatewayContext
    publishing: Publishing
    retained: Retained
    records: Records
    groups: Groups
    messages: Messages
    vitals: Vitals
    refusals: Refusals
    max_subscriptions: int
    max_queued: int


class Session:
    """One client. As the keeper of its outbox it tells the node what has arrived."""

    def __init__(self, shop: Shop, client_id: str, user: str | None, rights: Rights, expiry_s: float) -> None:
        self._shop = shop
        self.client_id = client_id
        self.user = user
        self.rights = rights
        self.expiry_s = expiry_s
        """How long it outlives its connection."""
        self.lasting = expiry_s > 0
        """Whether it was made to outlive its connections: it is in the store until it ends, also if its client says
        later that this connection is the last one."""
        self.until_wall_s: float | None = None
        self.outbox = Outbox(self, shop.max_queued)
        self.received: set[int] = set()
        """Packet ids of QoS 2 that the client has not released."""
        self._entries: dict[str, Entry] = {}

    def save(self) -> None:
        """Keep it in the store, if it lasts."""
        if self.lasting:
            wishes = [
                WishRecord(
                    entry.text,
                    entry.condition,
                    entry.wish.qos,
                    entry.wish.no_local,
                    entry.wish.as_published,
                    entry.subscription_id,
                )
                for entry in self._entries.values()
            ]
            record = SessionRecord(self.client_id, self.user, self.expiry_s, self.until_wall_s, wishes)
            self._shop.records.keep(record)

    def restore(self, wishes: list[WishRecord]) -> None:
        """What it had subscribed to before a restart; the node still does, for what waits in the store."""
        self.lasting = True
        for one in wishes:
            wish = Wish(one.text, one.qos, one.no_local, one.as_published)
            entry = Entry(one.text, read_wish(one.text, one.condition), one.condition, wish, one.subscription_id)
            entry.name = self._name(entry)
            self._entries[one.text] = entry
            if entry.wanted.group is not None:
                self._shop.groups.join(self, entry)

    # Subscriptions.

    def subscribe(self, wish: Wish, condition: str, subscription_id: int | None) -> Reason | int:
        """The QoS that a wish gets; a PacketError says why it gets none."""
        wanted = read_wish(wish.filter, condition)
        if wanted.group is not None and wish.no_local:
            raise PacketError(Reason.PROTOCOL_ERROR, "a shared subscription cannot leave out one's own")
        if not self.rights.may_subscribe(wanted.topics):
            raise PacketError(Reason.NOT_AUTHORIZED, "not allowed")
        before = self._entries.get(wish.filter)
        if before is None and len(self._entries) >= self._shop.max_subscriptions:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"a client has at most {self._shop.max_subscriptions} of them")
        entry = Entry(wish.filter, wanted, condition, wish, subscription_id)
        entry.name = self._name(entry)
        same = before is not None and (before.name, before.wanted) == (entry.name, entry.wanted)
        if before is not None and same:
            # Its options change, what waits for it stays.
            before.wish, before.subscription_id = wish, subscription_id
            entry = before
        else:
            if before is not None:
                self._end(before)
            self._open(entry)
            self._entries[wish.filter] = entry
        if wanted.group is None and wish.retain_handling < (1 if before is not None else 2):
            self.outbox.offer_later(entry.text, self._retained(entry))
            self._shop.retained.retrieve(wanted, partial(self._on_retrieved, entry))
        return wish.qos

    def unsubscribe(self, text: str) -> Reason:
        """End a subscription."""
        entry = self._entries.pop(text, None)
        if entry is None:
            return Reason.NO_SUBSCRIPTION
        self._end(entry)
        return Reason.SUCCESS

    def attach(self) -> None:
        """The client is connected: what stands in its name brings its events here."""
        for entry in list(self._entries.values()):
            if not self.rights.may_subscribe(entry.wanted.topics):
                self.unsubscribe(entry.text)
            elif not entry.read:
                self._open(entry)

    def detach(self) -> None:
        """The client has gone, and may come back."""
        left = self.outbox.disconnect()
        if not self.expiry_s:
            # While its groups are still read.
            self._keep_from_others()
        for entry in self._entries.values():
            if entry.read and entry.id is not None:
                self._shop.backing.node.detach(entry.id)
                self._shop.vitals.leave(self, entry)
                entry.read = False
                if entry.name is None:
                    entry.id = None
        self._shop.groups.refresh(self)
        self._shop.groups.hand_on(left)

    def end(self) -> None:
        """Nothing is left of it."""
        self._keep_from_others()
        for entry in self._entries.values():
            self._end(entry)
        self._entries.clear()
        self._shop.records.forget(self.client_id, self.received, self.outbox.flights)

    def _keep_from_others(self) -> None:
        """What a group gave it with QoS 2 goes to nobody else when it ends [MQTT-4.8.2-5]."""
        for origin in list(self.outbox.origins):
            if self._shop.groups.stands(self, origin.subscription):
                self.settle(origin, None)

    def _name(self, entry: Entry) -> str | None:
        """What waits while the client is away has a name; what is at most once does not wait."""
        if entry.wanted.group is not None or not self.lasting or entry.wish.qos == 0:
            return None
        return f"mqtt\0{self.client_id}\0{entry.text}"

    def _open(self, entry: Entry) -> None:
        if entry.wanted.group is not None:
            self._shop.groups.join(self, entry)
            return
        reader = Consumer(partial(self._on_delivery, entry), acknowledges=entry.name is not None, prefetch=PREFETCH)
        entry.id, entry.read = self._subscribed(entry, reader), True
        self._shop.vitals.join(self, entry)

    def _subscribed(self, entry: Entry, reader: Consumer | None) -> SubscriptionId:
        node, attributes = self._shop.backing.node, self.rights.attributes
        return node.subscribe(entry.wanted.filter, reader, entry.name, FOREVER_S, attributes, None, b"", False)

    def _end(self, entry: Entry) -> None:
        self.outbox.cancel_later(entry.text)
        if entry.wanted.group is not None:
            self._shop.groups.leave(self, entry)
            return
        if entry.id is None and entry.name is not None:
            # It stands by its name alone.
            entry.id = self._subscribed(entry, None)
        self._shop.vitals.leave(self, entry)
        if entry.id is not None:
            self._shop.backing.node.unsubscribe(entry.id)
            entry.id, entry.read = None, False

    # Deliveries.

    def _on_delivery(self, entry: Entry, subscription: SubscriptionId, delivery: LocalDelivery) -> None:
        origin = None
        if delivery.position is not None and entry.name is not None:
            origin = Origin(subscription, delivery.position)
        self.take(entry, delivery, origin)

    def take(self, entry: Entry, delivery: LocalDelivery, origin: Origin | None) -> None:
        """An event for a subscription of this client."""
        event = delivery.event
        if self._left_out(entry, event):
            self._settle_at_once(origin)
            return
        parcel = self._parcel(entry, event, self._until_s(event, delivery.waited_s))
        if parcel is None:
            self.drop("mqtt_topic")
            self._settle_at_once(origin)
            return
        parcel.origin, parcel.again = origin, delivery.redelivered
        parcel.group = entry.group
        if parcel.message.qos == 0:
            # A message of QoS 0 is never acknowledged: it has arrived when it is sent.
            self._settle_at_once(origin)
        self.outbox.offer(parcel)

    def _left_out(self, entry: Entry, event: Event) -> bool:
        """Whether a client has published an event that it does not want if it is its own [MQTT-3.8.3-3]."""
        return entry.wish.no_local and self._shop.publishing.own(self.client_id, event.id)

    def _parcel(self, entry: Entry, event: Event, until_s: float, retained: bool = False) -> Parcel | None:
        message = self._shop.messages.of(event)
        if message is None:
            return None
        properties = message.properties
        if entry.subscription_id is not None:
            properties = {**properties, "subscription_id": [entry.subscription_id]}
        retain = retained or (message.retain and entry.wish.as_published)
        qos = min(message.qos, entry.wish.qos)
        return Parcel(replace(message, qos=qos, retain=retain, properties=properties), until_s)

    def _retained(self, entry: Entry) -> Iterator[Parcel]:
        for event, until_s in self._shop.retained.matching(entry.wanted):
            parcel = self._parcel(entry, event, until_s, retained=True)
            if parcel is not None and not self._left_out(entry, event):
                yield parcel

    def _on_retrieved(self, entry: Entry, event: Event, until_s: float) -> None:
        parcel = self._parcel(entry, event, until_s, retained=True)
        if parcel is not None and self._entries.get(entry.text) is entry:
            self.outbox.offer(parcel)

    def _until_s(self, event: Event, waited_s: float) -> float:
        """When an event's lease is over, by this node's clock; of others' events it is counted from their arrival."""
        if math.isinf(event.lease_s):
            return math.inf
        backing = self._shop.backing
        begun_s = event.time_s if event.source == backing.id else backing.node.recorder.time_s() - waited_s
        return begun_s + event.lease_s

    # For the outbox.

    def stands(self, origin: Origin) -> bool:
        """Whether what is not acknowledged will be brought again."""
        id = origin.subscription
        return any(entry.id == id for entry in self._entries.values()) or self._shop.groups.stands(self, id)

    def settle(self, origin: Origin, saved: Callable[[], None] | None) -> None:
        """The client has a message, and its subscription need not bring it again."""

        def told(lost: WorkError | None) -> None:
            if lost is None and saved is not None:
                saved()

        try:
            acknowledge = self._shop.backing.node.acknowledge
            acknowledge(origin.subscription, [origin.position], None if saved is None else told)
        except UserError:
            # It has ended in the meantime.
            told(None)

    def _settle_at_once(self, origin: Origin | None) -> None:
        if origin is not None:
            self.settle(origin, None)

    def keep_flight(self, flight: Flight, kept: Callable[[], None] | None) -> None:
        if self.lasting:
            self._shop.records.keep_flight(self.client_id, flight)
            if kept is not None:
                self._shop.backing.group_commit.when_committed(lambda lost: kept() if lost is None else None)
        elif kept is not None:
            kept()

    def forget_flight(self, flight: Flight) -> None:
        if self.lasting:
            self._shop.records.forget_flight(self.client_id, flight.packet_id)

    def drop(self, reason: str) -> None:
        self._shop.backing.node.note_drop(reason)

    def now_s(self) -> float:
        return self._shop.backing.node.recorder.time_s()

    # QoS 2 of what the client publishes.

    def receive(self, packet_id: int) -> None:
        """A publication of QoS 2 was taken in, which is remembered until it is released."""
        self.received.add(packet_id)
        if self.lasting:
            self._shop.records.keep_received(self.client_id, packet_id)

    def release(self, packet_id: int) -> bool:
        """The client will not send it again; False if it never did."""
        if packet_id not in self.received:
            return False
        self.received.discard(packet_id)
        if self.lasting:
            self._shop.records.forget_received(self.client_id, packet_id)
        return True
