"""What each protocol delivers under failures: `python -m benchmarks.guarantees` writes docs/results-guarantees.md.

Three live nodes in a line on loopback, a publisher, a relay and a named subscriber; 40 events; one failure at a time.
A protocol that keeps events keeps them in its store. With `--protocol NAME` its row alone is printed.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from carrycast.core.model import NodeId
from carrycast.core.protocol import AcknowledgesReplicas, KeepsEvents
from carrycast.core.protocol.registry import find_protocol
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node import recorder
from carrycast.node.config import NodeConfig, load_config

PAGE = Path(__file__).parents[1] / "docs" / "results-guarantees.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
EVENTS = 40
LEASE_S = 1800.0
QUIET_S = 4.0
"""When nothing has come for so long, nothing more will: everything below is tried again at least every second."""
LOSS = 0.2
BACK_S, AHEAD_S = -3600.0, 600.0

CONFIG = """
name = "{name}"
roles = ["broker"]
[listen]
host = "127.0.0.1"
port = 0
[discovery]
period_s = 0.1
[directory]
broker = ["publisher", "relay", "subscriber"]
[protocol]
{protocol}
[store]
file = "{name}.db"
"""
CARRIER = "durable = true\nagain_s = 0.5"
SUBJECTS = {
    "epidemic": "durable = true\nask_again_s = 0.5\ntell_again_s = 1.0",
    "drift": "durable = true\ncontact_s = 0.1\nnews_s = 0.2\nhash_max_s = 1.0\nasks = 1000\nanswers = 1000",
    "spray_and_wait": CARRIER,
    "first_contact": CARRIER,
    "prophet": f"{CARRIER}\nexchange_s = 0.5",
    "direct": CARRIER,
    "semi_probabilistic": "durable = true\nretry_s = 1.0\nupdate_s = 0.2",
    "adaptive": "durable = true\nretry_s = 1.0\nupdate_min_s = 0.2\nsample_s = 0.2",
    "tree": "group_s = 0.2\nrefresh_s = 0.5\ndefer_s = 0.5",
    "tree/recovering": (
        'durable = true\ngroup_s = 0.2\nrefresh_s = 0.5\ndefer_s = 0.5\nvariant = "recovering"\nrecover_s = 0.5'
    ),
    "flooding": "",
    "gossip": "",
    "asp": "",
}
NAMES = ("publisher", "relay", "subscriber")
NO_RELAYS = {"direct"}


class Place:
    """The three nodes, or two where nobody carries for others, and what came."""

    def __init__(self, folder: Path, subject: str) -> None:
        self.inbox = Inbox()
        self._names = [name for name in NAMES if name != "relay" or subject not in NO_RELAYS]
        table = f'name = "{subject.partition("/")[0]}"\n{SUBJECTS[subject]}'
        configs: list[NodeConfig] = []
        for name in self._names:
            (folder / f"{name}.toml").write_text(CONFIG.format(name=name, protocol=table))
            configs.append(load_config(folder / f"{name}.toml"))
        self.ids: dict[str, NodeId] = {name: config.node for name, config in zip(self._names, configs, strict=True)}
        self.network = LoopbackNetwork(configs)

    @property
    def last_hop(self) -> tuple[NodeId, NodeId]:
        """The link over which the subscriber is reached."""
        return self.ids[self._names[-2]], self.ids["subscriber"]

    def subscribe(self) -> None:
        """By name, as at each start of the application."""
        self.network.nodes[self.ids["subscriber"]].subscribe("n >= 0", self.inbox, "log")

    async def link(self) -> None:
        """All in a line, and time to tell each other what they want."""
        self.network.line()
        await self.network.wait_until_discovered(30)
        await asyncio.sleep(2)

    async def restart(self, name: str, step_s: float = 0.0) -> None:
        """Killed, and back after a while, perhaps with another time of day."""
        await self.network.crash(self.ids[name])
        await asyncio.sleep(1)
        with mock.patch.object(recorder, "wall_s", side_effect=lambda: time.time() + step_s):
            await self.network.start(self.ids[name])

    async def publish(self, events: int = EVENTS) -> None:
        """Twenty events a second."""
        for n in range(events):
            self.network.nodes[self.ids["publisher"]].publish({"n": n}, bytes(100), LEASE_S)
            await asyncio.sleep(0.05)

    async def settled(self, events: int = EVENTS) -> None:
        """All is there, or nothing more comes."""
        came = -1
        while came < len(self.inbox.events) < events:
            came = len(self.inbox.events)
            with suppress(WorkError):
                await until(lambda came=came: len(self.inbox.events) > came, QUIET_S)  # type: ignore[misc]


async def lossy(place: Place) -> None:
    """A share of all datagrams is lost."""
    await place.link()
    for transport in place.network.adapters.values():
        transport.loss = LOSS
    await place.publish()


async def partition(place: Place) -> None:
    """The subscriber is out of reach while the events are published."""
    await place.link()
    place.network.cut(*place.last_hop)
    await place.network.wait_until_discovered(30)
    await place.publish()
    await place.link()


async def relay_restarts(place: Place) -> None:
    """Besides, the relay is killed before the subscriber is back."""
    await place.link()
    place.network.cut(*place.last_hop)
    await place.network.wait_until_discovered(30)
    await place.publish()
    await asyncio.sleep(1)
    place.network.cut(place.ids["publisher"], place.ids["relay"])
    await place.restart("relay")
    place.network.link(*place.last_hop)


async def publisher_restarts(place: Place, step_s: float = 0.0) -> None:
    """The publisher is killed before it meets anybody."""
    await place.publish()
    await place.restart("publisher", step_s)
    await place.link()


async def subscriber_restarts(place: Place) -> None:
    """The subscriber is killed in the midst of it."""
    await place.link()
    publishing = asyncio.create_task(place.publish())
    await asyncio.sleep(1)
    await place.restart("subscriber")
    place.subscribe()
    await publishing


FAILURES: dict[str, Callable[[Place], Awaitable[None]]] = {
    "a fifth of the datagrams lost": lossy,
    "partition": partition,
    "partition, relay killed": relay_restarts,
    "publisher killed": publisher_restarts,
    "subscriber killed": subscriber_restarts,
    "clock an hour back at a restart": lambda place: publisher_restarts(place, BACK_S),
    "ten minutes ahead": lambda place: publisher_restarts(place, AHEAD_S),
}


class Outcome(NamedTuple):
    """Of the events, how many came, and how often one came again."""

    came: int
    again: int

    def __str__(self) -> str:
        again = f", {self.again} twice" if self.again else ""
        return f"{self.came / EVENTS:.0%}{again}".replace("%", " %")


async def outcome(subject: str, failure: str) -> Outcome:
    """What comes of one failure."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), subject)
        async with place.network:
            place.subscribe()
            await FAILURES[failure](place)
            await place.settled()
        events = place.inbox.events
        return Outcome(len(set(events)), len(events) - len(set(events)))


async def row(subject: str) -> list[str]:
    """The row of a protocol; what changes clocks goes alone."""
    kind = find_protocol(subject.partition("/")[0])
    failures = [name for name in FAILURES if "relay" not in name or subject not in NO_RELAYS]
    clocks = [name for name in failures if "clock" in name or "ahead" in name]
    together = [name for name in failures if name not in clocks]
    found = dict(zip(together, await asyncio.gather(*(outcome(subject, name) for name in together)), strict=True))
    for name in clocks:
        found[name] = await outcome(subject, name)
    levels = ["accepted"]
    levels += ["stored"] if issubclass(kind, KeepsEvents) and "durable" in SUBJECTS[subject] else []
    levels += ["held"] if issubclass(kind, AcknowledgesReplicas) else []
    return [f"`{subject}`", ", ".join(levels), *(str(found[name]) if name in found else "-" for name in FAILURES)]


def written(cells: list[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Measure all and write the page, or print one row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantees", description=__doc__)
    parser.add_argument("--protocol", choices=SUBJECTS, help="print the row of this one, and write nothing")
    chosen = parser.parse_args(arguments)
    if chosen.protocol:
        print(written(asyncio.run(row(chosen.protocol))))
        return 0
    lines = [written(["protocol", "levels", *FAILURES]), written(["---"] * (2 + len(FAILURES)))]
    for subject in SUBJECTS:
        lines.append(written(asyncio.run(row(subject))))
        print(lines[-1], flush=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
