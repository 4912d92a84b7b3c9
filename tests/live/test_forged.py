"""Forgeries against a running node: its work continues, and forging costs the attacker more than the node."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Beacon
from carrycast.core.wire import Codec, Layer, Message
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.link.frame import LINK_HEADER_BYTES, LinkFrame, LinkKind, pack, unpack
from carrycast.node.node import LiveNode
from carrycast.protocols.epidemic.messages import MAX_IDS, SummaryVector, Transfer
from carrycast.protocols.epidemic.protocol import Epidemic
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run

CODEC = Codec(Layer.DISSEMINATION, Epidemic.name, Epidemic.messages)
MORE_MB = 50


class Forger:
    """A socket that speaks as whoever it likes, and answers challenges, as somebody who is really there would."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self._sequence = 0
        self.heard: list[LinkFrame] = []
        self.answers_as: NodeId | None = None
        self._listening = True
        self._thread = Thread(target=self._listen)
        self._thread.start()

    def say(self, sender: NodeId, body: bytes) -> None:
        self._sequence += 1
        self._socket.sendto(pack(LinkFrame(LinkKind.DATA, sender, 1, self._sequence, body)), self._target)

    def tell(self, sender: NodeId, message: Message) -> None:
        self.say(sender, CODEC.encode(message))

    def _listen(self) -> None:
        while self._listening:
            try:
                frame = unpack(self._socket.recv(65_536))
            except TimeoutError:
                continue
            assert isinstance(frame, LinkFrame)
            self.heard.append(frame)
            if frame.kind is LinkKind.CHALLENGE and self.answers_as is not None:
                answer = frame._replace(kind=LinkKind.RESPONSE, sender=self.answers_as)
                self._socket.sendto(pack(answer), self._target)

    def close(self) -> None:
        self._listening = False
        self._thread.join()
        self._socket.close()

    def kinds(self) -> set[LinkKind]:
        return {frame.kind for frame in self.heard}


@contextmanager
def forger(node: LiveNode, answers_as: NodeId | None = None) -> Iterator[Forger]:
    made = Forger(udp_address(node))
    made.answers_as = answers_as
    try:
        yield made
    finally:
        made.close()


def beacon(node: LiveNode) -> bytes:
    return node.config.plan.codecs[Layer.DISCOVERY].encode(Beacon(1_000_000))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def fifty_arrive(publisher: LiveNode, inbox: Inbox) -> None:
    """Legitimate traffic: 50 of 50, with what was published in them."""
    ids = [publisher.publish({"honest": n}) for n in range(50)]
    await until(lambda: sorted(inbox.events) == sorted(ids), 20)


async def joined(first: LiveNode, second: LiveNode) -> Inbox:
    first.add_peer(second.address)
    second.add_peer(first.address)
    await until(lambda: first.neighbors == [2] and second.neighbors == [1])
    inbox = Inbox()
    second.subscribe("honest >= 0", inbox)
    return inbox


def test_forged_summaries_cost_no_memory(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic")) as first, LiveNode(config(2, "epidemic")) as second:
            inbox = await joined(first, second)
            before_mb = resident_mb()
            with forger(second, answers_as=666) as forged:
                for number in range(300):
                    ids = tuple(EventId(666, number * MAX_IDS + n) for n in range(MAX_IDS))
                    forged.tell(666, SummaryVector(ids))
                    await asyncio.sleep(0.001)
                await until(lambda: second.drops["offers_full"] > 100, 20)
                await fifty_arrive(first, inbox)
            assert resident_mb() - before_mb < MORE_MB

    run(story())


def test_beacons_in_a_neighbors_name_do_not_take_over_its_traffic(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic")) as first, LiveNode(config(2, "epidemic")) as second:
            inbox = await joined(first, second)
            with forger(first, answers_as=2) as forged:
                for _ in range(20):
                    forged.say(2, beacon(first))
                    await asyncio.sleep(0.01)
                await until(lambda: LinkKind.CHALLENGE in forged.kinds())
                await fifty_arrive(first, inbox)
                for_it = {LinkKind.ACKNOWLEDGED_DATA, LinkKind.COALESCED} & forged.kinds()
                assert not for_it, "it got what was meant for its victim"

    run(story())


def test_who_does_not_answer_gets_one_short_datagram_and_is_no_neighbor(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic")) as first, LiveNode(config(2, "epidemic")) as second:
            inbox = await joined(first, second)
            with forger(first) as forged:
                said = beacon(first)
                for name in range(1000, 1200):
                    forged.say(name, said)
                await until(lambda: first.drops["link_unproven"] == 200)
                assert first.neighbors == [2]
                assert len(forged.heard) <= 200
                assert forged.kinds() == {LinkKind.CHALLENGE}
                assert LINK_HEADER_BYTES + len(said) > LINK_HEADER_BYTES
                await fifty_arrive(first, inbox)

    run(story())


def test_a_forged_event_does_not_hide_one_to_come(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """Numbers that count up, as those of subscriptions do, could be guessed."""

    async def story() -> None:
        numbered = config(1, "epidemic", store=tmp_path / "store", durable=True)
        async with LiveNode(numbered) as first, LiveNode(config(2, "epidemic")) as second:
            inbox = await joined(first, second)
            last = first.publish({"seen": True}).sequence
            with forger(second, answers_as=666) as forged:
                for guess in (*range(last - 100, last + 200), *range(100)):
                    forged.tell(666, Transfer(Event(EventId(1, guess), {"forged": True}), 1, 60.0))
                    await asyncio.sleep(0.001)
                await until(lambda: second.status().counts.get("received", 0) > 350)
                await fifty_arrive(first, inbox)

    run(story())
