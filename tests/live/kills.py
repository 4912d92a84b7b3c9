"""Nodes in a line as processes, an application that writes down what it gets, and somebody who kills them.

The publisher publishes at level `stored` all the time, and goes on when its node is back. The application writes `got`
with each event and `done` when its acknowledgement was confirmed, so that the order of its lines is the order of what
happened, over all its lives.
"""

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from driftcast.errors import WorkError
from driftcast.live.door.client import connect
from tests.cli.console import COMMAND, environment

CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.05
peers = {peers}
[link]
ack_timeout_s = 0.1
[protocol]
name = "epidemic"
durable = true
buffer = 1000000
ask_again_s = 0.5
tell_again_s = 1.0
[store]
file = "{name}.db"
[control]
socket = "{name}.sock"
"""

APPLICATION = """
import os, sys
from driftcast.errors import WorkError
from driftcast.live.door.client import connect
out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    try:
        with connect(sys.argv[1], 60) as client:
            deliveries = client.subscribe("n >= 0", name="log")
            while True:
                taken = []
                while len(taken) < 20 and (d := deliveries.next_delivery(0.05 if taken else None)) is not None:
                    taken.append(d.event.attributes["n"])
                    os.write(out, b"got %d %d\\n" % (taken[-1], d.again))
                deliveries.acknowledge()
                for n in taken:
                    os.write(out, b"done %d\\n" % n)
    except WorkError:
        pass
"""

PAUSE_S = 0.005
"""Between two publications: some 100 a second, more than enough to be killed in the middle of something."""


class World:
    """The processes, and the publisher's thread."""

    def __init__(self, folder: Path, nodes: tuple[str, ...]) -> None:
        self._folder = folder
        self.lines = folder / "lines"
        self.stored: list[int] = []
        """The numbers of the events whose storing was acknowledged."""
        self._published = 0
        self._stopping = threading.Event()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = _free_ports(len(nodes))
        for at, name in enumerate(nodes):
            beside = [f"127.0.0.1:{port}" for port in (*ports[max(0, at - 1) : at], *ports[at + 1 : at + 2])]
            (folder / f"{name}.toml").write_text(CONFIG.format(name=name, port=ports[at], peers=beside))

    def start(self, who: str) -> None:
        """One of the nodes, or `application`."""
        command = [*COMMAND, "node", str(self._folder / f"{who}.toml")]
        if who == "application":
            socket_path = str(self._folder / "subscriber.sock")
            command = [sys.executable, "-c", APPLICATION, socket_path, str(self.lines)]
        errors = (self._folder / f"{who}.err").open("ab")
        with errors:
            self._processes[who] = subprocess.Popen(command, env=environment(), stderr=errors)

    @property
    def subscribed(self) -> bool:
        """Whether the application has made its subscription."""
        with connect(str(self._folder / "subscriber.sock"), 60) as client:
            return client.status().subscriptions == 1

    def await_start(self, who: str) -> None:
        """Until a node that was started serves clients: a process that is still starting loses nothing by a kill."""
        if who != "application":
            connect(str(self._folder / f"{who}.sock"), 60).close()

    def kill(self, who: str) -> None:
        """As the kernel does when memory runs out."""
        process = self._processes[who]
        process.kill()
        process.wait()

    def publish(self) -> None:
        """Until it is told to stop, whatever happens to the node."""
        address = str(self._folder / "publisher.sock")
        while not self._stopping.is_set():
            with suppress(WorkError), connect(address, 60) as client:
                while not self._stopping.is_set():
                    number, self._published = self._published, self._published + 1
                    client.publish({"n": number}, payload=bytes(180), level="stored")
                    self.stored.append(number)
                    time.sleep(PAUSE_S)

    def goes_on(self, stored: int) -> bool:
        """Whether more was stored than so much."""
        return len(self.stored) > stored

    def drain(self, within_s: float) -> None:
        """Stop publishing and wait until the application has got all that was stored. That it wrote of each that its
        acknowledgement was confirmed cannot be waited for: it may have been killed between the two."""
        self._stopping.set()
        deadline = time.monotonic() + within_s
        while self.lost() and time.monotonic() < deadline:
            time.sleep(0.2)

    def history(self) -> list[list[str]]:
        """What the application wrote; a line that a kill cut short is none."""
        if not self.lines.exists():
            return []
        return [line.split() for line in self.lines.read_text().split("\n")[:-1]]

    def lost(self) -> set[int]:
        """What was acknowledged as stored and never came."""
        return set(self.stored) - {int(words[1]) for words in self.history() if words[0] == "got"}

    def repeated(self) -> list[int]:
        """What came again although its acknowledgement was confirmed."""
        done, again = set(), []
        for words in self.history():
            if words[0] == "done":
                done.add(int(words[1]))
            elif int(words[1]) in done:
                again.append(int(words[1]))
        return again

    def unmarked(self) -> list[int]:
        """What came a second time and was not marked so."""
        got, plain = set(), []
        for words in self.history():
            if words[0] == "got":
                if words[1] in got and words[2] == "0":
                    plain.append(int(words[1]))
                got.add(words[1])
        return plain

    def stop(self) -> None:
        """End everything."""
        self._stopping.set()
        for process in self._processes.values():
            process.kill()
            process.wait()


@contextmanager
def world(folder: Path, nodes: tuple[str, ...]) -> Iterator[World]:
    """Running, with its publisher publishing."""
    made = World(folder, nodes)
    publisher = threading.Thread(target=made.publish)
    try:
        for who in (*nodes, "application"):
            made.start(who)
        # What is published before anybody subscribes is for nobody.
        _wait(lambda: made.subscribed, 60)
        publisher.start()
        yield made
    finally:
        made.stop()
        if publisher.ident is not None:
            publisher.join()


def kill_often(
    folder: Path, victims: list[str], times: int, seed: int, nodes: tuple[str, ...] = ("publisher", "subscriber")
) -> World:
    """Kill each in turn so often, at random moments under load, and let the rest arrive."""
    moments = random.Random(seed)
    with world(folder, nodes) as made:
        _wait(lambda: bool(made.history()), 60)
        for _ in range(times):
            for victim in victims:
                time.sleep(moments.uniform(0.05, 1.0))
                made.kill(victim)
                made.start(victim)
                made.await_start(victim)
                _wait(partial(made.goes_on, len(made.stored)), 60)
        made.drain(60)
    return made


def _wait(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "nothing moves any more"
        time.sleep(0.05)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
