"""The durable part of the Session State: sessions, their subscriptions, and Packet Identifiers of QoS 2."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from carrycast.core.model import SubscriptionId
from carrycast.core.protocol import DurableStore
from carrycast.node.gateways.mqtt.in_flight import DeliveryPosition, InFlightMessage
from carrycast.node.recorder import LOG

_SESSION, _RECEIVED, _IN_FLIGHT = b"s", b"i", b"o"


class SubscriptionRecord(Struct, frozen=True, array_like=True):
    """One subscription of a session."""

    text: str
    condition: str
    qos: int
    no_local: bool
    retain_as_published: bool
    subscription_id: int | None


class SessionRecord(Struct, array_like=True):
    """One session."""

    client_id: str
    user: str | None
    expiry_s: float
    until_wall_s: float | None = None
    """When the session expires, by the system's clock; None while its client is connected."""
    subscriptions: list[SubscriptionRecord] = []


_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(SessionRecord).decode
_decode_in_flight = msgspec.msgpack.Decoder(tuple[SubscriptionId | None, int, bool]).decode


class StoredSession(NamedTuple):
    """A session as it is read from the store."""

    session: SessionRecord
    received: set[int]
    """Packet Identifiers of QoS 2 that the client has not released."""
    in_flight: list[InFlightMessage]
    """In-flight messages of QoS 2."""


class SessionStore:
    """Reads and writes sessions in the node's store. In a key, a null character ends the Client Identifier."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    def load(self) -> list[StoredSession]:
        """Return all sessions. Unreadable records are logged and deleted."""
        found: dict[str, StoredSession] = {}
        for key, value in self._store.items(_SESSION):
            try:
                record = _decode_session(value)
                found[record.client_id] = StoredSession(record, set(), [])
            except (msgspec.MsgspecError, ValueError) as error:
                LOG.error("an MQTT session in the store cannot be read and is deleted: %s", error)
                self._store.delete(key)
        for key, _ in self._store.items(_RECEIVED):
            client_id, packet_id = _split_key(key)
            if client_id in found:
                found[client_id].received.add(packet_id)
        for key, value in self._store.items(_IN_FLIGHT):
            client_id, packet_id = _split_key(key)
            if client_id not in found:
                continue
            try:
                subscription, position, is_received = _decode_in_flight(value)
            except msgspec.MsgspecError as error:
                LOG.error("an in-flight MQTT message in the store cannot be read and is deleted: %s", error)
                self._store.delete(key)
                continue
            delivery_position = None if subscription is None else DeliveryPosition(subscription, position)
            found[client_id].in_flight.append(InFlightMessage(packet_id, 2, delivery_position, None, is_received))
        return list(found.values())

    def save(self, record: SessionRecord) -> None:
        self._store.put(_SESSION + record.client_id.encode(), _encode(record))

    def delete(self, client_id: str, received: Iterable[int], packet_ids: Iterable[int]) -> None:
        """Delete a session."""
        self._store.delete(_SESSION + client_id.encode())
        for packet_id in received:
            self.delete_packet_id(client_id, packet_id)
        for packet_id in packet_ids:
            self.delete_in_flight(client_id, packet_id)

    def save_packet_id(self, client_id: str, packet_id: int) -> None:
        self._store.put(_make_key(_RECEIVED, client_id, packet_id), b"")

    def delete_packet_id(self, client_id: str, packet_id: int) -> None:
        self._store.delete(_make_key(_RECEIVED, client_id, packet_id))

    def save_in_flight(self, client_id: str, inflight: InFlightMessage) -> None:
        if inflight.delivery_position is None:
            # It is not delivered again after a restart; only its Packet Identifier has to be freed.
            value = _encode((None, 0, True))
        else:
            value = _encode(
                (inflight.delivery_position.subscription, inflight.delivery_position.position, inflight.is_received)
            )
        self._store.put(_make_key(_IN_FLIGHT, client_id, inflight.packet_id), value)

    def delete_in_flight(self, client_id: str, packet_id: int) -> None:
        self._store.delete(_make_key(_IN_FLIGHT, client_id, packet_id))


def _split_key(key: bytes) -> tuple[str, int]:
    return key[1:-3].decode(), int.from_bytes(key[-2:], "big")


def _make_key(kind: bytes, client_id: str, packet_id: int) -> bytes:
    return kind + client_id.encode() + b"\0" + packet_id.to_bytes(2, "big")
