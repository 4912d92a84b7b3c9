"""Frames that are sent at the same time travel in one datagram, and are received unchanged."""

import asyncio
import socket

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import NodeId
from carrycast.lab.loopback.network import until
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.channel import PlainChannel
from carrycast.node.link.coalescing import (
    MAX_COALESCED_BYTES,
    RECORD_BYTES,
    CoalescerCallbacks,
    DatagramCoalescer,
    coalesce,
    split_coalesced,
)
from carrycast.node.link.frame import (
    LINK_HEADER_BYTES,
    MAX_WAITED_MS,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    add_waiting_time,
    pack,
    read_acknowledged_sequences,
    unpack,
)
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker

HERE = ("127.0.0.1", 1)
THERE = ("127.0.0.1", 2)

DATA = st.builds(
    LinkFrame,
    st.sampled_from([LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA]),
    st.just(7),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=1, max_size=100),
    st.integers(0, MAX_WAITED_MS),
)


def frame(sequence: int, body: bytes = b"x", kind: LinkKind = LinkKind.DATA) -> LinkFrame:
    return LinkFrame(kind, 7, 1, sequence, body)


def whole(datagram: bytes) -> list[LinkFrame]:
    found = unpack(datagram)
    assert isinstance(found, LinkFrame)
    frames = split_coalesced(found) if found.kind is LinkKind.COALESCED else [found]
    assert frames is not None
    return frames


@given(st.lists(DATA, min_size=1, max_size=8))
def test_what_goes_together_is_taken_apart_as_it_was(frames: list[LinkFrame]) -> None:
    assert whole(coalesce(frames, 7, 0)) == frames


def test_all_of_it_grows_older_together() -> None:
    frames = [frame(1)._replace(waited_ms=5), frame(2)]
    assert [one.waited_ms for one in whole(add_waiting_time(coalesce(frames, 7, 10), 0.1))] == [115, 110]
    assert whole(coalesce([frame(1)._replace(waited_ms=5)], 7, 10))[0].waited_ms == 15
    frames = [frame(1)._replace(waited_ms=MAX_WAITED_MS), frame(2)]
    assert [one.waited_ms for one in whole(coalesce(frames, 7, 10))] == [MAX_WAITED_MS, 10]


@given(st.binary(max_size=100))
def test_any_body_is_frames_or_none(body: bytes) -> None:
    frames = split_coalesced(LinkFrame(LinkKind.COALESCED, 7, 0, 0, body))
    assert frames is None or all(one.sender == 7 for one in frames)


@pytest.mark.parametrize("kind", [LinkKind.CHALLENGE, LinkKind.PROBE, LinkKind.COALESCED, LinkKind.SEALED])
def test_only_data_and_acknowledgements_go_together(kind: LinkKind) -> None:
    good = unpack(coalesce([frame(1), frame(2)], 7, 0))
    assert isinstance(good, LinkFrame)
    assert split_coalesced(good._replace(body=bytes([kind]) + good.body[1:])) is None
    assert split_coalesced(good._replace(body=good.body[:-1])) is None
    assert split_coalesced(good._replace(body=good.body + b"x")) is None


class Air(PlainChannel):
    """Remembers what was sent."""

    def __init__(self) -> None:
        super().__init__(UdpAdapter("127.0.0.1", 0))
        self.send = self.remember  # type: ignore[method-assign]
        self.sent: list[tuple[LinkAddress, list[LinkFrame]]] = []
        self.sizes: list[int] = []
        self.full = False

    def remember(self, datagram: bytes, address: LinkAddress) -> bool:
        self.sent.append((address, whole(datagram)))
        self.sizes.append(len(datagram))
        return not self.full


class User:
    """Keeps at once, or when it is told to."""

    def __init__(self) -> None:
        self.drops: list[tuple[str, NodeId | None]] = []
        self.keeps = True
        self.unkept: list[object] = []

    def when_durable(self, then: object) -> None:
        assert callable(then)
        if self.keeps:
            then()
        else:
            self.unkept.append(then)

    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        self.drops += [(reason, peer)] * times


def coalescer(air: Air, user: User) -> DatagramCoalescer:
    return DatagramCoalescer(7, air, CoalescerCallbacks(user.when_durable, user.on_drop))


def test_frames_and_acknowledgements_of_one_turn_leave_together(run: Run) -> None:
    async def story() -> None:
        air, user = Air(), User()
        sender = coalescer(air, user)
        sender.send(HERE, frame(1), 3)
        sender.send(THERE, frame(2), None)
        sender.acknowledge(HERE, frame(8))
        sender.acknowledge(HERE, frame(9))
        sender.send(HERE, frame(3), 3)
        assert not air.sent
        await asyncio.sleep(0)
        assert [address for address, _ in air.sent] == [HERE, THERE]
        here = air.sent[0][1]
        assert [one.kind for one in here] == [LinkKind.DATA, LinkKind.DATA, LinkKind.ACKNOWLEDGEMENT]
        assert (here[0].sequence, here[1].sequence, read_acknowledged_sequences(here[2])) == (1, 3, [8, 9])
        assert len(air.sent[1][1]) == 1

    run(story())


def test_what_fits_no_packet_leaves_in_several(run: Run) -> None:
    async def story() -> None:
        air = Air()
        sender = coalescer(air, User())
        for number, size in enumerate((500, 500, 500, 5000, 10)):
            sender.send(HERE, frame(number, bytes(size)), None)
        await asyncio.sleep(0)
        assert [[one.sequence for one in frames] for _, frames in air.sent] == [[0, 1], [2], [3], [4]]
        assert air.sizes[0] <= MAX_COALESCED_BYTES + LINK_HEADER_BYTES
        assert air.sizes[0] == LINK_HEADER_BYTES + 2 * (RECORD_BYTES + 500)

    run(story())


def test_acknowledgements_wait_until_what_follows_is_kept(run: Run) -> None:
    async def story() -> None:
        air, user = Air(), User()
        sender = coalescer(air, user)
        user.keeps = False
        sender.acknowledge(HERE, frame(8))
        await asyncio.sleep(0)
        assert not air.sent
        [then] = user.unkept
        assert callable(then)
        then()
        await asyncio.sleep(0)
        assert [read_acknowledged_sequences(one) for one in air.sent[0][1]] == [[8]]

    run(story())


def test_each_frame_that_cannot_leave_is_dropped_by_name(run: Run) -> None:
    async def story() -> None:
        air, user = Air(), User()
        air.full = True
        sender = coalescer(air, user)
        sender.send(HERE, frame(1), 3)
        sender.send(HERE, frame(2), None)
        await asyncio.sleep(0)
        assert user.drops == [("queue_full", 3), ("queue_full", None)]

    run(story())


def test_what_was_said_before_the_end_leaves(run: Run) -> None:
    async def story() -> None:
        air = Air()
        sender = coalescer(air, User())
        sender.send(HERE, frame(1), None)
        sender.close()
        assert len(air.sent) == 1
        sender.send(HERE, frame(2), None)
        await asyncio.sleep(0)
        assert len(air.sent) == 1

    run(story())


def test_a_compound_that_is_none_is_dropped_by_name(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1, Talker)) as node:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(pack(LinkFrame(LinkKind.COALESCED, 9, 1, 1, b"no frames")), udp_address(node))
                await until(lambda: node.drops[LinkFlaw.BODY] == 1)

    run(story())


def test_a_compound_longer_than_any_that_a_node_sends_is_none(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    """Thousands of frames in one datagram would take a node's time before a neighbor's quota, or a timer, has a say."""
    most = [frame(n, kind=LinkKind.ACKNOWLEDGEMENT, body=b"") for n in range(MAX_COALESCED_BYTES // RECORD_BYTES)]
    assert whole(coalesce(most, 7, 0)) == most

    async def story() -> None:
        async with LiveNode(config(1)) as node:
            many = [frame(n, kind=LinkKind.ACKNOWLEDGEMENT, body=b"") for n in range(3400)]
            stranger.sendto(coalesce(many, 7, 0), udp_address(node))
            await until(lambda: bool(node.drops))
            assert node.drops == {"link_body": 1}

    run(story())
