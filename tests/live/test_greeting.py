"""Unknown nodes with valid addresses that start handshakes without end: the cost of each step for a running node."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from carrycast.lab.loopback.network import until
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.node import LiveNode
from carrycast.node.security import handshake_manager
from carrycast.node.security.handshake import OURS, LinkEnd, make_introduction, start_handshake
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.insider import check_fifty_arrive, connect
from tests.live.keyed import Operator

OPERATOR = Operator()
ME = LinkEnd(7, 1)
NETWORK = OPERATOR.verifier(1).membership.network
MANY = 500
FEW = 20
REFUSED = "link_credential_of_a_stranger"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that a slow machine does not give a host more meanwhile."""
    monkeypatch.setattr(handshake_manager, "BURST", float(FEW))
    monkeypatch.setattr(handshake_manager, "HANDSHAKES_PER_S", 1.0)


def asked(stranger: socket.socket, node: LiveNode, kind: LinkKind, number: int, body: bytes) -> LinkFrame:
    """Return the answers of a node."""
    stranger.sendto(pack(LinkFrame(kind, *ME, number, body)), udp_address(node))
    frame = unpack(stranger.recv(10_000), keyed=True)
    assert isinstance(frame, LinkFrame)
    return frame


def replies(stranger: socket.socket, node: LiveNode) -> Iterator[bytes]:
    """It lets the node begin, and answers with keys that mean nothing."""
    challenge = asked(stranger, node, LinkKind.HELLO, 0, NETWORK + bytes(8))
    begun = asked(stranger, node, LinkKind.KEYED_RESPONSE, challenge.sequence, (99).to_bytes(8, "big"))
    assert (begun.kind, begun.sequence) == (LinkKind.INITIATION, 99)
    rng = Random(1)
    while True:
        yield pack(LinkFrame(LinkKind.REPLY, *ME, 99, rng.randbytes(200)))


def finishes(stranger: socket.socket, node: LiveNode) -> Iterator[bytes]:
    """It begins as it should, and introduces itself with a certificate of its own making."""
    response = asked(stranger, node, LinkKind.KEYED_CHALLENGE, 5, bytes(8))
    cookie = int.from_bytes(response.body, "big")
    forged = Operator("another").verifier(ME.node).membership
    forged.network = NETWORK
    state = start_handshake(forged, True, OURS, ME, node.node, cookie)
    reply = asked(stranger, node, LinkKind.INITIATION, cookie, OURS.encode() + NETWORK + state.write_message(b""))
    assert reply.kind is LinkKind.REPLY
    state.read_message(reply.body[1:])
    sealed = state.write_message(make_introduction(forged, OURS, ME.session))
    while True:
        yield pack(LinkFrame(LinkKind.FINISH, *ME, cookie, sealed))


@pytest.mark.guarantee("cookies")
def test_no_answer_to_a_stranger_is_longer_than_what_it_answers(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    """However short: the address may be that of somebody else."""

    async def story() -> None:
        async with LiveNode(OPERATOR.keyed(config(2))) as node:
            for kind in LinkKind:
                for length in range(1, 60):
                    sent = pack(LinkFrame(kind, *ME, 0, (NETWORK * 8)[:length]))
                    stranger.sendto(sent, udp_address(node))
                    stranger.sendto(pack(LinkFrame(LinkKind.KEYED_CHALLENGE, *ME, 77, bytes(8))), udp_address(node))
                    answers = [await asyncio.to_thread(stranger.recv, 1000)]
                    while (answer := unpack(answers[-1], keyed=True)) and answer[3] != 77:
                        answers.append(await asyncio.to_thread(stranger.recv, 1000))
                    assert len(answers) <= 2
                    assert len(b"".join(answers[:-1])) <= len(sent), (kind, length)

    run(story())


@pytest.mark.parametrize("forged", [replies, finishes])
def test_every_step_of_a_handshake_is_on_the_account_of_its_host(
    forged: Callable[[socket.socket, LiveNode], Iterator[bytes]], config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        async with LiveNode(one) as first, LiveNode(two) as second:
            inbox = await connect(first, second)
            datagrams = forged(stranger, second)
            flood = [await asyncio.to_thread(next, datagrams) for _ in range(MANY)]
            for number, datagram in enumerate(flood):
                stranger.sendto(datagram, udp_address(second))
                if number % 20 == 19:
                    await asyncio.sleep(0.001)
            await until(lambda: second.drops[REFUSED] + second.drops["link_handshakes_full"] > MANY / 2, 10)
            assert 0 < second.drops[REFUSED] < 4 * FEW
            await check_fifty_arrive(first, inbox)

    run(story())


def test_a_host_with_many_ports_makes_no_node_begin_without_end(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(OPERATOR.keyed(config(2))) as node:
            sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(5 * FEW)]
            begun = 0
            try:
                for one in sockets:
                    one.bind(("127.0.0.1", 0))
                    one.settimeout(0.5)
                    answer = await asyncio.to_thread(asked, one, node, LinkKind.HELLO, 0, NETWORK + bytes(8))
                    one.sendto(
                        pack(LinkFrame(LinkKind.KEYED_RESPONSE, *ME, answer.sequence, bytes(8))), udp_address(node)
                    )
                await until(lambda: node.drops["link_handshakes_full"] > 0)
                for one in sockets:
                    one.setblocking(False)
                    with suppress(BlockingIOError):
                        begun += bool(one.recv(1000))
            finally:
                for one in sockets:
                    one.close()
            assert 0 < begun < len(sockets)

    run(story())
