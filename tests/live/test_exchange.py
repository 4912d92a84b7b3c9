"""Reliable unicast: one outcome per token, and no duplicates."""

import asyncio
from collections.abc import Callable

import pytest

from carrycast.core.model import Event, Failure, NodeId, Scalar
from carrycast.lab.loopback.network import until
from carrycast.node.config import NodeConfig
from carrycast.node.link.adapter import LinkAddress, ReceiveDatagram, ReportDrop
from carrycast.node.link.coalescing import coalesce, split_coalesced
from carrycast.node.link.config import UDP, LinkSettings
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker, Word

Fate = Callable[[LinkFrame], bool]


class Fated(UdpAdapter):
    """Sends only those frames that a test lets through."""

    def __init__(self, fate: Fate) -> None:
        super().__init__("127.0.0.1", 0)
        self.fate = fate
        self.sent: list[LinkFrame] = []

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        frame = unpack(datagram)
        assert isinstance(frame, LinkFrame)
        frames = split_coalesced(frame) if frame.kind is LinkKind.COALESCED else [frame]
        assert frames
        self.sent += frames
        left = [one for one in frames if self.fate(one)]
        return super().send(coalesce(left, frame.sender, 0), address) if left else True


class Teller(Talker):
    """Sends what a published event says: to whom, what, with which token."""

    name = "talker"

    def on_publish(self, now: float, event: Event) -> None:
        self.tell(event.attributes)

    def tell(self, attributes: dict[str, Scalar]) -> None:
        for token in range(int(attributes["first"]), int(attributes["last"]) + 1):
            target, text = int(attributes["target"]), str(attributes["text"]) + str(token)
            self.port.send(target, Word(text * int(attributes.get("times", 1))), token=token)


class Pair:
    """Two nodes that hear each other; the first one's frames, and the second one's, meet their fate."""

    def __init__(self, first: NodeConfig, second: NodeConfig, fate: Fate, fate_back: Fate = lambda frame: True) -> None:
        self.adapters = (Fated(fate), Fated(fate_back))
        self.nodes = (LiveNode(first, {UDP: self.adapters[0]}), LiveNode(second, {UDP: self.adapters[1]}))

    async def __aenter__(self) -> "Pair":
        for node in self.nodes:
            await node.start()
        self.nodes[0].add_peer(self.nodes[1].address)
        await until(lambda: all(len(node.neighbors) == 1 for node in self.nodes))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.stop()

    def say(self, first: int, last: int, text: str = "word", target: NodeId = 2, times: int = 1) -> None:
        told: dict[str, Scalar] = {"target": target, "text": text, "first": first, "last": last, "times": times}
        self.nodes[0].publish(told)


def data(frame: LinkFrame) -> bool:
    return frame.kind is LinkKind.ACKNOWLEDGED_DATA


def test_what_is_acknowledged_at_once_is_sent_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config(1, Teller), config(2, Teller), lambda frame: True) as pair:
            pair.say(1, 3)
            await until(lambda: len(Talker.all[1].outcomes) == 3)
            assert Talker.all[1].outcomes == [(1, None), (2, None), (3, None)]
            assert Talker.all[2].heard == ["word1", "word2", "word3"]
            assert sum(map(data, pair.adapters[0].sent)) == 3

    run(story())


def test_a_lost_frame_is_sent_again_and_a_lost_acknowledgement_repeats_nothing(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        lost: list[LinkFrame] = []

        def first_is_lost(frame: LinkFrame) -> bool:
            if frame.kind is not LinkKind.ACKNOWLEDGED_DATA or len(lost) >= 1:
                return True
            lost.append(frame)
            return False

        lost_back: list[LinkFrame] = []

        def first_answer_is_lost(frame: LinkFrame) -> bool:
            if frame.kind is not LinkKind.ACKNOWLEDGEMENT or len(lost_back) >= 1:
                return True
            lost_back.append(frame)
            return False

        async with Pair(config(1, Teller), config(2, Teller), first_is_lost, first_answer_is_lost) as pair:
            pair.say(1, 1)
            await until(lambda: len(Talker.all[1].outcomes) == 1)
            assert Talker.all[1].outcomes == [(1, None)]
            assert Talker.all[2].heard == ["word1"]
            assert sum(map(data, pair.adapters[0].sent)) == 3
            assert pair.nodes[1].drops["link_repeated"] == 1
            rows = pair.nodes[0].trace.table().to_pylist()
            assert [row["kind"] for row in rows if row["message"] == "Word"] == ["send", "retry", "retry"]

    run(story())


def test_a_frame_never_acknowledged_fails_once_after_its_retries(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        link = LinkSettings(ack_timeout_s=0.01, retries=2)
        pair = Pair(config(1, Teller, link=link), config(2, Teller), lambda frame: not data(frame))
        async with pair:
            pair.say(1, 1)
            await until(lambda: len(Talker.all[1].outcomes) == 1)
            assert Talker.all[1].outcomes == [(1, "unreachable")]
            assert sum(map(data, pair.adapters[0].sent)) == 3
            assert pair.nodes[0].drops["unacknowledged"] == 1

    run(story())


def test_a_full_queue_refuses_by_name_and_every_token_is_answered_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        link = LinkSettings(ack_timeout_s=0.01, retries=1, queue=10, window=4)
        async with Pair(config(1, Teller, link=link), config(2, Teller), lambda frame: True) as pair:
            pair.say(1, 25)
            await until(lambda: len(Talker.all[1].outcomes) == 25)
            outcomes = dict(Talker.all[1].outcomes)
            assert [token for token, failure in outcomes.items() if failure is None] == list(range(1, 11))
            assert [token for token, failure in outcomes.items() if failure] == list(range(11, 26))
            assert set(outcomes.values()) == {None, Failure.QUEUE_FULL}
            assert pair.nodes[0].drops["queue_full"] == 15
            assert len(Talker.all[2].heard) == 10

    run(story())


def test_a_neighbor_has_no_more_than_a_window_of_frames_on_the_air(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        passing: list[bool] = []
        link = LinkSettings(ack_timeout_s=0.1, retries=1, window=4)
        pair = Pair(config(1, Teller, link=link), config(2, Teller), lambda frame: bool(passing) or not data(frame))
        async with pair:
            pair.say(1, 9)
            await asyncio.sleep(0)
            assert sum(map(data, pair.adapters[0].sent)) == 4
            passing.append(True)
            await until(lambda: len(Talker.all[1].outcomes) == 9)
            assert {failure for _, failure in Talker.all[1].outcomes} == {None}
            assert sum(map(data, pair.adapters[0].sent)) == 4 + 9

    run(story())


def test_with_one_frame_all_that_waits_for_the_neighbor_is_given_up_and_room_is_made(
    config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        link = LinkSettings(ack_timeout_s=0.05, retries=0, window=4, queue=9)
        async with Pair(config(1, Teller, link=link), config(2, Teller), lambda frame: not data(frame)) as pair:
            pair.say(1, 9)
            await until(lambda: len(Talker.all[1].outcomes) == 9)
            assert sum(map(data, pair.adapters[0].sent)) == 4
            assert Talker.all[1].outcomes == [(token, "unreachable") for token in range(1, 10)]
            pair.adapters[0].fate = lambda frame: True
            await until(lambda: pair.nodes[0].neighbors == [2])
            pair.say(10, 18)
            await until(lambda: len(Talker.all[1].outcomes) == 18)
            assert Talker.all[1].outcomes[9:] == [(token, None) for token in range(10, 19)]

    run(story())


def test_thousands_of_frames_pass_while_one_is_sent_again_and_none_is_taken_for_an_old_one(
    config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        lost: list[int] = []

        def first_is_lost_twice(frame: LinkFrame) -> bool:
            first = data(frame) and (not lost or frame.sequence == lost[0])
            if first and len(lost) < 2:
                lost.append(frame.sequence)
                return False
            return True

        link = LinkSettings(ack_timeout_s=0.1, retries=2, queue=5000)
        async with Pair(config(1, Teller, link=link), config(2, Teller), first_is_lost_twice) as pair:
            pair.say(1, 3000)
            await until(lambda: len(Talker.all[1].outcomes) == 3000)
            assert len(lost) == 2
            assert {failure for _, failure in Talker.all[1].outcomes} == {None}
            assert sorted(Talker.all[2].heard) == sorted(f"word{n}" for n in range(1, 3001))
            assert "link_too_old" not in pair.nodes[1].drops

    run(story())


def test_a_message_longer_than_a_datagram_is_refused(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config(1, Teller), config(2, Teller), lambda frame: True) as pair:
            pair.say(1, 1, text="x" * 100, times=700)
            await until(lambda: len(Talker.all[1].outcomes) == 1)
            assert Talker.all[1].outcomes == [(1, "message_too_long")]
            assert pair.nodes[0].drops["message_too_long"] == 1

    run(story())


def test_a_node_never_heard_of_is_out_of_reach(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config(1, Teller), config(2, Teller), lambda frame: True) as pair:
            pair.say(5, 5, target=99)
            assert Talker.all[1].outcomes == []  # Never told from inside the handler that sends.
            await until(lambda: len(Talker.all[1].outcomes) == 1)
            assert Talker.all[1].outcomes == [(5, "unreachable")]
            assert pair.nodes[0].drops["out_of_reach"] == 1

    run(story())


def test_a_restarted_sender_is_heard_again_from_its_first_frame(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config(1, Teller), config(2, Teller), lambda frame: True) as pair:
            pair.say(1, 1)
            await until(lambda: Talker.all[2].heard == ["word1"])
            await pair.nodes[0].stop()
            again = LiveNode(config(1, Teller))
            async with again:
                again.add_peer(pair.nodes[1].address)
                await until(lambda: again.neighbors == [2])
                again.publish({"target": 2, "text": "again", "first": 2, "last": 2})
                await until(lambda: Talker.all[2].heard == ["word1", "again2"])

    run(story())


def test_nothing_is_told_after_a_stop(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        link = LinkSettings(ack_timeout_s=0.01, retries=0)
        async with Pair(config(1, Teller, link=link), config(2, Teller), lambda frame: not data(frame)) as pair:
            pair.say(1, 1)
            pair.say(2, 2, target=99)
        await asyncio.sleep(0.05)
        assert Talker.all[1].outcomes == []

    run(story())


class Open(Fated):
    """Lets a test bring a datagram from any address."""

    def open(self, receive: ReceiveDatagram, trouble: ReportDrop) -> None:
        super().open(receive, trouble)
        self.receive = receive


@pytest.mark.parametrize("ack_timeout_s", [0.2, 0.4])
def test_a_node_waits_for_the_answer_to_a_challenge_as_long_as_for_two_acknowledgements(
    config: MakeConfig, run: Run, ack_timeout_s: float
) -> None:
    """Timers of one loop fire in the order of their deadlines, however busy the machine is."""

    async def story() -> None:
        transport, loop = Open(lambda frame: True), asyncio.get_running_loop()
        async with LiveNode(config(1, link=LinkSettings(ack_timeout_s=ack_timeout_s)), {UDP: transport}) as node:
            dropped: list[int] = []

            def look() -> None:
                dropped.append(node.drops.get("link_unproven", 0))

            loop.call_later(1.5 * ack_timeout_s, look)
            transport.receive(pack(LinkFrame(LinkKind.DATA, 9, 1, 1, b"x")), ("127.0.0.1", 9), False, 0)
            loop.call_later(3 * ack_timeout_s, look)
            await until(lambda: len(dropped) == 2)
            assert dropped == [0, 1]

    run(story())
