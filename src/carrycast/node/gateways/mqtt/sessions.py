"""The sessions of all clients of a gateway: connecting, taking over, disconnecting, Will Messages and expiry."""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple, Protocol

from carrycast.node.gateways.mqtt.config import MqttSection, authenticate, find_rights
from carrycast.node.gateways.mqtt.packets import V5, ApplicationMessage, ConnectPacket
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason
from carrycast.node.gateways.mqtt.session import MqttContext, MqttSession
from carrycast.node.gateways.mqtt.sys_statistics import is_sys_topic
from carrycast.node.recorder import LOG

MAX_CLIENT_ID = 256
"""Characters of a Client Identifier. The standard requires 23 [MQTT-3.1.3-5]; many clients use longer ones."""


class WillMessage(NamedTuple):
    """A Will Message and its Will Delay Interval."""

    message: ApplicationMessage
    delay_s: float = 0.0


class PendingWills:
    """The Will Messages whose delay has not passed, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def schedule(self, client_id: str, delay_s: float, publish: Callable[[], None]) -> None:
        """Publish the Will Message of a disconnected client after the delay."""
        if delay_s <= 0:
            publish()
            return
        timer = asyncio.get_running_loop().call_later(delay_s, self.publish_now, client_id)
        self._waiting[client_id] = (timer, publish)

    def cancel(self, client_id: str) -> None:
        """Cancel the Will Message of a client that has reconnected in time."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()

    def publish_now(self, client_id: str) -> None:
        """Publish the Will Message, because the delay has passed or the session has ended."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()
            found[1]()

    def close(self) -> None:
        """Cancel all Will Messages, because the node stops."""
        for timer, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()


class ClientConnection(Protocol):
    """A connection, as the sessions use it."""

    def close(self, reason: Reason, description: str = "") -> None: ...


class Admission(NamedTuple):
    """The result of an accepted CONNECT."""

    session: MqttSession
    session_present: bool
    is_id_assigned: bool
    """Whether the server has assigned the Client Identifier."""
    will: WillMessage | None


class SessionTable:
    """All sessions of a gateway, and the connections of connected clients."""

    def __init__(self, context: MqttContext, section: MqttSection) -> None:
        self._context = context
        self._section = section
        self._sessions: dict[str, MqttSession] = {}
        self._connected: dict[str, tuple[ClientConnection, WillMessage | None]] = {}
        self._wills = PendingWills()

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._connected)

    def restore(self) -> None:
        """Restore the sessions after a restart; no client is connected."""
        for kept in self._context.session_store.load():
            record = kept.session
            rights = find_rights(self._section, record.user)
            session = MqttSession(self._context, record.client_id, record.user, rights, record.expiry_s)
            session.until_wall_s = record.until_wall_s or time.time() + record.expiry_s
            session.received = kept.received
            try:
                session.restore(record.subscriptions)
            except PacketError as error:
                LOG.error("the MQTT session of %r is deleted: %s", record.client_id, error)
                self._context.session_store.delete(
                    record.client_id, kept.received, [one.packet_id for one in kept.in_flight]
                )
                continue
            for inflight in kept.in_flight:
                session.in_flight.restore(inflight)
            self._sessions[record.client_id] = session
            if not session.expiry_s:
                # The node was killed during the last connection of this session.
                self._end(session)

    def admit(self, connect: ConnectPacket, connection: ClientConnection) -> Admission:
        """Accept a client. It replaces a connection with the same Client Identifier. Raises PacketError if rejected."""
        section = self._section
        rights = authenticate(section, connect.user, connect.password)
        if rights is None:
            self._context.node_context.node.recorder.drop_datagram("mqtt_credentials", None)
            raise PacketError(Reason.BAD_CREDENTIALS, "unknown user or wrong password")
        if "authentication_method" in connect.properties:
            raise PacketError(Reason.BAD_AUTHENTICATION_METHOD, "only users and passwords are known here")
        if len(connect.client_id) > MAX_CLIENT_ID or (
            connect.version != V5 and not connect.client_id and not connect.clean_start
        ):
            raise PacketError(Reason.CLIENT_ID_REFUSED, f"a client id has 1 to {MAX_CLIENT_ID} characters")
        # A bridge may have a Will Message under `$SYS`: it is accepted, and its Will Message is not published.
        if connect.will is not None and not (
            is_sys_topic(connect.will.topic) or rights.may_publish(connect.will.topic)
        ):
            raise PacketError(Reason.NOT_AUTHORIZED, "the will's topic is not allowed")
        retained = connect.will is not None and connect.will.retain
        if retained and section.max_retained == 0 and connect.version == V5:
            # [MQTT-3.2.2-13]
            raise PacketError(Reason.RETAIN_NOT_SUPPORTED, "nothing is retained here")
        client_id = connect.client_id or f"auto-{uuid.uuid4()}"
        session = self._sessions.get(client_id)
        user = connect.user if section.users else None
        # A session without a user was created when no users were configured.
        if session is not None and session.user not in (None, user):
            raise PacketError(Reason.NOT_AUTHORIZED, "another user has a session of this name")
        if client_id not in self._connected and self.clients >= section.max_clients:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"at most {section.max_clients} clients are served")
        expiry_s = _choose_expiry_s(connect, section.session_s)
        # The limit of sessions does not apply to clients without a persistent session.
        if session is None and expiry_s and len(self._sessions) - self.clients >= section.max_sessions:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"at most {section.max_sessions} sessions are kept")
        self._take_over(client_id)
        session = self._resume(client_id, connect.clean_start)
        session_present = session is not None
        if session is None:
            session = self._sessions[client_id] = MqttSession(self._context, client_id, user, rights, expiry_s)
        session.user, session.rights, session.expiry_s, session.until_wall_s = user, rights, expiry_s, None
        will = _make_will(connect)
        self._connected[client_id] = connection, will
        session.save()
        return Admission(session, session_present, not connect.client_id, will)

    def _resume(self, client_id: str, clean: bool) -> MqttSession | None:
        """Return the session that a client resumes. With Clean Start, end it and publish its Will Message."""
        session = self._sessions.get(client_id)
        if not clean:
            self._wills.cancel(client_id)
            return session
        self._wills.publish_now(client_id)
        if session is not None:
            self._end(session)
        return None

    def _take_over(self, client_id: str) -> None:
        found = self._connected.get(client_id)
        if found is not None:
            found[0].close(Reason.TAKEN_OVER, "another connection has this client id")
            self.disconnect(self._sessions[client_id], found[0], with_will=True)

    def disconnect(self, session: MqttSession, connection: ClientConnection, with_will: bool) -> None:
        """Disconnect a session. Repeated calls, and calls for a connection that was taken over, are ignored."""
        found = self._connected.get(session.client_id)
        if found is None or found[0] is not connection:
            return
        del self._connected[session.client_id]
        will = found[1]
        session.detach()
        if with_will and will is not None:
            publisher, rights = self._context.publisher, session.rights
            delay_s = min(will.delay_s, session.expiry_s)
            self._wills.schedule(
                session.client_id,
                delay_s,
                lambda: publisher.publish(session.client_id, rights, will.message, lambda reason: None),
            )
        self._keep_or_end(session)

    def _keep_or_end(self, session: MqttSession) -> None:
        """Keep the session of a disconnected client until it expires, or end it."""
        if session.expiry_s:
            session.until_wall_s = time.time() + session.expiry_s
            session.save()
        else:
            self._end(session)

    def check_timeouts(self) -> None:
        """End the sessions that have expired."""
        now_s = time.time()
        expired = [one for one in self._sessions.values() if one.until_wall_s is not None and one.until_wall_s <= now_s]
        for session in expired:
            self._wills.publish_now(session.client_id)
            self._end(session)

    def close(self) -> None:
        """Disconnect all clients, without their Will Messages, because the node stops."""
        self._wills.close()
        disconnected = [
            (self._sessions[client_id], connection) for client_id, (connection, _) in self._connected.items()
        ]
        self._connected.clear()
        for session, connection in disconnected:
            connection.close(Reason.SHUTTING_DOWN, "the node stops")
            session.detach()
        # After all have disconnected: the node accepts nothing new, so no other member may get their messages.
        for session, _ in disconnected:
            self._keep_or_end(session)

    def _end(self, session: MqttSession) -> None:
        session.end()
        del self._sessions[session.client_id]


def _choose_expiry_s(connect: ConnectPacket, most_s: float) -> float:
    if connect.version != V5:
        return 0.0 if connect.clean_start else most_s
    asked_s: int = connect.properties.get("session_expiry_interval_s", 0)
    return min(float(asked_s), most_s)


def _make_will(connect: ConnectPacket) -> WillMessage | None:
    if connect.will is None:
        return None
    return WillMessage(connect.will, float(connect.will.properties.get("will_delay_interval_s", 0)))
