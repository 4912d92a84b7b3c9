"""A node with an MQTT listener in a thread of its own, and a client of bare bytes, for tests that block."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from carrycast.node.config import NodeConfig, load_config
from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.fields import (
    FieldReader,
    PacketSplitter,
    encode_binary,
    encode_string,
    encode_variable_byte_integer,
)
from carrycast.node.gateways.mqtt.properties import NONE, Properties, decode_properties, encode_properties
from carrycast.node.node import LiveNode
from tests.patience import PATIENCE_S

T = TypeVar("T")
WAIT_S = PATIENCE_S
EPIDEMIC = 'name = "epidemic"\ndurable = true'
CONFIG = """
name = "{name}"
{top}
[listen]
host = "127.0.0.1"
port = 0
[discovery]
period_s = 0.05
[protocol]
{protocol}
[control]
socket = "{name}.sock"
[store]
file = "{name}.db"
[mqtt]
{mqtt}
"""


def make_config(folder: Path, mqtt: str = "", protocol: str = EPIDEMIC, name: str = "n1", top: str = "") -> NodeConfig:
    file = folder / f"{name}.toml"
    given = mqtt if "port =" in mqtt else f"port = 0\n{mqtt}"
    file.write_text(CONFIG.format(name=name, protocol=protocol, mqtt=given, top=top))
    return load_config(file)


class Broker:
    """A node that runs in its own thread."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._unseen: list[dict[str, object]] = []
        self._loop.set_exception_handler(lambda _, context: self._unseen.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.node = LiveNode(config)
        self.run(self.node.start)

    def run(self, function: Callable[[], object]) -> object:
        """Run something in the node's thread, and await it if it is to be."""

        async def task() -> object:
            found = function()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(task(), self._loop).result(WAIT_S)

    @property
    def port(self) -> int:
        return int(self.node.gateways["mqtt"].address.rpartition(":")[2])

    @property
    def control(self) -> str:
        assert self.node.control_address is not None
        return self.node.control_address

    def restart(self, crash: bool = True, config: NodeConfig | None = None) -> None:
        """As a process that is killed, or that stops, and is back, perhaps with another configuration."""
        self.run(self.node.crash if crash else self.node.stop)
        self._config = config or self._config
        self.node = LiveNode(self._config)
        self.run(self.node.start)

    def close(self) -> None:
        self.run(self.node.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        self.check()

    def check(self) -> None:
        """Nothing has gone wrong in the node's loop that nobody was told of."""
        assert not self._unseen, self._unseen

    @property
    def subscriptions(self) -> int:
        found = self.run(lambda: self.node.status().subscriptions)
        assert isinstance(found, int)
        return found

    def drops(self, reason: str) -> int:
        return self.node.drops.get(reason, 0)


@contextmanager
def broker(folder: Path, mqtt: str = "", protocol: str = EPIDEMIC, name: str = "n1") -> Iterator[Broker]:
    opened = Broker(make_config(folder, mqtt, protocol, name))
    try:
        yield opened
    finally:
        opened.close()


def until(condition: Callable[[], T], within_s: float = WAIT_S) -> T:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
    return found


def packet(head: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((head,)) + encode_variable_byte_integer(len(body)) + body


def connect(
    client_id: str,
    version: int = 5,
    clean: bool = True,
    keep_alive_s: int = 0,
    properties: Properties = NONE,
    user: tuple[str, str] | None = None,
) -> bytes:
    flags = clean << 1 | (0xC0 if user else 0)
    said = encode_properties(properties) if version == 5 else b""
    more = [] if user is None else [encode_string(user[0]), encode_string(user[1])]
    head = [encode_string("MQTT"), bytes((version, flags)), keep_alive_s.to_bytes(2, "big")]
    return packet(0x10, *head, said, encode_string(client_id), *more)


def publish(topic: str, payload: bytes, qos: int = 0, id: int = 0, again: bool = False, retain: bool = False) -> bytes:
    return packet(
        0x30 | again << 3 | qos << 1 | retain,
        encode_string(topic),
        id.to_bytes(2, "big") if qos else b"",
        b"\0",
        payload,
    )


def subscribe(topics: str, qos: int = 0, id: int = 1, properties: Properties = NONE) -> bytes:
    return packet(0x82, id.to_bytes(2, "big"), encode_properties(properties), encode_string(topics), bytes((qos,)))


class Raw:
    """A client of MQTT 5 that says exactly what it is told to."""

    def __init__(self, port: int, *first: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._frames = PacketSplitter(1 << 20)
        self._heard: list[tuple[int, bytes]] = []
        self.say(*first)

    def say(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def hear(self) -> tuple[int, bytes] | None:
        """The next packet as its first byte and its body; None if the node has hung up."""
        while not self._heard:
            try:
                data = self.socket.recv(65_536)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._heard += self._frames.feed(data)
        return self._heard.pop(0)

    def read_connack(self) -> tuple[bool, int, Properties]:
        """Of the answer to CONNECT: whether a session is there, the reason, the properties."""
        body = self.expect(packet_type.CONNACK)[1]
        return bool(body[0]), body[1], decode_properties(FieldReader(body, 2), packet_type.CONNACK)

    def expect(self, kind: int) -> tuple[int, bytes]:
        heard = self.hear()
        assert heard is not None, "the node has hung up"
        assert heard[0] >> 4 == kind, heard
        return heard

    def message(self) -> tuple[str, bytes, int, int, bool]:
        """Topic, payload, QoS, packet id, and whether it comes again, of the next message."""
        head, body = self.expect(packet_type.PUBLISH)
        reader = FieldReader(body)
        topic, qos = reader.read_string(), head >> 1 & 3
        id = reader.read_two_byte_integer() if qos else 0
        decode_properties(reader, packet_type.PUBLISH)
        return topic, reader.read_rest(), qos, id, bool(head & 8)

    def ack(self, kind: int, id: int) -> None:
        self.say(packet(kind << 4 | (2 if kind == packet_type.PUBREL else 0), id.to_bytes(2, "big")))

    def end(self) -> int | None:
        """The reason with which the node hangs up; None if it does so without a word."""
        reason = None
        while (heard := self.hear()) is not None:
            if heard[0] >> 4 == packet_type.DISCONNECT:
                reason = heard[1][0]
        return reason

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


__all__ = [
    "Broker",
    "Raw",
    "encode_binary",
    "broker",
    "connect",
    "packet",
    "publish",
    "subscribe",
    "encode_string",
    "until",
]
