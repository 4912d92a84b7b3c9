"""The MQTT gateway: listens for clients, limits their number, and owns the sessions."""

import asyncio
from collections.abc import Mapping

from carrycast.errors import WorkError
from carrycast.node.gateways import Gateway, GatewayContext
from carrycast.node.gateways.mqtt.config import NOTHING_GRANTED, MqttSection, read_mqtt_section
from carrycast.node.gateways.mqtt.connection import MqttConnection
from carrycast.node.gateways.mqtt.events import MessageCache
from carrycast.node.gateways.mqtt.publisher import MqttPublisher
from carrycast.node.gateways.mqtt.retained import RetainedMessages
from carrycast.node.gateways.mqtt.session import MqttContext, RejectionLog
from carrycast.node.gateways.mqtt.session_store import SessionStore
from carrycast.node.gateways.mqtt.sessions import SessionTable
from carrycast.node.gateways.mqtt.shared_subscriptions import SharedSubscriptions
from carrycast.node.gateways.mqtt.sys_statistics import SysStatistics
from carrycast.node.link import format_socket_address
from carrycast.node.recorder import LOG

CHECK_S = 1.0
"""The interval at which time-outs are checked."""
MAX_UNIDENTIFIED = 64
"""The most connections that have not sent CONNECT yet. A new one replaces the oldest."""
SHUTDOWN_TURNS = 3
"""Turns of the event loop after which aborted connections have ended."""


class MqttGateway(Gateway):
    """The MQTT gateway of one node."""

    def __init__(self, node_context: GatewayContext, section: MqttSection) -> None:
        self._node_context = node_context
        self._section = section
        self._retained = RetainedMessages(node_context, section.max_retained)
        self._context = MqttContext(
            node_context=node_context,
            publisher=MqttPublisher(node_context, section, self._retained),
            retained=self._retained,
            session_store=SessionStore(node_context.store),
            shared=SharedSubscriptions(node_context),
            messages=MessageCache(),
            statistics=SysStatistics(node_context, lambda: self._sessions.clients, lambda: len(self._retained)),
            rejections=RejectionLog(),
            max_subscriptions=section.max_subscriptions,
            max_queued=section.max_queued,
        )
        self._sessions = SessionTable(self._context, section)
        self._connections: dict[MqttConnection, None] = {}
        self._unidentified: dict[MqttConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def read_settings(cls, table: Mapping[str, object], where: str) -> MqttSection:
        return read_mqtt_section(table, where)

    async def start(self) -> None:
        """Restore the sessions and listen. Raises WorkError if the port is in use."""
        if self._section.anonymous is True:
            LOG.warning(NOTHING_GRANTED)
        self._retained.start()
        self._sessions.restore()
        loop = asyncio.get_running_loop()
        host = "127.0.0.1" if self._section.host == "localhost" else self._section.host
        try:
            self._server = await loop.create_server(self._make_connection, host, self._section.port, backlog=512)
        except OSError as error:
            where = format_socket_address((host, self._section.port))
            raise WorkError(f"cannot listen for MQTT on {where}: {error.strerror or error}") from None
        self._timer = loop.call_later(CHECK_S, self._check_timeouts)

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        assert self._server is not None
        return format_socket_address(self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Disconnect all clients and stop listening."""
        assert self._server is not None
        assert self._timer is not None
        self._timer.cancel()
        self._server.close()
        self._sessions.close()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(SHUTDOWN_TURNS):
            await asyncio.sleep(0)

    def _make_connection(self) -> MqttConnection:
        return MqttConnection(self._context, self._sessions, self._section, self)

    # Notifications of connections.

    def on_connected(self, connection: MqttConnection) -> None:
        """Add a connection; close the oldest one without CONNECT if there are too many."""
        if self._server is None or not self._server.is_serving():
            connection.abort()
            return
        self._connections[connection] = self._unidentified[connection] = None
        if len(self._unidentified) > MAX_UNIDENTIFIED:
            oldest = next(iter(self._unidentified))
            del self._unidentified[oldest]
            self._node_context.node.recorder.drop_datagram("mqtt_flood", None)
            oldest.abort()

    def on_identified(self, connection: MqttConnection) -> None:
        """Note that the client has sent CONNECT."""
        self._unidentified.pop(connection, None)

    def on_disconnected(self, connection: MqttConnection) -> None:
        """Remove a closed connection."""
        self._unidentified.pop(connection, None)
        self._connections.pop(connection, None)

    def _check_timeouts(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CHECK_S, self._check_timeouts)
        now_s = loop.time()
        for connection in list(self._connections):
            connection.check_timeouts(now_s)
        self._sessions.check_timeouts()
        self._context.statistics.check_timeouts(now_s)
        self._retained.check_timeouts()
