"""Nodes in a line as processes, an application that writes down what it gets, and somebody who kills them.

`python -m benchmarks.kills --kills 100` kills the publisher's node, the subscriber's node, the application and a relay
between the nodes a hundred times each, at random moments under load, and prints what was lost and what came again; with
`--protocol NAME` over another protocol than epidemic. Its exit status is 1 if there was any.

The publisher publishes at level `stored` all the time, and goes on when its node is back. The application writes `got`
with each event and `done` when its acknowledgement was confirmed, so that the order of its lines is the order of what
happened, over all its lives.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.relaying import free_ports
from carrycast.errors import WorkError
from carrycast.node.api.client import connect

SOURCE = Path(__file__).parents[1] / "src"

CONFIG = """
name = "{name}"
roles = ["broker"]
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.05
peers = {peers}
[link]
ack_timeout_s = 0.1
[protocol]
name = "{protocol}"
durable = true
{settings}
[store]
file = "{name}.db"
[directory]
broker = {nodes}
[control]
socket = "{name}.sock"
"""

APPLICATION = """
import os, sys
from carrycast.errors import WorkError
from carrycast.node.api.client import connect
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


class Subject(NamedTuple):
    """A protocol that keeps events: what makes it quick enough to watch, and how long its publisher pauses."""

    settings: str
    pause_s: float = 0.005
    """Some 100 a second: more than enough to be killed in the middle of something."""
    relays: bool = True
    """Whether it claims to carry for others."""
    room: str = "buffer = 1000000"


SUBJECTS = {
    "epidemic": Subject("ask_again_s = 0.5\ntell_again_s = 1.0"),
    "drift": Subject("contact_s = 0.1\nnews_s = 0.2\nhash_max_s = 1.0\nasks = 1000\nanswers = 1000"),
    "spray_and_wait": Subject("again_s = 0.5"),
    "first_contact": Subject("again_s = 0.5"),
    "prophet": Subject("again_s = 0.5\nexchange_s = 0.5"),
    "maxprop": Subject("again_s = 0.5\nexchange_s = 0.5"),
    "direct": Subject("again_s = 0.5", relays=False),
    # These try all that they store again and again until its lease is over, so there has to be less of it.
    "semi_probabilistic": Subject("retry_s = 3.0\nattempts = 1000000\nupdate_s = 0.2", pause_s=0.1),
    "adaptive": Subject("retry_s = 3.0\nupdate_min_s = 0.2\nsample_s = 0.2", pause_s=0.1),
    # What is kept is told in rounds, so many at a time.
    "tree": Subject(
        "recover_s = 0.2\ngroup_s = 0.2\nrefresh_s = 0.5\ndefer_s = 0.5", pause_s=0.02, room="recover_buffer = 100000"
    ),
}
PAIR, LINE = ("publisher", "subscriber"), ("publisher", "relay", "subscriber")
VICTIMS = ("publisher", "subscriber", "application", "relay")


class World:
    """The processes, and the publisher's thread."""

    def __init__(self, folder: Path, nodes: tuple[str, ...], protocol: str) -> None:
        self._folder = folder
        subject = SUBJECTS[protocol]
        self._pause_s = subject.pause_s
        self._nodes = nodes
        self.flaws: list[str] = []
        """What did not add up in the end."""
        self.lines = folder / "lines"
        self.stored: list[int] = []
        """The numbers of the events whose storing was acknowledged."""
        self._published = 0
        self._stopping = threading.Event()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(len(nodes))
        for at, name in enumerate(nodes):
            beside = [f"127.0.0.1:{port}" for port in (*ports[max(0, at - 1) : at], *ports[at + 1 : at + 2])]
            text = CONFIG.format(
                name=name,
                port=ports[at],
                peers=beside,
                protocol=protocol,
                nodes=list(nodes),
                settings=f"{subject.room}\n{subject.settings}",
            )
            (folder / f"{name}.toml").write_text(text)

    def start(self, who: str) -> None:
        """One of the nodes, or `application`."""
        command = [sys.executable, "-m", "carrycast.cli", "node", str(self._folder / f"{who}.toml")]
        if who == "application":
            socket_path = str(self._folder / "subscriber.sock")
            command = [sys.executable, "-c", APPLICATION, socket_path, str(self.lines)]
        errors = (self._folder / f"{who}.err").open("ab")
        with errors:
            self._processes[who] = subprocess.Popen(
                command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, stderr=errors
            )

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
                    time.sleep(self._pause_s)

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

    def broken_books(self) -> list[str]:
        """What does not add up at a node that runs: events accepted = events kept + events removed by name."""
        flaws = []
        for node in self._nodes:
            with connect(str(self._folder / f"{node}.sock"), 60) as client:
                found = (one.flaw(level) for level, one in client.status().retention.items())
                flaws += [f"{node}: {flaw}" for flaw in found if flaw is not None]
        return flaws

    def stop(self) -> None:
        """End everything."""
        self._stopping.set()
        for process in self._processes.values():
            process.kill()
            process.wait()


@contextmanager
def world(folder: Path, nodes: tuple[str, ...], protocol: str) -> Iterator[World]:
    """Running, with its publisher publishing."""
    made = World(folder, nodes, protocol)
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
    folder: Path, victims: list[str], times: int, seed: int, nodes: tuple[str, ...] = PAIR, protocol: str = "epidemic"
) -> World:
    """Kill each in turn so often, at random moments under load, and let the rest arrive."""
    moments = random.Random(seed)
    with world(folder, nodes, protocol) as made:
        _wait(lambda: bool(made.history()), 60)
        for _ in range(times):
            for victim in victims:
                time.sleep(moments.uniform(0.05, 1.0))
                made.kill(victim)
                made.start(victim)
                made.await_start(victim)
                _wait(partial(made.goes_on, len(made.stored)), 60)
        made.drain(120)
        made.flaws = made.broken_books()
    return made


def _wait(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "nothing moves any more"
        time.sleep(0.05)


def main(arguments: list[str] | None = None) -> int:
    """Kill, and print what came of it: one line for each victim."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description="Kill nodes under load.")
    parser.add_argument("--kills", type=int, default=100, help="of each victim (100)")
    parser.add_argument("--protocol", choices=SUBJECTS, default="epidemic", help="what the nodes run (epidemic)")
    parser.add_argument("--victim", choices=VICTIMS, action="append", help="kill only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (1)")
    chosen = parser.parse_args(arguments)
    bad = False
    for victim in chosen.victim or VICTIMS:
        if victim == "relay" and not SUBJECTS[chosen.protocol].relays:
            continue
        begun_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            nodes = LINE if victim == "relay" else PAIR
            made = kill_often(Path(folder), [victim], chosen.kills, chosen.seed, nodes, chosen.protocol)
            found: dict[str, object] = {
                "protocol": chosen.protocol,
                "victim": victim,
                "kills": chosen.kills,
                "stored": len(made.stored),
                "lost": len(made.lost()),
                "again_after_confirmed": len(made.repeated()),
                "again_unmarked": len(made.unmarked()),
                "broken_books": len(made.flaws),
                "seconds": round(time.monotonic() - begun_s),
            }
        print(json.dumps(found), flush=True)
        bad |= any((found["lost"], found["again_after_confirmed"], found["again_unmarked"], found["broken_books"]))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
