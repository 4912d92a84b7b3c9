"""All sessions of a gateway: clients connect, are taken over, disconnect, and sessions expire."""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple, Protocol

from carrycast.node.gateways.mqtt.config import MqttSection, access_rights, authenticate
from carrycast.node.gateways.mqtt.packets import V5, ApplicationMessage, ConnectPacket
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason
from carrycast.node.gateways.mqtt.session import MqttContext, MqttSession
from carrycast.node.gateways.mqtt.sys_statistics import is_sys_topic
from carrycast.node.recorder import LOG

MAX_CLIENT_ID = 256
"""Characters. The standard requires that 23 are accepted; names and random ids are longer."""


class WillMessage(NamedTuple):
    """A Will Message and its Will Delay Interval."""

    message: ApplicationMessage
    delay_s: float = 0.0


class PendingWills:
    """The will messages whose delay has not passed, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def arm(self, client_id: str, delay_s: float, publish: Callable[[], None]) -> None:
        """The client is gone: publish its will message after the delay."""
        if delay_s <= 0:
            publish()
            return
        timer = asyncio.get_running_loop().call_later(delay_s, self.execute, client_id)
        self._waiting[client_id] = (timer, publish)

    def cancel(self, client_id: str) -> None:
        """The client has reconnected in time."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()

    def execute(self, client_id: str) -> None:
        """Publish the will message: the delay has passed, or the session has ended."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()
            found[1]()

    def close(self) -> None:
        """The node stops: no will message is published."""
        for timer, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()


class ClientConnection(Protocol):
    """A connection, as the sessions use it."""

    def close(self, reason: Reason, description: str = "") -> None: ...


class Admitted(NamedTuple):
    """A client that has connected."""

    session: MqttSession
    resumed: bool
    assigned: bool
    """Whether the server has assigned the client id."""
    will: WillMessage | None


class SessionTable:
    """All sessions of a gateway, and the connections of connected clients."""

    def __init__(self, context: MqttContext, section: MqttSection) -> None:
        self._context = context
        self._section = section
        self._sessions: dict[str, MqttSession] = {}
        self._present: dict[str, tuple[ClientConnection, WillMessage | None]] = {}
        self._wills = PendingWills()

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._present)

    def restore(self) -> None:
        """Restore the sessions after a restart; no client is connected."""
        for kept in self._context.session_store.load():
            record = kept.session
            rights = access_rights(self._section, record.user)
            session = MqttSession(self._context, record.client_id, record.user, rights, record.expiry_s)
            session.until_wall_s = record.until_wall_s or time.time() + record.expiry_s
            session.received = kept.received
            try:
                session.restore(record.subscriptions)
            except PacketError as error:
                LOG.error("the MQTT session of %r is deleted: %s", record.client_id, error)
                self._context.session_store.forget(
                    record.client_id, kept.received, [one.packet_id for one in kept.inflight_ids]
                )
                continue
            for inflight in kept.inflight_ids:
                session.in_flight.restore(inflight)
            self._sessions[record.client_id] = session
            if not session.expiry_s:
                # The node was killed during the last connection of this session.
                self._end(session)

    def admit(self, connect: ConnectPacket, connection: ClientConnection) -> Admitted:
        """Accept a client, in place of another connection with the same client id; a PacketError says why not."""
        section = self._section
        rights = authenticate(section, connect.user, connect.password)
        if rights is None:
            self._context.node_context.node.recorder.drop_datagram("mqtt_credentials", None)
            raise PacketError(Reason.BAD_CREDENTIALS, "unknown user or wrong password")
        if "authentication_method" in connect.properties:
            raise PacketError(Reason.BAD_AUTHENTICATION_METHOD, "only users and passwords are known here")
        if len(connect.client_id) > MAX_CLIENT_ID or (
            connect.version != V5 and not connect.client_id and not connect.clean
        ):
            raise PacketError(Reason.CLIENT_ID_REFUSED, f"a client id has 1 to {MAX_CLIENT_ID} characters")
        # A bridge may have a will message under `$SYS`: it is accepted, and its will message is not published.
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
        if client_id not in self._present and self.clients >= section.max_clients:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"at most {section.max_clients} clients are served")
        expiry_s = _expiry_s(connect, section.session_s)
        # The limit of sessions does not apply to clients without a persistent session.
        if session is None and expiry_s and len(self._sessions) - self.clients >= section.max_sessions:
            raise PacketError(Reason.QUOTA_EXCEEDED, f"at most {section.max_sessions} sessions are kept")
        self._take_over(client_id)
        session = self._resume(client_id, connect.clean)
        resumed = session is not None
        if session is None:
            session = self._sessions[client_id] = MqttSession(self._context, client_id, user, rights, expiry_s)
        session.user, session.rights, session.expiry_s, session.until_wall_s = user, rights, expiry_s, None
        will = _will(connect)
        self._present[client_id] = connection, will
        session.save()
        return Admitted(session, resumed, not connect.client_id, will)

    def _resume(self, client_id: str, clean: bool) -> MqttSession | None:
        """The session that a client resumes. With Clean Start the old session ends, and its will message is
        published."""
        session = self._sessions.get(client_id)
        if not clean:
            self._wills.cancel(client_id)
            return session
        self._wills.execute(client_id)
        if session is not None:
            self._end(session)
        return None

    def _take_over(self, client_id: str) -> None:
        found = self._present.get(client_id)
        if found is not None:
            found[0].close(Reason.TAKEN_OVER, "another connection has this client id")
            self.leave(self._sessions[client_id], found[0], with_will=True)

    def leave(self, session: MqttSession, connection: ClientConnection, with_will: bool) -> None:
        """A connection has ended. Later calls, and calls for a connection that was taken over, are ignored."""
        found = self._present.get(session.client_id)
        if found is None or found[0] is not connection:
            return
        del self._present[session.client_id]
        will = found[1]
        session.detach()
        if with_will and will is not None:
            publisher, rights = self._context.publisher, session.rights
            delay_s = min(will.delay_s, session.expiry_s)
            self._wills.arm(
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
            self._wills.execute(session.client_id)
            self._end(session)

    def close(self) -> None:
        """The node stops: disconnect all clients, without their will messages."""
        self._wills.close()
        gone = [(self._sessions[client_id], connection) for client_id, (connection, _) in self._present.items()]
        self._present.clear()
        for session, connection in gone:
            connection.close(Reason.SHUTTING_DOWN, "the node stops")
            session.detach()
        # After all have disconnected: the node accepts nothing new, so no other member may get their messages.
        for session, _ in gone:
            self._keep_or_end(session)

    def _end(self, session: MqttSession) -> None:
        session.end()
        del self._sessions[session.client_id]


def _expiry_s(connect: ConnectPacket, most_s: float) -> float:
    if connect.version != V5:
        return 0.0 if connect.clean else most_s
    asked_s: int = connect.properties.get("session_expiry_s", 0)
    return min(float(asked_s), most_s)


def _will(connect: ConnectPacket) -> WillMessage | None:
    if connect.will is None:
        return None
    return WillMessage(connect.will, float(connect.will.properties.get("will_delay_s", 0)))
