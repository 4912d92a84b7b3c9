"""The places among a node's neighbors: strangers that are silent hold none of them, and those that come push out nobody
who speaks."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from carrycast.core.model import NodeId
from carrycast.core.protocol import Beacon, BeaconSettings
from carrycast.core.wire import Layer
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import until
from carrycast.node.config import NodeConfig
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.neighbor_eviction import NeighborEviction
from carrycast.node.link.rate_limit import QuotaSettings
from carrycast.node.link.udp import find_prefixes
from carrycast.node.node import LiveNode
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.insider import check_fifty_arrive, connect

MOST = QuotaSettings().neighbors
HERE, ELSEWHERE = "192.0.2.1", "198.51.100.1"


class Table(NeighborEviction):
    """As an interface has it: those who make room are gone."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.neighbors: set[NodeId] = set()

    def hear(self, neighbor: NodeId, now_s: float, period_s: float = 1.0, host: str = HERE) -> NodeId | None:
        """A beacon; who made room for it. Without a place, nothing is heard. This node's own period is a second, and
        it gives others up after three."""
        replaced = None
        if neighbor not in self.neighbors and len(self.neighbors) >= self.most:
            replaced = self.choose(find_prefixes(host)[0], now_s, 1.0, 3.0)
            if replaced is None:
                return None
            self.neighbors.remove(replaced)
            self.forget(replaced)
        self.neighbors.add(neighbor)
        self.on_beacon(neighbor, find_prefixes(host)[0], period_s, now_s)
        return replaced


def test_a_stranger_of_one_beacon_makes_room_when_it_was_silent_for_long_whatever_it_announced() -> None:
    for period_s, silent_s in ((0.1, 0.3), (1.0, 3.0), (60.0, 3.0), (3600.0, 3.0)):
        table = Table(2)
        table.hear(1, 0.0, period_s)
        table.hear(2, 0.01, period_s)
        assert table.hear(3, silent_s) is None
        assert table.hear(3, silent_s + 0.02) == 1, "it was silent longest"
        assert table.neighbors == {2, 3}


def test_who_speaks_again_when_it_was_to_or_has_answered_keeps_its_place() -> None:
    for period_s in (0.1, 1.0, 60.0, 600.0):
        table = Table(2)
        table.hear(1, 0.0, period_s)
        # As early as a period may be that varies by half.
        table.hear(1, period_s / 2, period_s)
        table.hear(2, 0.0, period_s)
        table.on_ack(2)
        assert table.hear(3, period_s * 100) is None, "that is for discovery to say"


def test_two_beacons_at_once_prove_nothing() -> None:
    table = Table(1)
    for now_s in (0.0, 0.001):
        table.hear(2, now_s, 60.0)
    assert table.hear(3, 3.1) == 2


def test_strangers_of_one_beacon_make_room_for_each_other_and_not_for_those_who_speak() -> None:
    """Whatever they announce, and however many they are."""
    for period_s in (0.01, 1.0, 60.0, 3600.0):
        table = Table(256)
        speaking = range(1, 101)
        for now_s in (0.0, 1.0):
            for neighbor in speaking:
                table.hear(neighbor, now_s)
        for number in range(2000):
            now_s = 1.0 + number / 100
            table.hear(1000 + number, now_s, period_s)
            if number % 100 == 99:
                for neighbor in speaking:
                    table.hear(neighbor, now_s)
            assert table.neighbors.issuperset(speaking)
        assert len(table.neighbors) == 256


def test_a_newcomer_gets_in_and_stays_however_many_strangers_come() -> None:
    """From another prefix at once; from the same as soon as one of the strangers was silent for long."""
    rng = Random(1)
    for host, each_s in ((ELSEWHERE, 500), (HERE, 100)):
        table, entered, next_s = Table(256), False, 3.0
        for number in range(20 * each_s):
            now_s = number / each_s
            table.hear(10_000 + number, now_s, 3600.0)
            if now_s >= next_s:
                next_s = now_s + 1.0 + 0.1 * rng.uniform(-1, 1)
                table.hear(1, now_s + rng.random() / each_s, 1.0, host)
                assert host == HERE or 1 in table.neighbors
                entered |= 1 in table.neighbors
            assert 1 in table.neighbors or not entered
        assert entered


def test_more_honest_nodes_than_places_settle_down() -> None:
    table = Table(20)
    settled: set[NodeId] = set()
    for beacon in range(20):
        for neighbor in range(30):
            table.hear(neighbor, beacon + neighbor / 100)
        assert not settled or table.neighbors == settled
        settled = set(table.neighbors)
    assert len(settled) == 20


def test_the_prefix_with_the_most_strangers_makes_room_first() -> None:
    table = Table(10)
    table.hear(1, 0.0, 60.0, ELSEWHERE)
    for number in range(9):
        table.hear(10 + number, 1.0, 60.0)
    # Each newcomer is of a prefix of its own.
    hosts = [f"203.0.{number}.1" for number in range(8)]
    assert [table.hear(100 + number, 10.0, 1.0, host) for number, host in enumerate(hosts)] == list(range(10, 18))
    assert 1 in table.neighbors


class Strangers:
    """Very many nodes at one socket, each of which is where it says and announces itself once."""

    def __init__(self, config: NodeConfig, target: LiveNode) -> None:
        self._target = udp_address(target)
        self._encode = config.plan.codecs[Layer.DISCOVERY].encode
        self._said = 0
        self._asked: NodeId = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._answer)

    def announce(self, node: NodeId, period_s: float) -> None:
        self._said += 1
        body = self._encode(Beacon(period_s))
        self._socket.sendto(pack(LinkFrame(LinkKind.DATA, node, 1, self._said, body)), self._target)

    def _answer(self) -> None:
        frame = unpack(self._socket.recv(65_536))
        if isinstance(frame, LinkFrame) and frame.kind is LinkKind.CHALLENGE:
            # To whom it was sent is not in it: one at a time.
            response = frame._replace(kind=LinkKind.RESPONSE, sender=self._asked)
            self._socket.sendto(pack(response), self._target)

    async def settle(self, node: LiveNode, strangers: Iterable[NodeId], period_s: float) -> None:
        """Until each has had a place: it announces itself until then, and never again."""
        for stranger in strangers:
            self._asked = stranger
            while stranger not in node.neighbors:
                self.announce(stranger, period_s)
                with suppress(WorkError):
                    await until(lambda stranger=stranger: stranger in node.neighbors, 0.2)  # type: ignore[misc]

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


@asynccontextmanager
async def flooded(made: NodeConfig, node: LiveNode) -> AsyncIterator[Strangers]:
    strangers = Strangers(made, node)
    try:
        yield strangers
    finally:
        strangers.close()


def test_a_node_full_of_silent_strangers_hears_a_newcomer_at_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        made = config(1, "epidemic")
        async with LiveNode(made) as first, flooded(made, first) as strangers:
            await strangers.settle(first, range(1000, 1000 + MOST), 3600.0)
            assert len(first.neighbors) == MOST
            async with LiveNode(config(2, "epidemic")) as second:
                inbox = await connect(first, second)
                await check_fifty_arrive(first, inbox)
            assert first.drops["neighbor_replaced"] > 0
            assert first.drops["beacon_period_too_long"] == MOST

    run(story())


def test_strangers_that_come_without_end_push_out_nobody_who_speaks(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        # So patient that a machine that is busy loses no neighbor by itself.
        patient = BeaconSettings(period_s=0.2, missed=10)
        # With a protocol that sends nothing to one neighbor, which would notice that strangers do not answer.
        made = config(1, "flooding", beacons=patient)
        few = replace(
            made, interfaces=tuple(replace(one, quotas=QuotaSettings(neighbors=4)) for one in made.interfaces)
        )
        async with LiveNode(few) as first, LiveNode(config(2, "flooding", beacons=patient)) as second:
            inbox = await connect(first, second)
            # The neighbor has spoken again.
            await until(lambda: first.status().counts["received"] >= 4, 20)
            async with flooded(made, first) as strangers:
                await strangers.settle(first, range(1000, 1008), 3600.0)
                assert first.drops["neighbors_full"] > 0
                assert first.drops["neighbor_replaced"] >= 5
                assert 2 not in replaced(first)
                await check_fifty_arrive(first, inbox)

    run(story())


def replaced(node: LiveNode) -> set[object]:
    return {row["peer"] for row in node.trace.table().to_pylist() if row["reason"] == "neighbor_replaced"}
