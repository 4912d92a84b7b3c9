"""The listener: clients of MQTT come in, as many as may, and those who only hold a place make room for others."""

import asyncio
from collections.abc import Mapping

from carrycast.errors import WorkError
from carrycast.node.gateways import Gateway, GatewayContext
from carrycast.node.gateways.mqtt.config import NOTHING_GRANTED, MqttSection, read_mqtt_section
from carrycast.node.gateways.mqtt.connection import Connection
from carrycast.node.gateways.mqtt.events import Messages
from carrycast.node.gateways.mqtt.publishing import Publishing
from carrycast.node.gateways.mqtt.records import Records
from carrycast.node.gateways.mqtt.refusals import Refusals
from carrycast.node.gateways.mqtt.retained import Retained
from carrycast.node.gateways.mqtt.session import Shop
from carrycast.node.gateways.mqtt.sessions import Sessions
from carrycast.node.gateways.mqtt.shared import Groups
from carrycast.node.gateways.mqtt.vitals import Vitals
from carrycast.node.link.socket_address import format_socket_address
from carrycast.node.recorder import LOG

REVIEW_S = 1.0
MAX_UNKNOWN = 64
"""Connections that have not said yet who they are. The oldest makes room for a new one."""
LAST_TURNS = 3


class MqttGateway(Gateway):
    """The MQTT gateway of one node."""

    def __init__(self, backing: GatewayContext, section: MqttSection) -> None:
        self._backing = backing
        self._section = section
        self._retained = Retained(backing, section.max_retained)
        self._shop = Shop(
            backing=backing,
            publishing=Publishing(backing, section, self._retained),
            retained=self._retained,
            records=Records(backing.store),
            groups=Groups(backing),
            messages=Messages(),
            vitals=Vitals(backing, lambda: self._sessions.clients, lambda: len(self._retained)),
            refusals=Refusals(),
            max_subscriptions=section.max_subscriptions,
            max_queued=section.max_queued,
        )
        self._sessions = Sessions(self._shop, section)
        self._connections: dict[Connection, None] = {}
        self._unknown: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def read_settings(cls, table: Mapping[str, object], where: str) -> MqttSection:
        return read_mqtt_section(table, where)

    async def start(self) -> None:
        """Take up what was, and listen; a WorkError if the port is taken."""
        if self._section.anonymous is True:
            LOG.warning(NOTHING_GRANTED)
        self._retained.start()
        self._sessions.restore()
        loop = asyncio.get_running_loop()
        host = "127.0.0.1" if self._section.host == "localhost" else self._section.host
        try:
            self._server = await loop.create_server(self._connection, host, self._section.port, backlog=512)
        except OSError as error:
            where = format_socket_address((host, self._section.port))
            raise WorkError(f"cannot listen for MQTT on {where}: {error.strerror or error}") from None
        self._timer = loop.call_later(REVIEW_S, self._review)

    @property
    def address(self) -> str:
        """What clients connect to."""
        assert self._server is not None
        return format_socket_address(self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Tell everybody, hang up, and listen no more."""
        assert self._server is not None
        assert self._timer is not None
        self._timer.cancel()
        self._server.close()
        self._sessions.close()
        for connection in list(self._connections):
            connection.abort()
        # Connections are lost within the next turns of the loop.
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)

    def _connection(self) -> Connection:
        return Connection(self._shop, self._sessions, self._section, self)

    # Of connections.

    def arrived(self, connection: Connection) -> None:
        """Somebody has come in, who may be anybody."""
        if self._server is None or not self._server.is_serving():
            connection.abort()
            return
        self._connections[connection] = self._unknown[connection] = None
        if len(self._unknown) > MAX_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            self._backing.node.recorder.bad_datagram("mqtt_flood", None)
            oldest.abort()

    def known(self, connection: Connection) -> None:
        """It has said who it is."""
        self._unknown.pop(connection, None)

    def left(self, connection: Connection) -> None:
        """It is gone."""
        self._unknown.pop(connection, None)
        self._connections.pop(connection, None)

    def _review(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REVIEW_S, self._review)
        now_s = loop.time()
        for connection in list(self._connections):
            connection.review(now_s)
        self._sessions.review()
        self._shop.vitals.review(now_s)
        self._retained.review()
