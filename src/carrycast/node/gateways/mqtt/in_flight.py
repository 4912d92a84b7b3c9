"""What a client still has to get: messages on their way with their packet ids, and those that wait for a free place.

QoS 1 ends with PUBACK. QoS 2 is the client's with PUBREC; then its id stays taken until PUBCOMP, over connections.
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
"""Messages of one client on their way, however many more it would take: few enough to be sent again at once."""
MAX_ID = 65_535


class DeliveryPosition(Struct, frozen=True):
    """Where a message waits until it is acknowledged: a named subscription of the node, and its position there. By its
    id: another one that has the same name later counts its positions anew."""

    subscription: SubscriptionId
    position: int


class OutboundMessage(Struct):
    """A message for one client."""

    message: ApplicationMessage
    until_s: float
    """When nobody wants it any more."""
    delivery_position: DeliveryPosition | None = None
    again: bool = False
    group: str | None = None
    """Of which somebody else may have it instead."""


class InFlightMessage(Struct):
    """A message on its way, under its packet id."""

    packet_id: int
    qos: int
    delivery_position: DeliveryPosition | None = None
    outbound: OutboundMessage | None = None
    """None if the subscription will bring it once more."""
    is_received: bool = False
    """Whether the client has it, and only the id is still to be freed."""
    is_sent: bool = True
    """Whether it was sent over the present connection."""


class PacketSender(Protocol):
    """The way to a client that is connected."""

    @property
    def receive_maximum(self) -> int:
        """How many messages it takes at a time; 0 while it does not read."""

    def message(self, message: ApplicationMessage, until_s: float, packet_id: int, again: bool) -> bool:
        """Send a message; False if the client does not take any so long."""

    def ack(self, kind: int, packet_id: int, reason: int = 0) -> None: ...


class SessionKeeper(Protocol):
    """What the rest of the gateway does for an outbox."""

    def is_active(self, delivery_position: DeliveryPosition) -> bool:
        """Whether the subscription that a message came from is still there."""

    def acknowledge(self, delivery_position: DeliveryPosition, saved: Callable[[], None] | None) -> None:
        """A message has arrived for good; `saved` is called when that is kept."""

    def save_in_flight(self, inflight: InFlightMessage, kept: Callable[[], None] | None) -> None:
        """Remember a flight of QoS 2 over restarts; `kept` is called when that is written."""

    def delete_in_flight(self, inflight: InFlightMessage) -> None: ...

    def drop(self, reason: str) -> None: ...

    def now_s(self) -> float: ...


class InFlightMessages:
    """Of one client, over its connections."""

    def __init__(self, keeper: SessionKeeper, most_waiting: int) -> None:
        self._keeper = keeper
        self._most_waiting = most_waiting
        self._line: PacketSender | None = None
        self._waiting: deque[OutboundMessage] = deque()
        self._later: dict[str, Iterator[OutboundMessage]] = {}
        self._by_packet_id: dict[int, InFlightMessage] = {}
        self._by_origin: dict[DeliveryPosition, InFlightMessage] = {}
        self._retransmissions: deque[InFlightMessage] = deque()
        """Flights to be sent again, when there is room."""
        self._last_delivered: dict[SubscriptionId, int] = {}
        """Of each subscription, the last position that it has brought over this connection."""
        self._not_sent = 0
        """Flights that were not sent over this connection yet."""
        self._next = 1

    @property
    def inflight_ids(self) -> Iterable[int]:
        """The packet ids that are taken."""
        return self._by_packet_id

    @property
    def positions(self) -> Iterable[DeliveryPosition]:
        """Where what is on its way came from."""
        return self._by_origin

    @property
    def has_room(self) -> bool:
        """Whether something that is offered now would be sent now."""
        line = self._line
        return (
            line is not None
            and not self._retransmissions
            and not self._waiting
            and self._sent_count < min(line.receive_maximum, MAX_IN_FLIGHT)
        )

    @property
    def _sent_count(self) -> int:
        """How many were sent over this connection, which are those that its limit counts [MQTT 5, 4.9]."""
        return len(self._by_packet_id) - self._not_sent

    @property
    def connected(self) -> bool:
        return self._line is not None

    def is_in_flight(self, delivery_position: DeliveryPosition) -> bool:
        """Whether a message is on its way to this client, or was when it left."""
        return delivery_position in self._by_origin

    def restore(self, inflight: InFlightMessage) -> None:
        """A flight of QoS 2 from before a restart."""
        inflight.is_sent = False
        self._enter(inflight)
        self._not_sent += 1

    def connect(self, line: PacketSender) -> None:
        """The client is there: what was on its way comes again [MQTT-4.4.0-1]."""
        self._line = line
        self._not_sent = sum(not inflight.is_sent for inflight in self._by_packet_id.values())
        for inflight in list(self._by_packet_id.values()):
            if inflight.is_received:
                line.ack(packet_type.PUBREL, inflight.packet_id)
            elif inflight.outbound is not None:
                self._retransmissions.append(inflight)
        self.send_pending()

    def disconnect(self) -> list[OutboundMessage]:
        """The client has gone; what others of its groups may have instead."""
        self._line = None
        self._retransmissions.clear()
        handed_back = [outbound for outbound in self._waiting if outbound.group is not None]
        # What waits in the store is brought again by its subscription.
        self._waiting = deque(
            outbound for outbound in self._waiting if outbound.delivery_position is None and outbound.group is None
        )
        for inflight in list(self._by_packet_id.values()):
            outbound = inflight.outbound
            if inflight.is_received:
                inflight.is_sent = False
                continue
            if outbound is not None and outbound.group is not None and inflight.qos == 1:
                self._end(inflight)
                handed_back.append(outbound)
            elif not inflight.is_sent and outbound is None and not self._will_be_redelivered(inflight):
                self._end(inflight)
            else:
                inflight.is_sent = False
                if (outbound is None or outbound.group is None) and self._will_be_redelivered(inflight):
                    inflight.outbound = None
        self._last_delivered.clear()
        return handed_back

    def _will_be_redelivered(self, inflight: InFlightMessage) -> bool:
        """Whether its subscription will bring it once more. One that has ended does not, nor one that has brought what
        came after it already: it was dropped there."""
        delivery_position = inflight.delivery_position
        if delivery_position is None or not self._keeper.is_active(delivery_position):
            return False
        return (
            inflight.is_sent
            or self._last_delivered.get(delivery_position.subscription, 0) <= delivery_position.position
        )

    def enqueue(self, outbound: OutboundMessage) -> None:
        """Send a message, or let it wait; if too many do, it is dropped."""
        line = self._line
        if outbound.delivery_position is not None:
            self._last_delivered[outbound.delivery_position.subscription] = outbound.delivery_position.position
        if outbound.message.qos == 0:
            if line is None or line.receive_maximum == 0:
                self._keeper.drop("client_slow")
            else:
                self._send_once(line, outbound)
            return
        inflight = None if outbound.delivery_position is None else self._by_origin.get(outbound.delivery_position)
        if inflight is not None:
            if inflight.is_received:
                # The client has had it; what failed is only the word of that to the subscription.
                self._acknowledge(inflight.delivery_position)
            elif line is None:
                inflight.outbound = outbound
            elif not inflight.is_sent:
                inflight.outbound = outbound
                self._retransmissions.append(inflight)
                self.send_pending()
            return
        if outbound.delivery_position is None and len(self._waiting) >= self._most_waiting:
            self._keeper.drop("client_slow")
            return
        self._waiting.append(outbound)
        self.send_pending()

    def enqueue_later(self, subscription: str, outbounds: Iterator[OutboundMessage]) -> None:
        """What comes as the client takes it, however much there is, from the next `pump` on. Who asks again for one
        subscription gets it from the start."""
        self._later[subscription] = outbounds

    def cancel_later(self, subscription: str) -> None:
        """Nothing more of that."""
        self._later.pop(subscription, None)

    def send_pending(self) -> None:
        """Send what waits, as far as the client takes it."""
        line = self._line
        while (
            line is not None
            and (self._retransmissions or self._waiting or self._fetch())
            and (receive_maximum := line.receive_maximum)
        ):
            full = self._sent_count >= min(receive_maximum, MAX_IN_FLIGHT)
            if self._retransmissions:
                if full:
                    break
                self._send_again(self._retransmissions.popleft())
                continue
            outbound = self._waiting[0]
            qos = outbound.message.qos
            if qos and full:
                break
            self._waiting.popleft()
            if outbound.until_s <= self._keeper.now_s():
                self._keeper.drop("lease_over")
                self._acknowledge(outbound.delivery_position)
            elif qos == 0:
                self._send_once(line, outbound)
            else:
                inflight = InFlightMessage(self._free_id(), qos, outbound.delivery_position, outbound)
                self._enter(inflight)
                if qos == 2:
                    # Not before the id is kept: a node that forgot it would give it to another message, which the
                    # client would take for this one.
                    self._keeper.save_in_flight(inflight, partial(self._send_saved, line, inflight, outbound))
                else:
                    self._send(inflight, outbound, outbound.again)

    def _fetch(self) -> bool:
        """Let the next wait of what comes later; False if there is none."""
        while self._later:
            subscription = next(iter(self._later))
            outbound = next(self._later[subscription], None)
            if outbound is not None:
                self._waiting.append(outbound)
                return True
            del self._later[subscription]
        return False

    def on_ack(self, ack: AckPacket) -> None:
        """A client has answered. What was never sent is no mistake: it may be from before a restart."""
        inflight = self._by_packet_id.get(ack.packet_id)
        if ack.kind == packet_type.PUBACK:
            if inflight is not None and inflight.qos == 1:
                self._end(inflight)
                self._acknowledge(inflight.delivery_position)
        elif ack.kind == packet_type.PUBREC:
            self._on_received(inflight, ack)
        elif inflight is not None and inflight.is_received:
            self._end(inflight)
        self.send_pending()

    def _on_received(self, inflight: InFlightMessage | None, ack: AckPacket) -> None:
        line = self._line
        assert line is not None
        if inflight is None or inflight.qos != 2:
            line.ack(packet_type.PUBREL, ack.packet_id, Reason.PACKET_ID_NOT_FOUND)
            return
        if ack.reason >= 0x80:
            # The client wants none of it: nothing follows [MQTT-4.3.3-4].
            self._end(inflight)
            self._acknowledge(inflight.delivery_position)
            return
        first, inflight.is_received, inflight.outbound = not inflight.is_received, True, None

        def release() -> None:
            # Over the connection that there is then.
            if self._line is not None:
                self._line.ack(packet_type.PUBREL, inflight.packet_id)

        if inflight.delivery_position is None or not first:
            release()
        else:
            self._keeper.save_in_flight(inflight, None)
            self._keeper.acknowledge(inflight.delivery_position, release)

    def _send_once(self, line: PacketSender, outbound: OutboundMessage) -> None:
        """With QoS 0."""
        if not line.message(outbound.message, outbound.until_s, 0, False):
            self._keeper.drop("mqtt_too_large")

    def _send_again(self, inflight: InFlightMessage) -> None:
        # It may have been answered for, or brought twice, since it was due.
        if (
            inflight.outbound is not None
            and not inflight.is_sent
            and self._by_packet_id.get(inflight.packet_id) is inflight
        ):
            self._send(inflight, inflight.outbound, again=True)

    def _send_saved(self, line: PacketSender, inflight: InFlightMessage, outbound: OutboundMessage) -> None:
        if self._line is line and self._by_packet_id.get(inflight.packet_id) is inflight:
            self._send(inflight, outbound, outbound.again)

    def _send(self, inflight: InFlightMessage, outbound: OutboundMessage, again: bool) -> None:
        assert self._line is not None
        self._not_sent -= not inflight.is_sent
        inflight.outbound, inflight.is_sent = outbound, True
        if not self._line.message(outbound.message, outbound.until_s, inflight.packet_id, again):
            self._keeper.drop("mqtt_too_large")
            self._end(inflight)
            self._acknowledge(inflight.delivery_position)

    def _acknowledge(self, delivery_position: DeliveryPosition | None) -> None:
        if delivery_position is not None:
            self._keeper.acknowledge(delivery_position, None)

    def _enter(self, inflight: InFlightMessage) -> None:
        self._by_packet_id[inflight.packet_id] = inflight
        if inflight.delivery_position is not None:
            self._by_origin[inflight.delivery_position] = inflight

    def _end(self, inflight: InFlightMessage) -> None:
        del self._by_packet_id[inflight.packet_id]
        self._not_sent -= not inflight.is_sent
        if inflight.delivery_position is not None:
            del self._by_origin[inflight.delivery_position]
        if inflight.qos == 2:
            self._keeper.delete_in_flight(inflight)

    def _free_id(self) -> int:
        while self._next in self._by_packet_id:
            self._next = self._next % MAX_ID + 1
        found = self._next
        self._next = found % MAX_ID + 1
        return found
