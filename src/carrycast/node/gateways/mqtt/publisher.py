"""Publishes the messages of clients as events, with the delivery guarantee of the configuration."""

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from carrycast.core.model import FOREVER_S, Event, EventId, Scalar
from carrycast.core.protocol import KeepsEvents, log_of
from carrycast.errors import NotAuthorizedError, UserError, WorkError
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.config import AccessRights, MqttSection
from carrycast.node.gateways.mqtt.events import (
    DEFLATE,
    ENCODING,
    choose_lease_s,
    compress_payload,
    make_event_attributes,
)
from carrycast.node.gateways.mqtt.packets import ApplicationMessage
from carrycast.node.gateways.mqtt.properties import MAX_USER_PROPERTIES
from carrycast.node.gateways.mqtt.reason_codes import Reason
from carrycast.node.gateways.mqtt.retained import RetainedMessages
from carrycast.node.gateways.mqtt.sys_statistics import is_sys_topic
from carrycast.node.recorder import LOG
from carrycast.node.runtime import MAX_EVENT_BYTES, check_stores_events
from carrycast.node.storage import OnCommitted

_encode = msgspec.msgpack.Encoder().encode

OnPublished = Callable[[Reason], None]
"""Called once: with success when the delivery guarantee of a message is met, or with the reason of its rejection."""
EVENT_OVERHEAD_BYTES = 512
"""The size of an event without attributes and payload: ids, times, a signature."""
MAX_PUBLISHERS = 10_000
"""The most events whose publishing client is remembered, for No Local."""


class MqttPublisher:
    """Publishes for all clients of a gateway."""

    def __init__(self, node_context: GatewayContext, section: MqttSection, retained: RetainedMessages) -> None:
        self._node = node_context.node
        self._retained = retained
        self._lease_s = FOREVER_S if section.lease_s is None else section.lease_s
        if section.level == "stored":
            try:
                check_stores_events(node_context.protocol)
            except UserError as error:
                raise UserError(f"mqtt.level: {error}") from None
        protocol = node_context.protocol
        keeps = isinstance(protocol, KeepsEvents) and protocol.durable
        self._stored = keeps and section.level != "accepted"
        log = log_of(protocol) if self._stored else None
        self._longest_s = FOREVER_S if log is None else log.longest_s
        """A longer Message Expiry Interval is shortened to this, not rejected."""
        self._publisher: str | None = None
        """The client that is publishing now: events delivered during the call are its own."""
        self._publishers: OrderedDict[EventId, str] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        """Whether publishers should wait."""
        return self._node.is_busy()

    def is_own(self, client_id: str, event: EventId) -> bool:
        """Whether a client has published an event itself, as far as it is remembered."""
        return client_id in (self._publisher, self._publishers.get(event))

    def publish(
        self, client_id: str, rights: AccessRights, message: ApplicationMessage, on_published: OnPublished
    ) -> None:
        """Publish a message; `on_published` is called once, now or when it is on disk."""
        if is_sys_topic(message.topic) or not rights.may_publish(message.topic):
            self._node.note_drop("mqtt_sys" if is_sys_topic(message.topic) else "mqtt_not_allowed")
            on_published(Reason.NOT_AUTHORIZED)
            return
        if len(message.properties.get("user_property", ())) > MAX_USER_PROPERTIES:
            self._node.note_drop("mqtt_refused")
            on_published(Reason.QUOTA_EXCEEDED)
            return

        def on_stored(lost: WorkError | None) -> None:
            on_published(Reason.SUCCESS if lost is None else Reason.QUOTA_EXCEEDED)

        stored = on_stored if self._stored and message.qos else None
        lease_s = choose_lease_s(message, self._lease_s)
        if stored is not None:
            lease_s = min(lease_s, self._longest_s)
        self._publisher = client_id
        try:
            id, attributes, payload = self._publish_event(message, lease_s, stored)
        except UserError as error:
            LOG.info("a message of the MQTT client %r is rejected: %s", client_id, error)
            self._node.note_drop("mqtt_refused")
            authorized = not isinstance(error, NotAuthorizedError)
            on_published(Reason.IMPLEMENTATION_ERROR if authorized else Reason.NOT_AUTHORIZED)
            return
        except WorkError as error:
            # The retention log or the disk is full: the client may publish again later.
            LOG.info("a message of the MQTT client %r is rejected: %s", client_id, error)
            self._node.note_drop("mqtt_refused")
            on_published(Reason.QUOTA_EXCEEDED)
            return
        finally:
            self._publisher = None
        self._publishers[id] = client_id
        if len(self._publishers) > MAX_PUBLISHERS:
            self._publishers.popitem(last=False)
        if message.retain:
            # Not every protocol delivers a node its own events.
            self._retained.store(Event(id, attributes, payload, time.time(), lease_s), is_own=True)
        if stored is None:
            on_published(Reason.SUCCESS)

    def _publish_event(
        self, message: ApplicationMessage, lease_s: float, stored: OnCommitted | None
    ) -> tuple[EventId, dict[str, Scalar], bytes]:
        attributes, complete = make_event_attributes(message)
        payload = message.payload
        if _is_too_long(attributes, payload):
            # Without attributes from the payload, which would be in the event twice.
            attributes, complete = make_event_attributes(message, look_inside=False)[0], False
            if _is_too_long(attributes, payload):
                attributes[ENCODING], payload = DEFLATE, compress_payload(payload)
        id = self._node.publish(attributes, payload, lease_s, None, stored, None)
        if not complete:
            self._node.note_drop("mqtt_attributes")
        return id, attributes, payload


def _is_too_long(attributes: dict[str, Scalar], payload: bytes) -> bool:
    """Whether an event with these attributes and payload would not fit into a datagram."""
    return len(_encode(attributes)) + len(payload) > MAX_EVENT_BYTES - EVENT_OVERHEAD_BYTES
