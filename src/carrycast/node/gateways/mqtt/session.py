"""The Session State of a client [MQTT 5, 4.1]: subscriptions, in-flight messages, and Packet Identifiers of QoS 2."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.errors import UserError, WorkError
from carrycast.node.api import Consumer, LocalDelivery
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.config import AccessRights
from carrycast.node.gateways.mqtt.events import MessageCache
from carrycast.node.gateways.mqtt.in_flight import DeliveryPosition, InFlightMessage, InFlightMessages, OutboundMessage
from carrycast.node.gateways.mqtt.packets import SubscriptionOptions
from carrycast.node.gateways.mqtt.publisher import MqttPublisher
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason
from carrycast.node.gateways.mqtt.retained import RetainedMessages
from carrycast.node.gateways.mqtt.session_store import SessionRecord, SessionStore, SubscriptionRecord
from carrycast.node.gateways.mqtt.shared_subscriptions import SharedSubscriptions
from carrycast.node.gateways.mqtt.sys_statistics import SysStatistics
from carrycast.node.gateways.mqtt.topic_filters import SessionSubscription, parse_topic_subscription
from carrycast.node.recorder import LOG

PREFETCH = 128
"""The most unacknowledged events of one subscription that the node delivers to the session."""

LOG_INTERVAL_S = 60.0
"""The interval after which the same rejection of a client is logged again."""
MAX_CLIENTS = 256
"""The most rejections that are remembered; while there are so many, others are not logged."""


class RejectionLog:
    """Logs rejections, because MQTT 3.1.1 cannot send the reason to the client."""

    def __init__(self) -> None:
        self._logged_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def log(self, client_id: str, what: str, why: str) -> None:
        """Log a rejection, unless the same was logged for this client a moment ago."""
        now_s, key = time.monotonic(), (client_id, what)
        while self._logged_s and now_s - next(iter(self._logged_s.values())) >= LOG_INTERVAL_S:
            self._logged_s.popitem(last=False)
        if key not in self._logged_s and len(self._logged_s) < MAX_CLIENTS:
            self._logged_s[key] = now_s
            LOG.warning("%s of the MQTT client %r is rejected: %s", what, client_id[:100], why[:1000])


class MqttContext(Struct):
    """The parts of a gateway that all its sessions use."""

    node_context: GatewayContext
    publisher: MqttPublisher
    retained: RetainedMessages
    session_store: SessionStore
    shared: SharedSubscriptions
    messages: MessageCache
    statistics: SysStatistics
    rejections: RejectionLog
    max_subscriptions: int
    max_queued: int


class MqttSession:
    """The session of one client. It is the `SessionKeeper` of its in-flight messages."""

    def __init__(
        self, context: MqttContext, client_id: str, user: str | None, rights: AccessRights, expiry_s: float
    ) -> None:
        self._context = context
        self.client_id = client_id
        self.user = user
        self.rights = rights
        self.expiry_s = expiry_s
        """The Session Expiry Interval."""
        self.is_persistent = expiry_s > 0
        """Whether the session was created to outlive its connections. Then it is in the store until it ends, also if
        its client later sets the Session Expiry Interval to 0."""
        self.until_wall_s: float | None = None
        self.in_flight = InFlightMessages(self, context.max_queued)
        self.received: set[int] = set()
        """Packet Identifiers of QoS 2 that the client has not released (PUBREL)."""
        self._entries: dict[str, SessionSubscription] = {}

    def save(self) -> None:
        """Save the session in the store, if it is persistent."""
        if self.is_persistent:
            subscriptions = [
                SubscriptionRecord(
                    entry.text,
                    entry.condition,
                    entry.options.qos,
                    entry.options.no_local,
                    entry.options.retain_as_published,
                    entry.subscription_id,
                )
                for entry in self._entries.values()
            ]
            record = SessionRecord(self.client_id, self.user, self.expiry_s, self.until_wall_s, subscriptions)
            self._context.session_store.save(record)

    def restore(self, subscriptions: list[SubscriptionRecord]) -> None:
        """Restore the subscriptions after a restart. The durable subscriptions at the node still exist."""
        self.is_persistent = True
        for one in subscriptions:
            options = SubscriptionOptions(one.text, one.qos, one.no_local, one.retain_as_published)
            entry = SessionSubscription(
                one.text, parse_topic_subscription(one.text, one.condition), one.condition, options, one.subscription_id
            )
            entry.name = self._durable_name(entry)
            self._entries[one.text] = entry
            if entry.topic_filter.group is not None:
                self._context.shared.join(self, entry)

    # Subscriptions.

    def subscribe(self, options: SubscriptionOptions, condition: str, subscription_id: int | None) -> Reason | int:
        """Subscribe, and return the granted QoS. Raises PacketError if the subscription is rejected."""
        topic_filter = parse_topic_subscription(options.filter, condition)
        if topic_filter.group is not None and options.no_local:
            raise PacketError(Reason.PROTOCOL_ERROR, "a shared subscription cannot have No Local")
        if not self.rights.may_subscribe(topic_filter.topics):
            raise PacketError(Reason.NOT_AUTHORIZED, "not allowed")
        before = self._entries.get(options.filter)
        if before is None and len(self._entries) >= self._context.max_subscriptions:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"a client has at most {self._context.max_subscriptions} of them")
        entry = SessionSubscription(options.filter, topic_filter, condition, options, subscription_id)
        entry.name = self._durable_name(entry)
        same = before is not None and (before.name, before.topic_filter) == (entry.name, entry.topic_filter)
        if before is not None and same:
            # Only its options change; its backlog stays.
            before.options, before.subscription_id = options, subscription_id
            entry = before
        else:
            if before is not None:
                self._end_subscription(before)
            self._open_subscription(entry)
            self._entries[options.filter] = entry
        if topic_filter.group is None and options.retain_handling < (1 if before is not None else 2):
            self.in_flight.enqueue_later(entry.text, self._retained_messages(entry))
            self._context.retained.request_retained(topic_filter, partial(self._on_retrieved, entry))
        return options.qos

    def unsubscribe(self, text: str) -> Reason:
        """End a subscription."""
        entry = self._entries.pop(text, None)
        if entry is None:
            return Reason.NO_SUBSCRIPTION
        self._end_subscription(entry)
        return Reason.SUCCESS

    def attach(self) -> None:
        """Let the node deliver to this session, because its client has connected."""
        for entry in list(self._entries.values()):
            if not self.rights.may_subscribe(entry.topic_filter.topics):
                self.unsubscribe(entry.text)
            elif not entry.is_attached:
                self._open_subscription(entry)

    def detach(self) -> None:
        """Let the node stop delivering to this session, because its client has disconnected."""
        returned = self.in_flight.disconnect()
        if not self.expiry_s:
            # The Shared Subscriptions still have consumers, so the node accepts acknowledgements.
            self._acknowledge_shared()
        for entry in self._entries.values():
            if entry.is_attached and entry.id is not None:
                self._context.node_context.node.detach(entry.id)
                self._context.statistics.leave(self, entry)
                entry.is_attached = False
                if entry.name is None:
                    entry.id = None
        self._context.shared.refresh(self)
        self._context.shared.reassign(returned)

    def end(self) -> None:
        """End the session and delete it from the store."""
        self._acknowledge_shared()
        for entry in self._entries.values():
            self._end_subscription(entry)
        self._entries.clear()
        self._context.session_store.delete(self.client_id, self.received, self.in_flight.packet_ids)

    def _acknowledge_shared(self) -> None:
        """Acknowledge messages of Shared Subscriptions: those of QoS 2 go to no other member [MQTT-4.8.2-5]."""
        for delivery_position in list(self.in_flight.positions):
            if self._context.shared.is_active(self, delivery_position.subscription):
                self.acknowledge(delivery_position, None)

    def _durable_name(self, entry: SessionSubscription) -> str | None:
        """Return the name of the durable subscription; None with QoS 0, whose messages are not queued."""
        if entry.topic_filter.group is not None or not self.is_persistent or entry.options.qos == 0:
            return None
        return f"mqtt\0{self.client_id}\0{entry.text}"

    def _open_subscription(self, entry: SessionSubscription) -> None:
        if entry.topic_filter.group is not None:
            self._context.shared.join(self, entry)
            return
        consumer = Consumer(partial(self._on_delivery, entry), acknowledges=entry.name is not None, prefetch=PREFETCH)
        entry.id, entry.is_attached = self._subscribe_node(entry, consumer), True
        self._context.statistics.join(self, entry)

    def _subscribe_node(self, entry: SessionSubscription, consumer: Consumer | None) -> SubscriptionId:
        node, attributes = self._context.node_context.node, self.rights.attributes
        return node.subscribe(entry.topic_filter.filter, consumer, entry.name, FOREVER_S, attributes, None, b"", False)

    def _end_subscription(self, entry: SessionSubscription) -> None:
        self.in_flight.cancel_later(entry.text)
        if entry.topic_filter.group is not None:
            self._context.shared.leave(self, entry)
            return
        if entry.id is None and entry.name is not None:
            # The node finds it by its name, so that it can be ended.
            entry.id = self._subscribe_node(entry, None)
        self._context.statistics.leave(self, entry)
        if entry.id is not None:
            self._context.node_context.node.unsubscribe(entry.id)
            entry.id, entry.is_attached = None, False

    # Deliveries.

    def _on_delivery(self, entry: SessionSubscription, subscription: SubscriptionId, delivery: LocalDelivery) -> None:
        delivery_position = None
        if delivery.position is not None and entry.name is not None:
            delivery_position = DeliveryPosition(subscription, delivery.position)
        self.deliver(entry, delivery, delivery_position)

    def deliver(
        self, entry: SessionSubscription, delivery: LocalDelivery, delivery_position: DeliveryPosition | None
    ) -> None:
        """Deliver an event of a subscription to the client."""
        event = delivery.event
        if self._is_excluded(entry, event):
            self._acknowledge_now(delivery_position)
            return
        outbound = self._make_outbound(entry, event, self._expiry_time_s(event, delivery.waited_s))
        if outbound is None:
            self.drop("mqtt_topic")
            self._acknowledge_now(delivery_position)
            return
        outbound.delivery_position, outbound.dup = delivery_position, delivery.redelivered
        outbound.group = entry.group
        if outbound.message.qos == 0:
            # A message of QoS 0 is not acknowledged by the client.
            self._acknowledge_now(delivery_position)
        self.in_flight.enqueue(outbound)

    def _is_excluded(self, entry: SessionSubscription, event: Event) -> bool:
        """Whether No Local excludes an event that this client has published [MQTT-3.8.3-3]."""
        return entry.options.no_local and self._context.publisher.is_own(self.client_id, event.id)

    def _make_outbound(
        self, entry: SessionSubscription, event: Event, until_s: float, retained: bool = False
    ) -> OutboundMessage | None:
        message = self._context.messages.convert(event)
        if message is None:
            return None
        properties = message.properties
        if entry.subscription_id is not None:
            properties = {**properties, "subscription_identifier": [entry.subscription_id]}
        retain = retained or (message.retain and entry.options.retain_as_published)
        qos = min(message.qos, entry.options.qos)
        return OutboundMessage(replace(message, qos=qos, retain=retain, properties=properties), until_s)

    def _retained_messages(self, entry: SessionSubscription) -> Iterator[OutboundMessage]:
        for event, until_s in self._context.retained.find_matching(entry.topic_filter):
            outbound = self._make_outbound(entry, event, until_s, retained=True)
            if outbound is not None and not self._is_excluded(entry, event):
                yield outbound

    def _on_retrieved(self, entry: SessionSubscription, event: Event, until_s: float) -> None:
        outbound = self._make_outbound(entry, event, until_s, retained=True)
        if outbound is not None and self._entries.get(entry.text) is entry:
            self.in_flight.enqueue(outbound)

    def _expiry_time_s(self, event: Event, waited_s: float) -> float:
        """Return when the lease of an event expires, by this node's clock. The lease of another node's event is counted
        from its arrival."""
        if math.isinf(event.lease_s):
            return math.inf
        node_context = self._context.node_context
        begun_s = event.time_s if event.source == node_context.id else node_context.node.recorder.time_s() - waited_s
        return begun_s + event.lease_s

    # For the in-flight messages.

    def is_active(self, delivery_position: DeliveryPosition) -> bool:
        """Whether the subscription of a message still exists."""
        id = delivery_position.subscription
        return any(entry.id == id for entry in self._entries.values()) or self._context.shared.is_active(self, id)

    def acknowledge(self, delivery_position: DeliveryPosition, on_synced: Callable[[], None] | None) -> None:
        """Acknowledge a message to its subscription; `on_synced` is called when that is on disk."""

        def on_committed(error: WorkError | None) -> None:
            if error is None and on_synced is not None:
                on_synced()

        try:
            acknowledge = self._context.node_context.node.acknowledge
            acknowledge(
                delivery_position.subscription,
                [delivery_position.position],
                None if on_synced is None else on_committed,
            )
        except UserError:
            # The subscription has ended in the meantime.
            on_committed(None)

    def _acknowledge_now(self, delivery_position: DeliveryPosition | None) -> None:
        if delivery_position is not None:
            self.acknowledge(delivery_position, None)

    def save_in_flight(self, inflight: InFlightMessage, on_saved: Callable[[], None] | None) -> None:
        if self.is_persistent:
            self._context.session_store.save_in_flight(self.client_id, inflight)
            if on_saved is not None:
                self._context.node_context.group_commit.when_committed(
                    lambda lost: on_saved() if lost is None else None
                )
        elif on_saved is not None:
            on_saved()

    def delete_in_flight(self, inflight: InFlightMessage) -> None:
        if self.is_persistent:
            self._context.session_store.delete_in_flight(self.client_id, inflight.packet_id)

    def drop(self, reason: str) -> None:
        self._context.node_context.node.note_drop(reason)

    def now_s(self) -> float:
        return self._context.node_context.node.recorder.time_s()

    # Publications of QoS 2.

    def add_received(self, packet_id: int) -> None:
        """Remember the Packet Identifier of a publication of QoS 2 until it is released."""
        self.received.add(packet_id)
        if self.is_persistent:
            self._context.session_store.save_packet_id(self.client_id, packet_id)

    def release(self, packet_id: int) -> bool:
        """Release a Packet Identifier on PUBREL. Return False if it is unknown."""
        if packet_id not in self.received:
            return False
        self.received.discard(packet_id)
        if self.is_persistent:
            self._context.session_store.delete_packet_id(self.client_id, packet_id)
        return True
