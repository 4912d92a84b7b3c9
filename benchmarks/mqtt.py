"""W9: messages through the MQTT listener for a CPU second of the node. `python -m benchmarks.mqtt` prints it.

One node in a process of its own, one publisher, one subscriber, JSON payloads of 200 bytes; beside it the same events
through the control channel, at the level that QoS 1 has, which MQTT's figures are divided by. The clients do next to
nothing but send and receive; a message is counted when the subscriber has it, and for QoS 1 and 2 when its dialogue is
over.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carrycast.core.model import Scalar
from carrycast.node.api.client import connect
from carrycast.node.api.messages import Level
from carrycast.node.gateways.mqtt import codec, properties as packet_type
from carrycast.node.gateways.mqtt.fields import PacketSplitter, encode_string, encode_variable_byte_integer
from carrycast.node.gateways.mqtt.packets import V311, ApplicationMessage

MESSAGES = 20_000
WINDOW = 50
"""Publications of QoS 1 and 2 that are not acknowledged yet."""
AHEAD = 500
"""Publications that the reader has not taken yet."""
PAYLOAD = json.dumps({"speed": 31, "road": "A1", "text": "x" * 160}).encode()
CONFIG = """
name = "bench"
[listen]
host = "127.0.0.1"
port = 0
[protocol]
{protocol}
[store]
file = "bench.db"
[control]
socket = "bench.sock"
[mqtt]
port = 0
"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PROTOCOLS = {"flooding": 'name = "flooding"', "epidemic, durable": 'name = "epidemic"\ndurable = true'}


class _Node:
    def __init__(self, pid: int, port: int, control: str) -> None:
        self.port = port
        self.control = control
        self._stat = Path(f"/proc/{pid}/stat")

    def cpu_s(self) -> float:
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S


@contextmanager
def _node(protocol: str) -> Iterator[_Node]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "bench.toml"
        file.write_text(CONFIG.format(protocol=protocol))
        command = [sys.executable, "-m", "carrycast.cli", "node", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            told = process.stderr.readline()
            port = int(told.partition("MQTT at ")[2].partition(";")[0].rpartition(":")[2])
            try:
                yield _Node(process.pid, port, str(Path(name) / "bench.sock"))
            finally:
                process.send_signal(signal.SIGKILL)


def _packet(head: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((head,)) + encode_variable_byte_integer(len(body)) + body


class _Client:
    """MQTT 3.1.1, without a word too many."""

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._frames = PacketSplitter(1 << 20)
        self.say(_packet(0x10, encode_string("MQTT"), b"\x04\x02\0\0", encode_string(name)))
        self.expect(packet_type.CONNACK)

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> list[tuple[int, bytes]]:
        return list(self._frames.feed(self._socket.recv(1 << 16)))

    def expect(self, kind: int) -> None:
        assert [head >> 4 for head, _ in self.hear()] == [kind]

    def answer(self, kind: int, packet_ids: list[bytes]) -> None:
        head = bytes((kind << 4 | (2 if kind == packet_type.PUBREL else 0), 2))
        self.say(b"".join(head + id for id in packet_ids))


def _read(client: _Client, qos: int, count: int, taken: threading.Semaphore) -> None:
    """Take messages, with the whole dialogue of each."""
    got = over = 0
    while got < count or (qos == 2 and over < count):
        heard = client.hear()
        ids = [body[2 + len("bench/x") :][:2] for head, body in heard if head >> 4 == packet_type.PUBLISH]
        got += len(ids)
        if ids:
            taken.release(len(ids))
        if qos and ids:
            client.answer(packet_type.PUBACK if qos == 1 else packet_type.PUBREC, ids)
        released = [body for head, body in heard if head >> 4 == packet_type.PUBREL]
        if released:
            client.answer(packet_type.PUBCOMP, released)
            over += len(released)


def _write(client: _Client, qos: int, count: int, taken: threading.Semaphore) -> None:
    message = ApplicationMessage("bench/x", PAYLOAD, qos)
    if qos == 0:
        chunk = codec.encode_publish(V311, message) * WINDOW
        for _ in range(count // WINDOW):
            for _ in range(WINDOW):
                taken.acquire()
            client.say(chunk)
        return
    sent = over = 0
    # The reader says how far it is: nobody promises to keep what a client without a lasting session does not take.
    while over < count:
        room = min(WINDOW - (sent - over), count - sent)
        for _ in range(room):
            taken.acquire()
        if room:
            client.say(b"".join(codec.encode_publish(V311, message, (sent + n) % 60_000 + 1) for n in range(room)))
            sent += room
        heard = client.hear()
        received = [body[:2] for head, body in heard if head >> 4 == packet_type.PUBREC]
        if received:
            client.answer(packet_type.PUBREL, received)
        over += sum(head >> 4 == (packet_type.PUBACK if qos == 1 else packet_type.PUBCOMP) for head, _ in heard)


def _mqtt(node: _Node, qos: int, count: int) -> None:
    reader, writer = _Client(node.port, "reader"), _Client(node.port, "writer")
    reader.say(_packet(0x82, b"\0\1", encode_string("bench/#"), bytes((qos,))))
    reader.expect(packet_type.SUBACK)
    taken = threading.Semaphore(AHEAD)
    thread = threading.Thread(target=_read, args=(reader, qos, count, taken), daemon=True)
    thread.start()
    _write(writer, qos, count, taken)
    thread.join()


def _control(node: _Node, count: int, level: Level) -> None:
    with connect(node.control, 10) as reader, connect(node.control) as writer:
        deliveries = reader.subscribe("topic matches 'bench/#'")

        def read() -> None:
            for _ in range(count):
                next(deliveries)

        thread = threading.Thread(target=read)
        thread.start()
        attributes: dict[str, Scalar] = {"topic": "bench/x", "speed": 31, "road": "A1", "text": "x" * 160}
        for _ in writer.publish_all(((attributes, PAYLOAD) for _ in range(count)), level=level):
            pass
        thread.join()


def measure(protocol: str = "flooding", messages: int = MESSAGES) -> dict[str, float]:
    """Messages for a CPU second of the node, through the control channel and by QoS; each the best of two."""
    ways: dict[str, Callable[[_Node], None]] = {
        "control channel": lambda node: _control(node, messages, "stored" if "durable" in protocol else "accepted"),
        "QoS 0": lambda node: _mqtt(node, 0, messages),
        "QoS 1": lambda node: _mqtt(node, 1, messages),
        "QoS 2": lambda node: _mqtt(node, 2, messages),
    }
    found: dict[str, float] = dict.fromkeys(ways, 0.0)
    with _node(PROTOCOLS[protocol]) as node:
        for _ in range(2):
            for name, act in ways.items():
                begin_s = node.cpu_s()
                act(node)
                found[name] = max(found[name], messages / (node.cpu_s() - begin_s))
    return found


if __name__ == "__main__":
    for protocol in PROTOCOLS:
        # The disk decides how long these take.
        found = measure(protocol, MESSAGES // 4 if "durable" in protocol else MESSAGES)
        for name, rate in found.items():
            print(
                f"{protocol}, {name}: {rate:,.0f} messages per CPU second, {rate / found['control channel']:.2f} times"
            )
