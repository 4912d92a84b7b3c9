"""Floods of handshakes from many addresses: unknown hosts are limited by prefix, and members have their own limit."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from carrycast.lab.loopback.network import until
from carrycast.node.link.adapter import AddressScope
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.rate_limit import MAX_BUCKETS, HandshakeLimiter
from carrycast.node.link.udp import UdpAdapter, find_prefixes
from carrycast.node.node import LiveNode
from carrycast.node.security import handshake_manager
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.insider import check_fifty_arrive, connect
from tests.live.keyed import Operator

PER_S, BURST = 50.0, 100.0
MEMBER = "2001:db8:1:1::1"
OPERATOR = Operator()
NETWORK = OPERATOR.verifier(1).membership.network


def scope(host: str) -> AddressScope:
    return UdpAdapter.scope_of((host, 1))


def flood(budget: HandshakeLimiter, hosts: list[str], seconds: int, each_s: int = 1000) -> int:
    """Return how many handshakes a flood gets, evenly from all its hosts; members try in between."""
    afforded = 0
    for number in range(seconds * each_s):
        afforded += budget.take(scope(hosts[number % len(hosts)]), number / each_s, 1.0)
    return afforded


def test_addresses_of_one_prefix_share_one_budget() -> None:
    budget = HandshakeLimiter(PER_S, BURST)
    hosts = [f"2001:db8:2:2::{number:x}" for number in range(1, 201)]
    assert flood(budget, hosts, 10) <= BURST + 10 * PER_S
    # Who has never been here, elsewhere, is served in the midst of it; in the same prefix only a member is.
    assert budget.take(scope("2001:db8:3:3::1"), 10.0, 1.0)
    assert not budget.take(scope("2001:db8:2:2::ffff"), 10.0, 1.0)
    budget.add_member(scope("2001:db8:2:2::ffff"))
    assert budget.take(scope("2001:db8:2:2::ffff"), 10.0, 1.0)


@pytest.mark.parametrize(
    ("hosts", "most"),
    [
        ([f"192.0.2.{number}" for number in range(256)], 1),
        ([f"::ffff:192.0.2.{number}" for number in range(256)], 1),
        ([f"198.51.{number}.1" for number in range(256)], 2),
        ([f"2001:db8:2:{number:x}::1" for number in range(256)], 2),
        ([f"2001:db8:{number:x}::1" for number in range(3 * MAX_BUCKETS)], 4),
        ([f"{number}.{number}.0.1" for number in range(1, 224)], 4),
    ],
    ids=["an IPv4 /24", "mapped into IPv6", "an IPv4 /16", "an IPv6 /48", "the whole of IPv6", "the whole of IPv4"],
)
def test_no_flood_takes_the_share_of_members(hosts: list[str], most: int) -> None:
    budget = HandshakeLimiter(PER_S, BURST)
    budget.add_member(scope(MEMBER))
    afforded = 0
    for number in range(20_000):
        now_s = number / 2000
        afforded += budget.take(scope(hosts[number % len(hosts)]), now_s, 1.0)
        # All the while a member shakes hands, as often as a host may.
        if number % 40 == 0:
            assert budget.take(scope(MEMBER), now_s, 1.0)
    assert afforded <= 2 * BURST + 10 * most * PER_S


def test_a_member_has_no_more_than_its_share_and_an_insider_with_many_addresses_none_without_end() -> None:
    budget = HandshakeLimiter(PER_S, BURST)
    budget.add_member(scope(MEMBER))
    assert flood(budget, [MEMBER], 10) <= BURST + 10 * PER_S
    hosts = [f"2001:db8:9:9::{number:x}" for number in range(1, 3 * MAX_BUCKETS)]
    for host in hosts:
        budget.add_member(scope(host))
    # Those that were forgotten share the budget of their prefix.
    assert flood(budget, hosts, 10, 5000) <= 4 * BURST + 10 * 8 * PER_S + BURST + 10 * PER_S


def test_a_clock_that_stands_still_gives_nothing_and_an_hour_no_more_than_a_burst() -> None:
    budget = HandshakeLimiter(PER_S, BURST)
    assert sum(budget.take(scope("192.0.2.1"), 5.0, 1.0) for _ in range(1000)) == BURST
    assert sum(budget.take(scope("192.0.2.1"), 3605.0, 1.0) for _ in range(1000)) == BURST


def test_prefixes_are_of_the_family_of_an_address() -> None:
    assert find_prefixes("192.0.2.7") == find_prefixes("192.0.2.200") == find_prefixes("::ffff:192.0.2.9")
    assert find_prefixes("192.0.3.7") != find_prefixes("192.0.2.7")
    assert find_prefixes("192.0.3.7")[1] == find_prefixes("192.0.2.7")[1]
    assert find_prefixes("2001:db8::1") == find_prefixes("2001:db8::ffff:1")
    assert find_prefixes("2001:db8:0:1::1")[0] != find_prefixes("2001:db8::1")[0]
    assert find_prefixes("2001:db8:0:1::1")[1] == find_prefixes("2001:db8::1")[1]
    assert find_prefixes("::c000:207") != find_prefixes("192.0.2.7")
    assert find_prefixes("no address") == ("no address", "no address")


@pytest.fixture
def strangers() -> Iterator[list[socket.socket]]:
    """Sockets of 200 addresses beside that of the node."""
    with ExitStack() as opened:
        found = []
        for number in range(2, 202):
            one = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                one.bind((f"127.0.0.{number}", 0))
            except OSError:
                pytest.skip("this system has no more than one loopback address")
            one.setblocking(False)
            found.append(one)
        yield found


def say_all(strangers: list[socket.socket], node: LiveNode, round: int) -> int:
    """Each says hello under a new name and returns the cookie that it was last given; how many handshakes the node
    has begun with them since."""
    begun = 0
    for number, one in enumerate(strangers):
        name = 1000 + number
        while True:
            try:
                frame = unpack(one.recv(10_000), keyed=True)
            except BlockingIOError:
                break
            if isinstance(frame, LinkFrame) and frame.kind is LinkKind.KEYED_CHALLENGE:
                answer = LinkFrame(LinkKind.KEYED_RESPONSE, name, round, frame.sequence, bytes(8))
                one.sendto(pack(answer), udp_address(node))
            elif isinstance(frame, LinkFrame) and frame.kind is LinkKind.INITIATION:
                begun += 1
        one.sendto(pack(LinkFrame(LinkKind.HELLO, name, round, 0, NETWORK + bytes(8))), udp_address(node))
    return begun


def test_two_hundred_addresses_that_shake_hands_keep_no_member_out(
    config: MakeConfig, run: Run, strangers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So slow that nothing comes back in the course of a test.
    monkeypatch.setattr(handshake_manager, "HANDSHAKES_PER_S", 0.001)

    async def story() -> None:
        begun = 0
        async with LiveNode(OPERATOR.keyed(config(2, "epidemic"))) as node:
            async with LiveNode(OPERATOR.keyed(config(1, "epidemic"))) as before:
                await connect(before, node)
            # The member is away, and 200 others of its prefix take all that strangers get.
            round = 0
            while node.drops["link_handshakes_full"] < len(strangers):
                begun += say_all(strangers, node, round)
                round += 1
                assert begun <= 2 * handshake_manager.BURST
                await asyncio.sleep(0.02)
            assert begun > 0
            async with LiveNode(OPERATOR.keyed(config(1, "epidemic"))) as member:
                joining = asyncio.ensure_future(connect(member, node))
                while not joining.done():
                    begun += say_all(strangers, node, round)
                    round += 1
                    await asyncio.sleep(0.02)
                await check_fifty_arrive(member, joining.result())
            assert begun <= 2 * handshake_manager.BURST
            await until(lambda: node.drops["link_handshakes_full"] > len(strangers))

    run(story())


def test_two_hundred_addresses_that_shake_hands_keep_nobody_out_whom_the_node_wants_to_reach(
    config: MakeConfig, run: Run, strangers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at a host of the strangers' prefix where the node has never met a member."""
    monkeypatch.setattr(handshake_manager, "HANDSHAKES_PER_S", 0.001)

    async def story() -> None:
        made = [LiveNode(OPERATOR.keyed(config(number))) for number in (1, 2)]
        async with made[0] as member, made[1] as node:
            round = 0
            while node.drops["link_handshakes_full"] < len(strangers):
                say_all(strangers, node, round)
                round += 1
                await asyncio.sleep(0.02)
            node.add_peer(member.address)
            await until(lambda: node.neighbors == [member.node] and member.neighbors == [node.node])

    run(story())
