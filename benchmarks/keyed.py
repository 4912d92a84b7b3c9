"""What keys cost: events of 200 bytes from a publisher over two nodes to a subscriber, with keys and without.

`python -m benchmarks.keyed [PROTOCOL...]` prints the CPU of both nodes for each event, and of two relays in Python that
pass on UDP datagrams and do nothing else, all in one run at the same rate.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from benchmarks.relaying import free_ports
from driftcast.live.door.client import connect
from driftcast.live.door.deliveries import Deliveries
from driftcast.live.keys.commands import certify, new_pair
from driftcast.live.keys.files import KeyKind

RATE = 1000
EVENTS = 3000
REPEATS = 3
PAYLOAD = bytes(180)
CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
peers = ["127.0.0.1:{other}"]
[protocol]
name = "{protocol}"
[control]
socket = "{name}.sock"
"""
KEYS = """
[keys]
identity = "{name}.key"
certificate = "{name}.cert"
operator = "operator.key.pub"
"""
RELAY = """
import socket, sys
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    datagram, _ = taken.recvfrom(65536)
    taken.sendto(datagram, ("127.0.0.1", int(sys.argv[2])))
"""


def measure(protocol: str, keyed: bool) -> float:
    """Microseconds of CPU that two nodes take for an event."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ports = free_ports(2)
        if keyed:
            new_pair(place / "operator.key", KeyKind.OPERATOR)
        for name, port, other in zip("ab", ports, reversed(ports), strict=True):
            text = CONFIG.format(name=name, port=port, other=other, protocol=protocol)
            if keyed:
                public = new_pair(place / f"{name}.key", KeyKind.IDENTITY)
                certify(public, place / "operator.key", place / f"{name}.cert", name)
                text += KEYS.format(name=name)
            (place / f"{name}.toml").write_text(text)
        commands = [[sys.executable, "-m", "driftcast.cli", "node", str(place / f"{name}.toml")] for name in ("a", "b")]
        with (
            _running(commands) as processes,
            connect(str(place / "a.sock"), 20) as one,
            connect(str(place / "b.sock"), 20) as two,
        ):
            while not (one.status().neighbors and two.status().neighbors):
                time.sleep(0.05)
            deliveries = two.subscribe("n >= 0")
            got: list[int] = []
            reading = Thread(target=_read, args=(deliveries, got))
            reading.start()
            before_s = sum(map(_cpu_s, processes))
            begun_s = time.perf_counter()
            for n in range(EVENTS):
                one.publish({"n": n}, PAYLOAD)
                time.sleep(max(0.0, begun_s + n / RATE - time.perf_counter()))
            reading.join()
            spent_s = sum(map(_cpu_s, processes)) - before_s
    if len(got) < EVENTS:
        print(f"{protocol}: only {len(got)} of {EVENTS} arrived", file=sys.stderr)
    return spent_s / EVENTS * 1e6


def _read(deliveries: Deliveries, got: list[int]) -> None:
    while len(got) < EVENTS and deliveries.next_event(3) is not None:
        got.append(1)


def yardstick() -> float:
    """The same of two relays that only pass on."""
    first, second, last = free_ports(3)
    commands = [
        [sys.executable, "-c", RELAY, str(taken), str(passed)] for taken, passed in ((first, second), (second, last))
    ]
    with (
        _running(commands) as processes,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", last))
        receiver.settimeout(5)
        before_s = sum(map(_cpu_s, processes))
        begun_s = time.perf_counter()
        for n in range(EVENTS):
            sender.sendto(bytes(200), ("127.0.0.1", first))
            receiver.recv(300)
            time.sleep(max(0.0, begun_s + n / RATE - time.perf_counter()))
        return (sum(map(_cpu_s, processes)) - before_s) / EVENTS * 1e6


@contextmanager
def _running(commands: list[list[str]]) -> Iterator[list[int]]:
    """Processes that have said their first line, by id."""
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def _cpu_s(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(protocols: list[str]) -> None:
    """Best of some, alternating, since other programs run as well."""
    for protocol in protocols or ["flooding", "epidemic"]:
        rows = [(yardstick(), measure(protocol, keyed=False), measure(protocol, keyed=True)) for _ in range(REPEATS)]
        relays, plain, keyed = (min(column) for column in zip(*rows, strict=True))
        print(
            json.dumps(
                {
                    "protocol": protocol,
                    "relays_us": round(relays, 1),
                    "open_us": round(plain, 1),
                    "keyed_us": round(keyed, 1),
                    "open_ratio": round(plain / relays, 2),
                    "keyed_ratio": round(keyed / relays, 2),
                    "keyed_to_open": round(keyed / plain, 2),
                    "memory_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
                }
            )
        )


if __name__ == "__main__":
    main(sys.argv[1:])
