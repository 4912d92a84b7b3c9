"""Malformed datagrams do not stop a node; each is dropped for a reason that is counted and traced."""

import asyncio
import socket
from random import Random

from carrycast.core.model import Event, EventId
from carrycast.core.wire import Codec, Flaw, Layer
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.link.config import UDP
from carrycast.node.link.frame import MAX_DATAGRAM_BYTES, LinkFlaw, LinkFrame, LinkKind, pack
from carrycast.node.node import LiveNode
from carrycast.node.recorder import BAD_ROWS_PER_S
from carrycast.protocols.flooding.protocol import FloodedEvent
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run, meet

CODEC = Codec(Layer.DISSEMINATION, "flooding", (FloodedEvent,))


def flooded(sequence: int) -> bytes:
    """A valid datagram of a node that nobody knows."""
    event = Event(EventId(99, sequence), {"n": sequence, "road": "A1"}, payload=bytes(20))
    return pack(LinkFrame(LinkKind.DATA, 99, 1, sequence, CODEC.encode(FloodedEvent(event, 1, 60.0))))


def mutated(rng: Random, datagram: bytes) -> bytes:
    bits = bytearray(datagram)
    for _ in range(rng.randint(1, 6)):
        bits[rng.randrange(len(bits))] = rng.randrange(256)
    cut = rng.randrange(len(bits)) if rng.random() < 0.2 else len(bits)
    return bytes(bits[:cut]) + rng.randbytes(rng.choice([0, 0, 0, 5]))


async def received(node: LiveNode, count: int) -> None:
    """Wait until that many datagrams were either taken or dropped."""
    await until(lambda: node.status().counts.get("received", 0) + sum(node.drops.values()) >= count)


def test_random_and_mutated_datagrams_leave_a_node_running(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    async def story() -> None:
        rng = Random(1)
        async with LoopbackNetwork(config(id) for id in range(2)) as network:
            node = network.nodes[0]
            network.adapters[0, UDP].reach.add(stranger.getsockname())
            await asyncio.to_thread(meet, stranger, udp_address(node), 99)
            for number in range(1500):
                size = rng.choice([0, 1, 10, 40, 1400, MAX_DATAGRAM_BYTES])
                garbage = mutated(rng, flooded(number)) if number % 3 else rng.randbytes(size)
                stranger.sendto(garbage, udp_address(node))
                if number % 100 == 99:
                    await received(node, number - 50)
            network.line()
            await network.wait_until_discovered()
            inbox = Inbox()
            network.nodes[1].subscribe("n = 7 and road is null", inbox)
            event = node.publish({"n": 7})
            await until(lambda: inbox.events == [event])
            names = {*map(str, LinkFlaw), *map(str, Flaw), "link_repeated", "link_too_old"}
            assert set(node.drops) <= names | {
                "link_unexpected_acknowledgement",
                "link_unexpected_response",
                "link_unproven",
                "too_many_hops",
                "lease_over",
                "flood_over",
            }
            assert sum(node.drops.values()) > 1000
            assert {"link_truncated", "link_bad_magic", "frame_malformed", "frame_other_protocol"} <= set(node.drops)

    run(story())


def test_every_kind_of_bad_frame_has_its_reason_in_the_trace(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    async def story() -> None:
        good = flooded(1)
        other = Codec(Layer.DISSEMINATION, "gossip", (FloodedEvent,))
        event = FloodedEvent(Event(EventId(99, 2), {"n": 1}), 1, 60.0)
        wrapped = {
            "link_truncated": b"",
            "link_bad_magic": b"x" * 50,
            "link_version": good[:1] + b"\x63" + good[2:],
            "link_own": pack(LinkFrame(LinkKind.DATA, 1, 1, 1, b"x")),
            "link_unexpected_acknowledgement": pack(LinkFrame(LinkKind.ACKNOWLEDGEMENT, 99, 1, 1, b"")),
            "frame_truncated": pack(LinkFrame(LinkKind.DATA, 99, 1, 1, b"x")),
            "frame_bad_magic": pack(LinkFrame(LinkKind.DATA, 99, 1, 1, b"x" * 50)),
            "frame_layer": pack(LinkFrame(LinkKind.DATA, 99, 1, 1, b"\xdc\x01\x09" + b"x" * 50)),
            "frame_other_protocol": pack(LinkFrame(LinkKind.DATA, 99, 1, 1, other.encode(event))),
            "frame_malformed": good + b"x",
        }
        async with LiveNode(config(1)) as node:
            for reason, datagram in wrapped.items():
                if reason == "frame_truncated":
                    await asyncio.to_thread(meet, stranger, udp_address(node), 99)
                else:
                    stranger.sendto(datagram, udp_address(node))
                await until(lambda reason=reason: node.drops.get(reason) == 1)  # type: ignore[misc]  # bound now
            traced = [row["reason"] for row in node.trace.table().to_pylist() if row["kind"] == "drop"]
            assert traced == [reason for reason in wrapped if reason != "link_own"]

    run(story())


def test_what_is_not_understood_is_not_acknowledged(config: MakeConfig, run: Run, stranger: socket.socket) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            await asyncio.to_thread(meet, stranger, udp_address(node), 99)
            stranger.sendto(pack(LinkFrame(LinkKind.ACKNOWLEDGED_DATA, 99, 1, 1, b"x" * 50)), udp_address(node))
            event = Event(EventId(99, 1), {"n": 1})
            body = CODEC.encode(FloodedEvent(event, 1, 60.0))
            stranger.sendto(pack(LinkFrame(LinkKind.ACKNOWLEDGED_DATA, 99, 1, 2, body)), udp_address(node))
            answer = await asyncio.to_thread(stranger.recv, 1000)
            assert answer == pack(LinkFrame(LinkKind.ACKNOWLEDGEMENT, 1, 1, 2, b""))

    run(story())


def test_a_flood_of_garbage_does_not_fill_the_trace(config: MakeConfig, run: Run, stranger: socket.socket) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            for number in range(1000):
                stranger.sendto(b"garbage", udp_address(node))
                if number % 100 == 99:
                    await until(lambda: node.drops["link_truncated"] > number - 50)  # noqa: B023 - awaited in the loop
            rows = [row for row in node.trace.table().to_pylist() if row["kind"] == "drop"]
            assert len(rows) <= 3 * BAD_ROWS_PER_S < 1000 - 50

    run(story())
