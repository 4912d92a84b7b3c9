"""The time that a message waits between two live nodes is subtracted from its remaining leases."""

import asyncio
import socket
import time
from random import Random
from typing import ClassVar

import pytest

from carrycast.core.model import Event, EventId, Failure, NodeId
from carrycast.core.protocol import Host, Interface, Port, Protocol, Settings, Token
from carrycast.core.wire import Codec, EventMessage, Layer, Message
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.coalescing import split_coalesced
from carrycast.node.link.config import UDP, LinkSettings
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run, meet


class Carried(EventMessage, frozen=True, tag=1):
    """An event over one hop."""


class Carrier(Protocol):
    """Sends what is published to node 2, or broadcasts it, and remembers what remains of what arrives."""

    name = "carrier"
    messages = (Carried,)
    all: ClassVar[dict[NodeId, "Carrier"]] = {}

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.heard: dict[object, float] = {}
        self.outcomes: list[tuple[Token, Failure | None]] = []
        Carrier.all[node] = self

    def on_publish(self, now: float, event: Event) -> None:
        message = Carried(event, 1, event.lease_s)
        if "token" in event.attributes:
            self.port.send(2, message, token=int(event.attributes["token"]))
        else:
            self.port.broadcast(message)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Carried)
        self.heard[message.event.attributes["name"]] = message.remaining_s

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.outcomes.append((token, failure))


class Stubborn(UdpAdapter):
    """A socket that takes nothing while it is told not to; and acknowledgements that come late."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)
        self.answers_after_s = 0.0
        self.loses = 0

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        frame = unpack(datagram)
        assert isinstance(frame, LinkFrame)
        frames = split_coalesced(frame) if frame.kind is LinkKind.COALESCED else [frame]
        kinds = {one.kind for one in frames or ()}
        if LinkKind.ACKNOWLEDGED_DATA in kinds and self.loses:
            self.loses -= 1
            return True
        if LinkKind.ACKNOWLEDGEMENT in kinds and self.answers_after_s:
            asyncio.get_running_loop().call_later(self.answers_after_s, super().send, datagram, address)
            return True
        return super().send(datagram, address)


class Blocked:
    """The socket of a transport, blocked."""

    def __init__(self, opened: socket.socket) -> None:
        self.opened = opened

    def sendto(self, datagram: bytes, address: SocketAddress) -> int:
        raise BlockingIOError

    def __getattr__(self, name: str) -> object:
        return getattr(self.opened, name)


class Pair:
    """Two nodes that hear each other."""

    def __init__(self, config: MakeConfig, link: LinkSettings) -> None:
        self.adapters = (Stubborn(), Stubborn())
        made = (config(1, Carrier, link=link), config(2, Carrier, link=link))
        self.nodes = tuple(LiveNode(one, {UDP: two}) for one, two in zip(made, self.adapters, strict=True))

    async def __aenter__(self) -> "Pair":
        for node in self.nodes:
            await node.start()
        self.nodes[0].add_peer(self.nodes[1].address)
        await until(lambda: all(len(node.neighbors) == 1 for node in self.nodes))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.stop()

    def say(self, name: str, lease_s: float, token: int | None = None) -> None:
        attributes: dict[str, str | int] = {"name": name} if token is None else {"name": name, "token": token}
        self.nodes[0].publish(attributes, lease_s=lease_s)

    @property
    def heard(self) -> dict[object, float]:
        return Carrier.all[2].heard


PATIENT = LinkSettings(ack_timeout_s=5.0, window=1)


def test_what_does_not_wait_says_what_it_said(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config, LinkSettings()) as pair:
            pair.say("sent", 60.0, token=1)
            pair.say("broadcast", 60.0)
            await until(lambda: len(pair.heard) == 2)
            # A machine that is busy with other tests may hold it up for a moment.
            assert all(59.0 < left_s <= 60.0 for left_s in pair.heard.values())

    run(story())


def test_waiting_behind_others_for_a_slow_receiver_counts(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config, PATIENT) as pair:
            pair.adapters[1].answers_after_s = 0.3
            pair.say("first", 60.0, token=1)
            pair.say("short", 0.2, token=2)
            pair.say("long", 60.0, token=3)
            await until(lambda: len(Carrier.all[1].outcomes) == 3)
            # The receiver had it, and knew that it was over.
            assert Carrier.all[1].outcomes == [(1, None), (2, None), (3, None)]
            assert list(pair.heard) == ["first", "long"]
            assert pair.heard["first"] > 59.5
            assert pair.heard["long"] <= 60.0 - 0.6
            assert pair.nodes[1].drops["lease_over"] == 1
            drops = [row for row in pair.nodes[1].trace.table().to_pylist() if row["kind"] == "drop"]
            assert [(row["peer"], row["message"]) for row in drops if row["reason"] == "lease_over"] == [(1, "Carried")]

    run(story())


def test_waiting_for_the_next_attempt_counts(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config, LinkSettings(ack_timeout_s=0.1, retries=3)) as pair:
            pair.adapters[0].loses = 2
            pair.say("long", 60.0, token=1)
            await until(lambda: len(Carrier.all[1].outcomes) == 1)
            assert pair.heard["long"] <= 60.0 - 0.3
            pair.adapters[0].loses = 2
            pair.say("short", 0.25, token=2)
            await until(lambda: len(Carrier.all[1].outcomes) == 2)
            assert list(pair.heard) == ["long"]
            assert pair.nodes[1].drops["lease_over"] == 1

    run(story())


def test_waiting_for_a_socket_that_cannot_take_more_counts(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with Pair(config, PATIENT) as pair:
            sockets = pair.adapters[0]._sockets
            opened = sockets[0]
            sockets[0] = Blocked(opened)  # type: ignore[call-overload]
            pair.say("short", 0.2)
            pair.say("long", 60.0)
            pair.say("sent", 60.0, token=1)
            # What it waits for, until it is taken to the socket and from there on, counts in whole milliseconds.
            await asyncio.sleep(0.302)
            sockets[0] = opened
            await until(lambda: len(pair.heard) == 2)
            assert max(pair.heard.values()) <= 60.0 - 0.3
            assert pair.nodes[1].drops["lease_over"] == 1

    run(story())


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux tells when a datagram arrived")
def test_waiting_in_the_buffer_of_a_node_that_does_not_read_counts(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    codec = Codec(Layer.DISSEMINATION, Carrier.name, Carrier.messages)

    def datagram(name: str, remaining_s: float, number: int) -> bytes:
        body = codec.encode(Carried(Event(EventId(9, number), {"name": name}), 1, remaining_s))
        return pack(LinkFrame(LinkKind.DATA, 9, 1, number, body))

    async def story() -> None:
        async with LiveNode(config(2, Carrier)) as node:
            await asyncio.to_thread(meet, stranger, udp_address(node), 9)
            await until(lambda: node.drops["frame_truncated"] == 1)
            stranger.sendto(datagram("short", 0.2, 1), udp_address(node))
            stranger.sendto(datagram("long", 60.0, 2), udp_address(node))
            # A handler that takes its time, a stopped process: nothing runs meanwhile.
            time.sleep(0.3)
            await until(lambda: "long" in Carrier.all[2].heard)
            assert list(Carrier.all[2].heard) == ["long"]
            assert Carrier.all[2].heard["long"] <= 60.0 - 0.299
            assert node.drops["lease_over"] == 1

    run(story())


def test_no_application_is_given_what_waited_too_long(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        first, second = Stubborn(), Stubborn()
        async with LiveNode(config(1), {UDP: first}) as node, LiveNode(config(2), {UDP: second}) as other:
            node.add_peer(other.address)
            await until(lambda: node.neighbors == [2])
            inbox = Inbox()
            other.subscribe("true", inbox)
            opened = first._sockets[0]
            first._sockets[0] = Blocked(opened)  # type: ignore[call-overload]
            node.publish({"n": 1}, lease_s=0.2)
            kept = node.publish({"n": 2}, lease_s=60.0)
            await asyncio.sleep(0.3)
            first._sockets[0] = opened
            await until(lambda: bool(inbox.events))
            assert inbox.events == [kept]

    run(story())
