"""The node's process is killed while messages flow: with QoS 2 at both ends and lasting sessions, each arrives once."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.fields import FieldReader
from carrycast.node.gateways.mqtt.properties import decode_properties
from tests.cli.nodes import start
from tests.gateway.world import CONFIG, EPIDEMIC, Raw, connect, packet, publish, subscribe

pytestmark = pytest.mark.live

LIMIT_S = 60.0


class Lasting(threading.Thread):
    """A client of QoS 2 that comes back to its session whenever the node was away, until it is done."""

    def __init__(self, name: str, port: Callable[[], int]) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self.deadline_s = time.monotonic() + LIMIT_S
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set() and time.monotonic() < self.deadline_s:
            try:
                with Raw(
                    self._port(), connect(self.name, clean=False, properties={"session_expiry_interval_s": 900})
                ) as client:
                    client.socket.settimeout(1.0)
                    client.read_connack()
                    self.begin(client)
                    while not self.ended.is_set() and (heard := client.hear()) is not None:
                        self.on_packet(client, *heard)
            except (OSError, AssertionError):
                # The node is away, or was silent for a while.
                time.sleep(0.02)

    def begin(self, client: Raw) -> None: ...

    def on_packet(self, client: Raw, head: int, body: bytes) -> None: ...


class Writer(Lasting):
    """Publishes numbers one after the other, each until its dialogue is over."""

    def __init__(self, port: Callable[[], int], count: int) -> None:
        super().__init__("writer", port)
        self.count = count
        self.done = 0
        self._released = False

    def begin(self, client: Raw) -> None:
        if self._released:
            client.ack(packet_type.PUBREL, self._id)
        else:
            client.say(publish("n", str(self.done).encode(), 2, self._id, again=True))

    @property
    def _id(self) -> int:
        return self.done % 100 + 1

    def on_packet(self, client: Raw, head: int, body: bytes) -> None:
        if int.from_bytes(body[:2], "big") != self._id:
            return
        if head >> 4 == packet_type.PUBREC and not self._released:
            self._released = True
            client.ack(packet_type.PUBREL, self._id)
        elif head >> 4 == packet_type.PUBCOMP and self._released:
            self.done, self._released = self.done + 1, False
            if self.done == self.count:
                self.ended.set()
            else:
                client.say(publish("n", str(self.done).encode(), 2, self._id))


class Reader(Lasting):
    """Writes down what it is given, a message of QoS 2 once for each packet id until that is released."""

    def __init__(self, port: Callable[[], int], count: int) -> None:
        super().__init__("reader", port)
        self.count = count
        self.got: list[int] = []
        self.ready = threading.Event()
        self._held: set[int] = set()

    def begin(self, client: Raw) -> None:
        if not self.ready.is_set():
            client.say(subscribe("n", 2))

    def on_packet(self, client: Raw, head: int, body: bytes) -> None:
        if head >> 4 == packet_type.SUBACK:
            self.ready.set()
        elif head >> 4 == packet_type.PUBREL:
            id = int.from_bytes(body[:2], "big")
            self._held.discard(id)
            client.ack(packet_type.PUBCOMP, id)
            if len(self.got) == self.count and not self._held:
                # Said before the connection is left: the node has taken in all of it.
                client.say(packet(0xC0))
        elif head >> 4 == packet_type.PINGRESP:
            self.ended.set()
        elif head >> 4 == packet_type.PUBLISH:
            reader = FieldReader(body)
            reader.read_string()
            id = reader.read_two_byte_integer()
            decode_properties(reader, packet_type.PUBLISH)
            if id not in self._held:
                self._held.add(id)
                self.got.append(int(reader.read_rest()))
            client.ack(packet_type.PUBREC, id)


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_each_message_of_qos_2_arrives_once_however_often_the_node_is_killed(tmp_path: Path, kills: int) -> None:
    rng = random.Random(16)
    file = tmp_path / "n1.toml"
    file.write_text(CONFIG.format(name="n1", protocol=EPIDEMIC, mqtt="port = 0", top=""))
    ports = [0]
    count = 30 * kills
    writer, reader = Writer(lambda: ports[-1], count), Reader(lambda: ports[-1], count)
    writer.deadline_s = reader.deadline_s = time.monotonic() + LIMIT_S + 15 * kills
    for turn in range(kills + 1):
        with start("node", file) as node:
            assert node.stderr is not None
            told = node.stderr.readline()
            ports.append(int(told.partition("MQTT at ")[2].partition(";")[0].rpartition(":")[2]))
            if turn == 0:
                reader.start()
                assert reader.ready.wait(20)
                writer.start()
            if turn < kills:
                # At any moment, once some are through since the last kill.
                due = writer.done + rng.randrange(1, 25)
                while writer.done < due and not writer.ended.is_set():
                    time.sleep(0.001)
                time.sleep(rng.random() * 0.02)
            else:
                for client in (writer, reader):
                    client.join(LIMIT_S + 15 * kills)
            node.kill()
            node.wait()
    assert writer.done == count
    lost = sorted(set(range(count)) - set(reader.got))
    twice = sorted(number for number in set(reader.got) if reader.got.count(number) > 1)
    assert (lost, twice) == ([], [])
