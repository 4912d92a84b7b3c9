"""The examples of paho-mqtt, rewritten for a node: event loops, request/response, sessions."""

import asyncio
import json
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.world import WAIT_S, Broker, broker, until

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
BOTH = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
HELLO = b"Hello" * 40_000
"""As in the examples of loops: more than any socket takes at once, and three times what fits in a datagram."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("node")) as opened:
        yield opened


def made(version: MQTTProtocolVersion, id: str = "", **options: Any) -> Client:
    return Client(CallbackAPIVersion.VERSION2, id, protocol=version, **options)


def narrow(client: Client) -> None:
    """A socket that takes a little at a time."""
    opened = client.socket()
    assert isinstance(opened, socket.socket)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)


@BOTH
def test_a_loop_of_ones_own_with_select(node: Broker, version: MQTTProtocolVersion) -> None:
    topic = f"examples/select/{version}"
    heard: list[bytes | bytearray] = []
    subscribed: list[int] = []
    client = made(version)
    client.on_connect = lambda client, data, flags, reason, properties: client.subscribe(topic)
    client.on_subscribe = lambda client, data, mid, reasons, properties: subscribed.append(mid)
    client.on_message = lambda client, data, message: heard.append(message.payload)
    client.connect("127.0.0.1", node.port, 60)
    narrow(client)
    deadline, published = time.monotonic() + WAIT_S, 0
    while len(heard) < 3:
        assert time.monotonic() < deadline
        opened = client.socket()
        assert opened is not None
        readable, writable, _ = select.select([opened], [opened] if client.want_write() else [], [], 0.1)
        if readable:
            client.loop_read()
        if writable:
            client.loop_write()
        client.loop_misc()
        if subscribed and published == len(heard) < 3:
            client.publish(topic, HELLO)
            published += 1
    client.disconnect()
    assert heard == [HELLO] * 3


class OnLoop:
    """A client whose socket asyncio watches."""

    def __init__(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        self._client = client
        self._tending: asyncio.Task[None] | None = None
        client.on_socket_open = self._opened
        client.on_socket_close = self._closed
        client.on_socket_register_write = lambda client, data, opened: loop.add_writer(opened, client.loop_write)
        client.on_socket_unregister_write = self._written

    def _opened(self, client: Client, data: object, opened: Any) -> None:
        asyncio.get_running_loop().add_reader(opened, client.loop_read)
        self._tending = asyncio.ensure_future(self._tend())

    def _written(self, client: Client, data: object, opened: Any) -> None:
        asyncio.get_running_loop().remove_writer(opened)

    def _closed(self, client: Client, data: object, opened: Any) -> None:
        asyncio.get_running_loop().remove_reader(opened)
        if self._tending is not None:
            self._tending.cancel()

    async def _tend(self) -> None:
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await asyncio.sleep(0.5)


@BOTH
def test_a_loop_of_asyncio(node: Broker, version: MQTTProtocolVersion) -> None:
    topic = f"examples/asyncio/{version}"

    async def story() -> None:
        heard: asyncio.Queue[bytes | bytearray] = asyncio.Queue()
        subscribed, gone = asyncio.Event(), asyncio.Event()
        client = made(version)
        OnLoop(client)
        client.on_connect = lambda client, data, flags, reason, properties: client.subscribe(topic, qos=1)
        client.on_subscribe = lambda client, data, mid, reasons, properties: subscribed.set()
        client.on_message = lambda client, data, message: heard.put_nowait(message.payload)
        client.on_disconnect = lambda client, data, flags, reason, properties: gone.set()
        client.connect("127.0.0.1", node.port, 60)
        narrow(client)
        await asyncio.wait_for(subscribed.wait(), WAIT_S)
        for _ in range(3):
            client.publish(topic, HELLO, qos=1)
            assert await asyncio.wait_for(heard.get(), WAIT_S) == HELLO
        client.disconnect()
        await asyncio.wait_for(gone.wait(), WAIT_S)

    asyncio.run(story())


def test_a_call_with_an_answer(node: Broker) -> None:
    """MQTT 5: the server answers where it is told to, with the number of the question."""
    server = made(V5, "math-server")

    def on_request(client: Client, data: object, message: MQTTMessage) -> None:
        asked: Any = message.properties
        answer = Properties(PacketTypes.PUBLISH)
        answer.CorrelationData = asked.CorrelationData
        client.publish(asked.ResponseTopic, json.dumps(sum(json.loads(message.payload))), qos=1, properties=answer)

    server.message_callback_add("requests/math/#", on_request)
    connected(server, node, "requests/math/add", "requests/math/mult")
    asker, answers = made(V5), list[MQTTMessage]()
    names: list[str] = []
    asker.on_message = lambda client, data, message: answers.append(message)
    connected(asker, node, named=names)
    assert names[0], "a client without a name is given one"
    reply_to = f"replies/math/{names[0]}"
    subscribe(asker, reply_to)
    question = Properties(PacketTypes.PUBLISH)
    question.CorrelationData, question.ResponseTopic = b"1", reply_to
    asker.publish("requests/math/add", json.dumps([1, 2.5, 4]), qos=1, properties=question)
    until(lambda: answers)
    told: Any = answers[0].properties
    assert (json.loads(answers[0].payload), told.CorrelationData) == (7.5, b"1")
    for client in (server, asker):
        client.disconnect()
        client.loop_stop()


def connected(client: Client, node: Broker, *topics: str, named: list[str] | None = None) -> None:
    """With a loop in a thread; the name that the node gave it is entered."""
    done: list[object] = []

    def on_connect(client: Client, data: object, flags: Any, reason: Any, properties: Properties | None) -> None:
        if named is not None:
            named.append(getattr(properties, "AssignedClientIdentifier", ""))
        done.append(reason)

    client.on_connect = on_connect
    client.connect("127.0.0.1", node.port)
    client.loop_start()
    until(lambda: done)
    for topic in topics:
        subscribe(client, topic)


def subscribe(client: Client, topic: str) -> None:
    done: list[object] = []
    client.on_subscribe = lambda client, data, mid, reasons, properties: done.append(mid)
    client.subscribe(topic, qos=1)
    until(lambda: done)


def test_whether_a_session_is_there(node: Broker) -> None:
    present: list[bool] = []

    def on_connect(client: Client, data: object, flags: Any, reason: Any, properties: object) -> None:
        present.append(flags.session_present)
        client.disconnect()

    for clean in (True, False, False, True):
        client = made(V311, "examples-session", clean_session=clean)
        client.on_connect = on_connect
        client.connect("127.0.0.1", node.port, 60)
        client.loop_forever()
    assert present == [False, False, True, False]


class Listening(Client):
    """Callbacks as methods of a class of one's own."""

    heard: list[bytes | bytearray]
    reasons: list[object]

    def on_connect(self, client: Client, data: object, flags: Any, reason: Any, properties: object) -> None:
        self.reasons.append(reason)

    def on_message(self, client: Client, data: object, message: MQTTMessage) -> None:
        self.heard.append(message.payload)
        if len(self.heard) == 2:
            self.disconnect()

    def run(self, port: int, topic: str) -> MQTTErrorCode:
        self.heard, self.reasons = [], []
        self.connect("127.0.0.1", port, 60)
        self.subscribe(topic, 0)
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        deadline = time.monotonic() + WAIT_S
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and time.monotonic() < deadline:
            code = self.loop(0.05)
            self.publish(topic, b"tick", qos=0)
        return code


@BOTH
def test_a_class_of_ones_own(node: Broker, version: MQTTProtocolVersion) -> None:
    client = Listening(CallbackAPIVersion.VERSION2, protocol=version)
    client.run(node.port, f"examples/class/{version}")
    assert client.heard == [b"tick"] * 2
    assert [str(reason) for reason in client.reasons] == ["Success"]


@BOTH
def test_a_callback_for_each_kind_of_topic(node: Broker, version: MQTTProtocolVersion) -> None:
    root = f"examples/kinds/{version}"
    heard: list[tuple[str, str]] = []
    client = made(version)
    client.message_callback_add(f"{root}/messages/#", lambda client, data, message: heard.append(("m", message.topic)))
    client.message_callback_add(f"{root}/bytes/#", lambda client, data, message: heard.append(("b", message.topic)))
    client.on_message = lambda client, data, message: heard.append(("other", message.topic))
    connected(client, node, f"{root}/#")
    sent = [client.publish(f"{root}/{kind}/1", "x", qos=2) for kind in ("messages", "bytes", "load")]
    for each in sent:
        each.wait_for_publish(WAIT_S)
    until(lambda: len(heard) == 3)
    assert heard == [("m", f"{root}/messages/1"), ("b", f"{root}/bytes/1"), ("other", f"{root}/load/1")]
    client.disconnect()
    client.loop_stop()


@BOTH
def test_retained_messages_are_cleared(node: Broker, version: MQTTProtocolVersion) -> None:
    root = f"examples/clear/{version}"
    client = made(version)
    connected(client, node)
    for number in range(3):
        client.publish(f"{root}/{number}", HELLO if number else "x", qos=1, retain=True).wait_for_publish(WAIT_S)
    found: dict[str, int] = {}

    def on_message(client: Client, data: object, message: MQTTMessage) -> None:
        if message.retain and message.payload:
            found[message.topic] = len(message.payload)
            client.publish(message.topic, None, qos=1, retain=True)

    client.on_message = on_message
    subscribe(client, f"{root}/#")
    until(lambda: len(found) == 3)
    assert sorted(found.values()) == [1, len(HELLO), len(HELLO)]
    late = made(version)
    again: list[str] = []
    late.on_message = lambda client, data, message: again.append(message.topic)

    def cleared() -> bool:
        again.clear()
        subscribe(late, f"{root}/#")
        client.publish(f"{root}/last", "x", qos=1)
        until(lambda: f"{root}/last" in again)
        return again == [f"{root}/last"]

    connected(late, node)
    until(cleared)
    for each in (client, late):
        each.disconnect()
        each.loop_stop()


@BOTH
def test_what_is_too_long_and_cannot_be_deflated_is_refused(node: Broker, version: MQTTProtocolVersion) -> None:
    before, gone = node.drops("mqtt_refused"), list[object]()
    client = made(version)
    client.on_disconnect = lambda client, data, flags, reason, properties: gone.append(reason)
    refused: list[Any] = []
    client.on_publish = lambda client, data, mid, reason, properties: refused.append(reason)
    connected(client, node)
    client.publish("examples/noise", os.urandom(100_000), qos=1)
    until(lambda: node.drops("mqtt_refused") > before)
    # Acknowledged means kept: a client of MQTT 5 is told the reason, another one is disconnected.
    until(lambda: refused if version == V5 else gone)
    assert version == V311 or refused[0].value == 0x83
    client.disconnect()
    client.loop_stop()
