"""A live network for an hour: nodes that are killed, links that come and go, partitions, and peers that mean harm.

`python -m benchmarks.soak` runs it (`--seconds 60` for a minute of it), and prints one line: what became of every pair
of an event and a subscription, what the rules that no protocol may break say of the traces of all nodes, and how memory
grew. Its exit status is 1 if a rule was broken, something is not accounted for, or memory is not flat.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import random
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from carrycast.analysis.explain.delivery_report import KINDS, DeliveryReport, delivery_report
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import LoopbackNetwork
from carrycast.node.config import load_config
from carrycast.node.link.frame import LinkFlaw, LinkFrame, LinkKind, pack, unpack
from carrycast.node.recorder import LOG
from carrycast.sim.engine.observers.checkers import Checkers, ViolationError
from carrycast.trace import Kind
from carrycast.trace.files import find_traces, read_rows

CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = 0
[discovery]
period_s = 0.2
[protocol]
name = "{protocol}"
durable = true
buffer = 5000
{settings}
[store]
file = "{name}.db"
[trace]
directory = "traces"
level = "full"
flush_s = 5
"""
SETTINGS = {
    "epidemic": "ask_again_s = 1.0\ntell_again_s = 2.0",
    "drift": "contact_s = 0.2\nnews_s = 0.5\nhash_max_s = 2.0",
    "spray_and_wait": "again_s = 1.0",
    "prophet": "again_s = 1.0\nexchange_s = 1.0",
}
LEASE_S = 30.0
RATE = 10.0
"""Events a second, all publishers together."""
CHURN_S, KILL_S, PARTITION_S, HOSTILE_S = 0.5, 5.0, 20.0, 0.005
"""Between two changes of a link, two kills, two partitions, two hostile datagrams."""
SETTLE_S = 5.0
MOST_GROWTH_BYTES = 40 << 20
WARM = 0.4
"""Of the time, after which memory should have come to rest."""


def payload_of(number: int) -> bytes:
    """What an event of that number must carry, wherever it comes."""
    return hashlib.sha256(str(number).encode()).digest() * 4


class Soak:
    """One network, and all that happens to it."""

    def __init__(self, folder: Path, nodes: int, protocol: str, seed: int) -> None:
        self._rng = random.Random(seed)
        configs = []
        for k in range(nodes):
            text = CONFIG.format(name=f"n{k}", protocol=protocol, settings=SETTINGS[protocol])
            (folder / f"n{k}.toml").write_text(text)
            configs.append(load_config(folder / f"n{k}.toml"))
        self.ids = [config.node for config in configs]
        self.network = LoopbackNetwork(configs)
        self.altered = 0
        self.late_s = 0.0
        """How long the loop was held up at the most: so late may anything have happened."""
        self.published = self.kills = self.hostile = 0
        self.memory: list[tuple[float, int]] = []
        self._away: set[NodeId] = set()
        self.flaws: list[str] = []
        """What did not add up in the books of a node, in the end."""

    def _read(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        number = event.attributes["n"]
        self.altered += not isinstance(number, int) or event.payload != payload_of(number)

    def subscribe(self, id: NodeId) -> None:
        """Every other node wants everything, the others what is theirs."""
        k = self.ids.index(id)
        self.network.nodes[id].subscribe("n >= 0" if k % 2 else f"k = {k}", self._read, "log")

    async def publish(self) -> None:
        """Some of the nodes that run publish."""
        while True:
            await asyncio.sleep(self._rng.expovariate(RATE))
            running = [id for id in self.ids if id in self.network.nodes]
            number, self.published = self.published, self.published + 1
            attributes = {"n": number, "k": self._rng.randrange(len(self.ids))}
            with suppress(WorkError):
                self.network.nodes[self._rng.choice(running)].publish(attributes, payload_of(number), LEASE_S)

    async def churn(self) -> None:
        """Links come and go."""
        pairs = list(combinations(self.ids, 2))
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / CHURN_S))
            pair = self._rng.choice(pairs)
            if len({id in self._away for id in pair}) == 1:
                (self.network.link if self._rng.random() < 0.5 else self.network.cut)(*pair)

    async def part(self) -> None:
        """Now and then half of the nodes are out of reach of the others."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / PARTITION_S))
            self._away = set(self._rng.sample(self.ids, len(self.ids) // 2))
            for a, b in combinations(self.ids, 2):
                if (a in self._away) != (b in self._away):
                    self.network.cut(a, b)
            await asyncio.sleep(PARTITION_S / 4)
            self._away = set()

    async def kill(self) -> None:
        """Nodes end as if their process had been killed, and are back soon."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / KILL_S))
            id = self._rng.choice(self.ids)
            await self.network.crash(id)
            self.kills += 1
            await asyncio.sleep(self._rng.uniform(0.0, 2.0))
            await self.network.start(id)
            self.subscribe(id)

    async def harm(self) -> None:
        """Peers that forge names, answer challenges, and send what nobody should understand."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.setblocking(False)
            loop.add_reader(peer.fileno(), self._answer, peer)
            try:
                while True:
                    await asyncio.sleep(HOSTILE_S)
                    target = self.network.nodes.get(self._rng.choice(self.ids))
                    if target is not None:
                        with suppress(OSError):
                            assert isinstance(target.address, tuple)
                            peer.sendto(self._forged(), target.address)
                            self.hostile += 1
            finally:
                loop.remove_reader(peer.fileno())

    def _answer(self, peer: socket.socket) -> None:
        """A member gone bad answers where it is."""
        with suppress(OSError):
            datagram, address = peer.recvfrom(65536)
            frame = unpack(datagram)
            if not isinstance(frame, LinkFlaw) and frame.kind is LinkKind.CHALLENGE:
                liar = self._rng.choice(self.ids)
                peer.sendto(pack(frame._replace(kind=LinkKind.RESPONSE, sender=liar)), address)

    def _forged(self) -> bytes:
        rng = self._rng
        kind = rng.choice([LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA, LinkKind.ACKNOWLEDGEMENT, LinkKind.RESPONSE])
        body = b"" if kind >= LinkKind.ACKNOWLEDGEMENT else bytes([0xD7, 1, rng.randrange(4)]) + rng.randbytes(40)
        real = pack(LinkFrame(kind, rng.choice(self.ids), rng.randrange(1 << 32), rng.randrange(1 << 40), body))
        spoiled = bytearray(real)
        if rng.random() < 0.5:
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        return bytes(spoiled) if rng.random() < 0.9 else rng.randbytes(rng.randrange(1, 1400))

    async def measure(self) -> None:
        """How much memory there is in use, now and then."""
        while True:
            self.memory.append((time.monotonic(), _resident_bytes()))
            for _ in range(20):
                begun_s = time.monotonic()
                await asyncio.sleep(0.05)
                self.late_s = max(self.late_s, time.monotonic() - begun_s - 0.05)

    async def run(self, seconds: float) -> None:
        """All of it at once; then it settles."""
        async with self.network:
            for id in self.ids:
                self.subscribe(id)
            self.network.line()
            tasks = [
                asyncio.create_task(one)
                for one in (self.publish(), self.churn(), self.part(), self.kill(), self.harm(), self.measure())
            ]
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            broken = [task.exception() for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if broken and broken[0] is not None:
                raise broken[0]
            for id in self.ids:
                if id not in self.network.nodes:
                    await self.network.start(id)
                    self.subscribe(id)
            for a, b in combinations(self.ids, 2):
                self.network.link(a, b)
            await asyncio.sleep(SETTLE_S)
            self.flaws = [
                f"{id}: {flaw}"
                for id, node in self.network.nodes.items()
                for level, one in node.status().retention.items()
                if (flaw := one.flaw(level)) is not None
            ]

    def growth_bytes(self) -> int:
        """How much more memory there was at the end than when it should have come to rest; middles of stretches."""
        begun_s, end_s = self.memory[0][0], self.memory[-1][0]
        warm_s = begun_s + WARM * (end_s - begun_s)
        half_s = (warm_s + end_s) / 2
        early = sorted(size for at_s, size in self.memory if warm_s <= at_s < half_s)
        late = sorted(size for at_s, size in self.memory if at_s >= half_s)
        return late[len(late) // 2] - early[len(early) // 2] if early and late else 0


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Findings(NamedTuple):
    """What the traces tell."""

    account: DeliveryReport
    violations: list[str]


def findings(folder: Path, ids: list[NodeId], late_s: float) -> Findings:
    """From the traces of all starts of all nodes."""
    import pyarrow.compute as pc

    wanted = pc.field("kind").isin([kind.value for kind in KINDS])
    traces = find_traces([folder / "traces"])
    rows = sorted((row for one in traces for row in read_rows(one, "trace", wanted)), key=lambda row: row["time_s"])
    events = sorted((row for one in traces for row in read_rows(one, "events")), key=lambda row: row["time_s"])
    subscriptions = [row for one in traces for row in read_rows(one, "subscriptions")]
    end_s = rows[-1]["time_s"]
    counted = delivery_report(rows, events, subscriptions, end_s)
    return Findings(counted, list(_violations(rows, events, subscriptions, ids, late_s)))


class _LateCheckers(Checkers):
    """Nodes of one process on a busy machine let go of what is over when it is their turn."""

    late_s = 0.0

    def expiry_s(self, published_s: float, lease_s: float) -> float:
        return super().expiry_s(published_s, lease_s) + self.late_s


def _violations(
    rows: list[dict[str, Any]],
    events: list[dict[str, Any]],
    subscriptions: list[dict[str, Any]],
    ids: list[NodeId],
    late_s: float,
) -> Iterator[str]:
    """What breaks a rule: the simulator's own checkers are told what all nodes did."""
    checkers = _LateCheckers(len(ids))
    checkers.late_s = late_s
    places = {id: place for place, id in enumerate(ids)}
    known: dict[str, Event] = {}
    for row in events:
        id = _id(row["event"])
        event = Event(EventId(places[id[0]], id[1]), json.loads(row["attributes"]), lease_s=row["lease_s"])
        known[row["event"]] = event
        checkers.on_event(row["time_s"], event)
    for row in subscriptions:
        id = _id(row["subscription"])
        checkers.on_subscribe(Subscription(SubscriptionId(places[id[0]], id[1]), row["filter"]))
    for row in rows:
        node, kind, event_of = places[row["node"]], row["kind"], known.get(row["event"])
        try:
            if kind == Kind.CRASH:
                checkers.on_crash(node)
            elif kind == Kind.STORE:
                checkers.on_store(row["time_s"], node, _known(event_of, row).id)
            elif kind == Kind.EVICT:
                checkers.on_evict(row["time_s"], node, _known(event_of, row).id)
            elif kind == Kind.DELIVER:
                id = _id(row["subscription"])
                to = SubscriptionId(places[id[0]], id[1])
                checkers.on_deliver(row["time_s"], node, to, _known(event_of, row))
        except ViolationError as error:
            yield str(error)


def _known(event: Event | None, row: dict[str, Any]) -> Event:
    if event is None:
        raise ViolationError(f"node {row['node']} has event {row['event']}, which nobody published")
    return event


def _id(text: str) -> tuple[int, int]:
    source, _, sequence = text.partition(":")
    return int(source), int(sequence)


def soak(folder: Path, seconds: float, nodes: int, protocol: str, seed: int) -> dict[str, object]:
    """Run one, and judge it."""
    # Nodes complain about forgeries all the time.
    LOG.setLevel(logging.ERROR)
    made = Soak(folder, nodes, protocol, seed)
    asyncio.run(made.run(seconds))
    found = findings(folder, made.ids, made.late_s)
    return {
        "protocol": protocol,
        "seconds": seconds,
        "nodes": nodes,
        "published": made.published,
        "kills": made.kills,
        "hostile_datagrams": made.hostile,
        "pairs": found.account.pairs,
        "delivered": found.account.delivered,
        "waiting": found.account.waiting,
        "dropped": found.account.dropped,
        "accounted": found.account.exact,
        "altered": made.altered,
        "held_up_s": round(made.late_s, 2),
        "broken_books": made.flaws,
        "violations": len(found.violations),
        "first_violation": found.violations[0] if found.violations else None,
        "memory_mb": round(made.memory[-1][1] / 2**20, 1),
        "growth_mb": round(made.growth_bytes() / 2**20, 1),
    }


def good(found: dict[str, object]) -> bool:
    """Whether nothing is wrong with what was found."""
    # What is imported and filled for the first time takes seconds.
    flat = float(str(found["seconds"])) < 60 or float(str(found["growth_mb"])) * 2**20 <= MOST_GROWTH_BYTES
    return bool(found["accounted"]) and not any((found["altered"], found["violations"], found["broken_books"])) and flat


def main(arguments: list[str] | None = None) -> int:
    """Soak, and say how it was."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="A live network under harm.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (3600)")
    parser.add_argument("--nodes", type=int, default=6, help="how many nodes (6)")
    parser.add_argument("--protocol", choices=SETTINGS, default="epidemic", help="what they run (epidemic)")
    parser.add_argument("--seed", type=int, default=1, help="of all that happens (1)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), chosen.seconds, chosen.nodes, chosen.protocol, chosen.seed)
    print(json.dumps(found))
    return 0 if good(found) else 1


if __name__ == "__main__":
    sys.exit(main())
