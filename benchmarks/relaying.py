"""W9: what an event costs two nodes, beside what it costs two relays that do nothing. `python -m benchmarks.relaying`.

A publisher's client, two nodes, a subscriber's client; events of 200 bytes, so many a second. The yardstick is two
processes of Python that read a datagram from a socket and send it on, at the same rate in the same run. Figures are CPU
time of both nodes, or both relays, for each event; and what was lost. With `--keys` each is measured with keys, too.
`--source DIR`, several times, measures the code of several checkouts in turn: where other programs run too, only what
is measured side by side can be compared.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median

from carrycast.node.api.client import connect
from carrycast.node.security.commands import certify, make_key_pair
from carrycast.node.security.key_files import KeyKind

SOURCE = Path(__file__).parents[1] / "src"
PAYLOAD = bytes(180)
CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
peers = ["127.0.0.1:{peer}"]
[protocol]
name = "{protocol}"
{settings}
[control]
socket = "{name}.sock"
{more}
"""
KEYS = """
[keys]
identity = "{name}.key"
certificate = "{name}.cert"
operator = "operator.key.pub"
"""
RELAY = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("127.0.0.1", int(sys.argv[1])))
there = ("127.0.0.1", int(sys.argv[2]))
while True:
    heard.sendto(heard.recv(65536), there)
"""


def cpu_s(processes: list[subprocess.Popen[bytes]]) -> float:
    """What processes that run have used so far."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def free_ports(number: int) -> list[int]:
    """Ports that nobody has right now."""
    opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(number)]
    for one in opened:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports


def paced(rate: float, events: int) -> Iterator[int]:
    """Numbers, so many a second; who is late catches up."""
    begun_s = time.monotonic()
    for n in range(events):
        ahead_s = begun_s + n / rate - time.monotonic()
        if ahead_s > 0.001:
            time.sleep(ahead_s)
        yield n


@contextmanager
def running(*commands: list[str], source: Path = SOURCE) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that run the code of a checkout, ended afterwards."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def relays(rate: float, events: int) -> dict[str, object]:
    """The yardstick."""
    first, second, sink_port = free_ports(3)
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind(("127.0.0.1", sink_port))
    sink.settimeout(2)
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    commands = [[sys.executable, "-c", RELAY, str(a), str(b)] for a, b in ((first, second), (second, sink_port))]
    came = 0

    def count() -> None:
        nonlocal came
        while came < events:
            try:
                sink.recv(65536)
            except TimeoutError:
                return
            came += 1

    with sink, source, running(*commands) as processes:
        time.sleep(0.5)
        counting = threading.Thread(target=count)
        counting.start()
        before_s = cpu_s(processes)
        for _ in paced(rate, events):
            source.sendto(PAYLOAD + bytes(20), ("127.0.0.1", first))
        counting.join()
        return {"case": "two relays", "us_per_event": (cpu_s(processes) - before_s) / events * 1e6, "came": came}


def nodes(
    protocol: str,
    rate: float,
    events: int,
    settings: str = "",
    more: str = "",
    source: Path = SOURCE,
    keyed: bool = False,
) -> dict[str, object]:
    """Two nodes that run a protocol."""
    ports = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if keyed:
            write_keys(folder, "a", "b")
        for one, port, peer in (("a", ports[0], ports[1]), ("b", ports[1], ports[0])):
            text = CONFIG.format(name=one, port=port, peer=peer, protocol=protocol, settings=settings, more=more)
            text += KEYS.format(name=one) if keyed else ""
            (folder / f"{one}.toml").write_text(text.replace("STORE", f"{one}.db"))
        command = [sys.executable, "-m", "carrycast.cli", "node"]
        with (
            running(*([*command, str(folder / f"{one}.toml")] for one in "ab"), source=source) as processes,
            connect(str(folder / "b.sock"), 30) as reader,
            connect(str(folder / "a.sock"), 30) as writer,
        ):
            deliveries = reader.subscribe("n >= 0")
            while not (writer.status().neighbors and reader.status().neighbors):
                time.sleep(0.1)
            came = 0

            def count() -> None:
                nonlocal came
                while came < events and deliveries.next_delivery(5.0) is not None:
                    came += 1

            counting = threading.Thread(target=count)
            counting.start()
            before_s, begun_s = cpu_s(processes), time.monotonic()
            for _ in writer.publish_all(({"n": n}, PAYLOAD) for n in paced(rate, events)):
                pass
            elapsed_s = time.monotonic() - begun_s
            counting.join()
            used_s = cpu_s(processes) - before_s
            drops: dict[str, int] = {}
            for status in (writer.status(), *([] if came < events else [reader.status()])):
                for reason, times in status.drops.items():
                    drops[reason] = drops.get(reason, 0) + times
    return {
        "case": f"{protocol} with keys" if keyed else protocol,
        "us_per_event": used_s / events * 1e6,
        "came": came,
        "published_per_s": round(events / elapsed_s),
        "drops": drops,
    }


def write_keys(folder: Path, *names: str) -> None:
    """An operator, and nodes that it has certified."""
    make_key_pair(folder / "operator.key", KeyKind.OPERATOR)
    for name in names:
        public = make_key_pair(folder / f"{name}.key", KeyKind.IDENTITY)
        certify(public, folder / "operator.key", folder / f"{name}.cert", name)


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each case, the nodes' with their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relaying", description="CPU of nodes beside relays.")
    parser.add_argument("--rate", type=float, default=1000.0, help="events a second (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for so long (10)")
    parser.add_argument("--protocol", action="append", help="flooding and epidemic, if none is given")
    parser.add_argument("--keys", action="store_true", help="and the same with keys")
    parser.add_argument("--source", action="append", type=Path, help="folder of the code to measure (this one)")
    parser.add_argument("--repeats", type=int, default=1, help="so often, each time beside relays of its own (1)")
    chosen = parser.parse_args(arguments)
    events = int(chosen.rate * chosen.seconds)
    ratios: dict[str, list[float]] = {}
    for _ in range(chosen.repeats):
        yardstick = relays(chosen.rate, events)
        print(json.dumps(yardstick), flush=True)
        for protocol in chosen.protocol or ("flooding", "epidemic"):
            for source, keyed in product(chosen.source or (SOURCE,), (False, True) if chosen.keys else (False,)):
                found = nodes(protocol, chosen.rate, events, source=source, keyed=keyed)
                ratio = float(str(found["us_per_event"])) / float(str(yardstick["us_per_event"]))
                ratios.setdefault(f"{found['case']}, {source}", []).append(ratio)
                print(json.dumps({"source": str(source), **found, "times_the_relays": round(ratio, 1)}), flush=True)
    for case, several in ratios.items() if chosen.repeats > 1 else ():
        print(json.dumps({"case": case, "median_times_the_relays": round(median(several), 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
