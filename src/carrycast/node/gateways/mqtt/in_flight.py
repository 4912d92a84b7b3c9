"""The outbound messages of a session: in-flight messages with their Packet Identifiers, and queued ones.

A message of QoS 1 is in flight until PUBACK. A message of QoS 2 is delivered when PUBREC arrives; its Packet Identifier
stays in use until PUBCOMP, also after a reconnection. The messages in flight over a connection are no more than the
client's Receive Maximum [MQTT 5, 4.9].
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from msgspec import Struct

from carrycast.core.model import SubscriptionId
from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.packets import AckPacket, ApplicationMessage
from carrycast.node.gateways.mqtt.reason_codes import Reason

MAX_IN_FLIGHT = 64
"""The most in-flight messages of one client, if its Receive Maximum is greater: few enough to be sent again at once."""
MAX_ID = 65_535


class DeliveryPosition(Struct, frozen=True):
    """The position of a message in the backlog of a durable subscription of the node. A later subscription of the same
    name has another id, and its own positions."""

    subscription: SubscriptionId
    position: int


class OutboundMessage(Struct):
    """A message for one client, which is not in flight yet."""

    message: ApplicationMessage
    until_s: float
    """When it expires, by the node's clock."""
    delivery_position: DeliveryPosition | None = None
    dup: bool = False
    group: str | None = None
    """The key of a Shared Subscription: another member may get the message instead."""


class InFlightMessage(Struct):
    """A message that was sent and not acknowledged, with its Packet Identifier."""

    packet_id: int
    qos: int
    delivery_position: DeliveryPosition | None = None
    outbound: OutboundMessage | None = None
    """None if the subscription will deliver it again."""
    is_received: bool = False
    """Whether the client has confirmed it by PUBREC; then only its Packet Identifier is still in use."""
    is_sent: bool = True
    """Whether it was sent over the present connection."""


class PacketSender(Protocol):
    """The connection of a session, as its in-flight messages use it."""

    @property
    def receive_maximum(self) -> int:
        """The Receive Maximum of the client; 0 while it does not read."""

    def send_message(self, message: ApplicationMessage, until_s: float, packet_id: int, dup: bool) -> bool:
        """Send a message. Return False if it exceeds the client's Maximum Packet Size."""

    def send_ack(self, kind: int, packet_id: int, reason: int = 0) -> None: ...


class SessionKeeper(Protocol):
    """The session, as its in-flight messages use it."""

    def is_active(self, delivery_position: DeliveryPosition) -> bool:
        """Whether the subscription of a message still exists."""

    def acknowledge(self, delivery_position: DeliveryPosition, on_synced: Callable[[], None] | None) -> None:
        """Acknowledge a message to its subscription; `on_synced` is called when that is on disk."""

    def save_in_flight(self, inflight: InFlightMessage, on_saved: Callable[[], None] | None) -> None:
        """Save an in-flight message of QoS 2 for a restart; `on_saved` is called when that is written."""

    def delete_in_flight(self, inflight: InFlightMessage) -> None: ...

    def drop(self, reason: str) -> None: ...

    def now_s(self) -> float: ...


class InFlightMessages:
    """The outbound messages of one session, over its connections."""

    def __init__(self, keeper: SessionKeeper, max_queued: int) -> None:
        self._keeper = keeper
        self._max_queued = max_queued
        self._sender: PacketSender | None = None
        self._queue: deque[OutboundMessage] = deque()
        self._later: dict[str, Iterator[OutboundMessage]] = {}
        self._by_packet_id: dict[int, InFlightMessage] = {}
        self._by_position: dict[DeliveryPosition, InFlightMessage] = {}
        self._retransmissions: deque[InFlightMessage] = deque()
        """In-flight messages that have to be sent again."""
        self._last_delivered: dict[SubscriptionId, int] = {}
        """For each subscription, the last position that was delivered over this connection."""
        self._not_sent = 0
        """The number of in-flight messages that were not sent over this connection yet."""
        self._next = 1

    @property
    def packet_ids(self) -> Iterable[int]:
        """The Packet Identifiers that are in use."""
        return self._by_packet_id

    @property
    def positions(self) -> Iterable[DeliveryPosition]:
        """The positions of the in-flight messages."""
        return self._by_position

    @property
    def has_room(self) -> bool:
        """Whether a message would be sent at once."""
        sender = self._sender
        return (
            sender is not None
            and not self._retransmissions
            and not self._queue
            and self._sent_count < min(sender.receive_maximum, MAX_IN_FLIGHT)
        )

    @property
    def _sent_count(self) -> int:
        """The number of messages sent over this connection, which count against the Receive Maximum [MQTT 5, 4.9]."""
        return len(self._by_packet_id) - self._not_sent

    @property
    def is_connected(self) -> bool:
        return self._sender is not None

    def is_in_flight(self, delivery_position: DeliveryPosition) -> bool:
        """Whether a message is in flight to this client, or was when it disconnected."""
        return delivery_position in self._by_position

    def restore(self, inflight: InFlightMessage) -> None:
        """Restore an in-flight message of QoS 2 after a restart."""
        inflight.is_sent = False
        self._add(inflight)
        self._not_sent += 1

    def connect(self, sender: PacketSender) -> None:
        """Send the in-flight messages again over a new connection [MQTT-4.4.0-1]."""
        self._sender = sender
        self._not_sent = sum(not inflight.is_sent for inflight in self._by_packet_id.values())
        for inflight in list(self._by_packet_id.values()):
            if inflight.is_received:
                sender.send_ack(packet_type.PUBREL, inflight.packet_id)
            elif inflight.outbound is not None:
                self._retransmissions.append(inflight)
        self.send_pending()

    def disconnect(self) -> list[OutboundMessage]:
        """Note that the client has disconnected. Return the messages that other members of its groups may get."""
        self._sender = None
        self._retransmissions.clear()
        returned = [outbound for outbound in self._queue if outbound.group is not None]
        # Messages from a backlog are delivered again by their subscription.
        self._queue = deque(
            outbound for outbound in self._queue if outbound.delivery_position is None and outbound.group is None
        )
        for inflight in list(self._by_packet_id.values()):
            outbound = inflight.outbound
            if inflight.is_received:
                inflight.is_sent = False
                continue
            if outbound is not None and outbound.group is not None and inflight.qos == 1:
                self._remove(inflight)
                returned.append(outbound)
            elif not inflight.is_sent and outbound is None and not self._will_be_redelivered(inflight):
                self._remove(inflight)
            else:
                inflight.is_sent = False
                if (outbound is None or outbound.group is None) and self._will_be_redelivered(inflight):
                    inflight.outbound = None
        self._last_delivered.clear()
        return returned

    def _will_be_redelivered(self, inflight: InFlightMessage) -> bool:
        """Whether its subscription will deliver it again. One that has ended will not, nor one that has delivered later
        messages: it has dropped this one."""
        delivery_position = inflight.delivery_position
        if delivery_position is None or not self._keeper.is_active(delivery_position):
            return False
        return (
            inflight.is_sent
            or self._last_delivered.get(delivery_position.subscription, 0) <= delivery_position.position
        )

    def enqueue(self, outbound: OutboundMessage) -> None:
        """Send or queue a message; if the queue is full it is dropped."""
        sender = self._sender
        if outbound.delivery_position is not None:
            self._last_delivered[outbound.delivery_position.subscription] = outbound.delivery_position.position
        if outbound.message.qos == 0:
            if sender is None or sender.receive_maximum == 0:
                self._keeper.drop("client_slow")
            else:
                self._send_once(sender, outbound)
            return
        inflight = None if outbound.delivery_position is None else self._by_position.get(outbound.delivery_position)
        if inflight is not None:
            if inflight.is_received:
                # The client has it; only its acknowledgement to the subscription was lost.
                self._acknowledge(inflight.delivery_position)
            elif sender is None:
                inflight.outbound = outbound
            elif not inflight.is_sent:
                inflight.outbound = outbound
                self._retransmissions.append(inflight)
                self.send_pending()
            return
        if outbound.delivery_position is None and len(self._queue) >= self._max_queued:
            self._keeper.drop("client_slow")
            return
        self._queue.append(outbound)
        self.send_pending()

    def enqueue_later(self, subscription: str, outbounds: Iterator[OutboundMessage]) -> None:
        """Queue messages that are made as the client takes them, from the next `send_pending` on. They replace earlier
        ones of the same subscription."""
        self._later[subscription] = outbounds

    def cancel_later(self, subscription: str) -> None:
        """Cancel the messages of `enqueue_later`."""
        self._later.pop(subscription, None)

    def send_pending(self) -> None:
        """Send queued messages, as many as the Receive Maximum allows."""
        sender = self._sender
        while (
            sender is not None
            and (self._retransmissions or self._queue or self._queue_next_later())
            and (receive_maximum := sender.receive_maximum)
        ):
            full = self._sent_count >= min(receive_maximum, MAX_IN_FLIGHT)
            if self._retransmissions:
                if full:
                    break
                self._send_again(self._retransmissions.popleft())
                continue
            outbound = self._queue[0]
            qos = outbound.message.qos
            if qos and full:
                break
            self._queue.popleft()
            if outbound.until_s <= self._keeper.now_s():
                self._keeper.drop("lease_over")
                self._acknowledge(outbound.delivery_position)
            elif qos == 0:
                self._send_once(sender, outbound)
            else:
                inflight = InFlightMessage(self._allocate_packet_id(), qos, outbound.delivery_position, outbound)
                self._add(inflight)
                if qos == 2:
                    # After the identifier is saved: after a restart it would be used for another message, which the
                    # client would take for a duplicate of this one.
                    self._keeper.save_in_flight(inflight, partial(self._send_saved, sender, inflight, outbound))
                else:
                    self._send(inflight, outbound, outbound.dup)

    def _queue_next_later(self) -> bool:
        """Queue the next message of `enqueue_later`. Return False if there is none."""
        while self._later:
            subscription = next(iter(self._later))
            outbound = next(self._later[subscription], None)
            if outbound is not None:
                self._queue.append(outbound)
                return True
            del self._later[subscription]
        return False

    def on_ack(self, ack: AckPacket) -> None:
        """Handle an acknowledgement. An unknown Packet Identifier is ignored: it may be from before a restart."""
        inflight = self._by_packet_id.get(ack.packet_id)
        if ack.kind == packet_type.PUBACK:
            if inflight is not None and inflight.qos == 1:
                self._remove(inflight)
                self._acknowledge(inflight.delivery_position)
        elif ack.kind == packet_type.PUBREC:
            self._on_received(inflight, ack)
        elif inflight is not None and inflight.is_received:
            self._remove(inflight)
        self.send_pending()

    def _on_received(self, inflight: InFlightMessage | None, ack: AckPacket) -> None:
        sender = self._sender
        assert sender is not None
        if inflight is None or inflight.qos != 2:
            sender.send_ack(packet_type.PUBREL, ack.packet_id, Reason.PACKET_ID_NOT_FOUND)
            return
        if ack.reason >= 0x80:
            # The client has rejected the message: no PUBREL follows [MQTT-4.3.3-4].
            self._remove(inflight)
            self._acknowledge(inflight.delivery_position)
            return
        first, inflight.is_received, inflight.outbound = not inflight.is_received, True, None

        def release() -> None:
            # The client may have reconnected in the meantime.
            if self._sender is not None:
                self._sender.send_ack(packet_type.PUBREL, inflight.packet_id)

        if inflight.delivery_position is None or not first:
            release()
        else:
            self._keeper.save_in_flight(inflight, None)
            self._keeper.acknowledge(inflight.delivery_position, release)

    def _send_once(self, sender: PacketSender, outbound: OutboundMessage) -> None:
        """Send a message of QoS 0."""
        if not sender.send_message(outbound.message, outbound.until_s, 0, False):
            self._keeper.drop("mqtt_too_large")

    def _send_again(self, inflight: InFlightMessage) -> None:
        # It may have been acknowledged, or delivered again, since it was queued for retransmission.
        if (
            inflight.outbound is not None
            and not inflight.is_sent
            and self._by_packet_id.get(inflight.packet_id) is inflight
        ):
            self._send(inflight, inflight.outbound, dup=True)

    def _send_saved(self, sender: PacketSender, inflight: InFlightMessage, outbound: OutboundMessage) -> None:
        if self._sender is sender and self._by_packet_id.get(inflight.packet_id) is inflight:
            self._send(inflight, outbound, outbound.dup)

    def _send(self, inflight: InFlightMessage, outbound: OutboundMessage, dup: bool) -> None:
        assert self._sender is not None
        self._not_sent -= not inflight.is_sent
        inflight.outbound, inflight.is_sent = outbound, True
        if not self._sender.send_message(outbound.message, outbound.until_s, inflight.packet_id, dup):
            self._keeper.drop("mqtt_too_large")
            self._remove(inflight)
            self._acknowledge(inflight.delivery_position)

    def _acknowledge(self, delivery_position: DeliveryPosition | None) -> None:
        if delivery_position is not None:
            self._keeper.acknowledge(delivery_position, None)

    def _add(self, inflight: InFlightMessage) -> None:
        self._by_packet_id[inflight.packet_id] = inflight
        if inflight.delivery_position is not None:
            self._by_position[inflight.delivery_position] = inflight

    def _remove(self, inflight: InFlightMessage) -> None:
        del self._by_packet_id[inflight.packet_id]
        self._not_sent -= not inflight.is_sent
        if inflight.delivery_position is not None:
            del self._by_position[inflight.delivery_position]
        if inflight.qos == 2:
            self._keeper.delete_in_flight(inflight)

    def _allocate_packet_id(self) -> int:
        while self._next in self._by_packet_id:
            self._next = self._next % MAX_ID + 1
        found = self._next
        self._next = found % MAX_ID + 1
        return found
