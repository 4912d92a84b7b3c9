"""Attacks on a running node with keys, from outside and by a member gone bad: honest events still arrive, 50 of 50,
memory stays, and nobody gets more than one answer to what it forged."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.protocol import Beacon, BeaconSettings
from carrycast.core.wire import Layer
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.frame import LinkFlaw, LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.rate_limit import QuotaSettings
from carrycast.node.node import LiveNode
from carrycast.node.security.handshake import OURS
from carrycast.node.security.handshake_manager import BURST
from carrycast.node.security.primitives import SigningKey
from carrycast.protocols.epidemic.messages import MAX_IDS, SummaryVector, Transfer
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.insider import MORE_MB, check_fifty_arrive, connect, insider, repeat_slowly, resident_mb
from tests.live.keyed import Operator, private_of, sign_event
from tests.live.test_hostile import mutated

OPERATOR = Operator()
BAD = 666


def test_events_of_a_bad_member_do_not_pass_as_others(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        bad = OPERATOR.keyed(config(BAD, "epidemic"), publish="cheap = true")
        async with LiveNode(one) as first, LiveNode(two) as second, insider(bad, second) as forged:
            inbox = await connect(first, second)
            mine = forged.verifier.signatures
            honest = OPERATOR.verifier(1)
            real = sign_event(honest.signatures, Event(EventId(1, 5), {"other": 1}))
            stranger = sign_event(Operator("another").verifier(1).signatures, Event(EventId(1, 6), {"honest": -6}))
            own = sign_event(mine, Event(EventId(BAD, 1), {"cheap": True}))
            dear = Event(EventId(BAD, 2), {"honest": 99})
            expired = OPERATOR.keys(1, issued_s=0.0, expires_s=1.0).certificate
            lies = {
                "event_unsigned": Event(EventId(1, 1), {"honest": -1}),
                # Its own signature under another's id, one moved to other content, and one to another id.
                "event_forged": msgspec.structs.replace(own, id=EventId(1, 2)),
                "event_of_a_stranger": stranger,
                "event_certificate_expired": Event(
                    EventId(1, 3), {"honest": -3}, expired + bytes(64) + len(expired).to_bytes(2, "big")
                ),
                "event_not_allowed": signed_anyway(forged.verifier.membership.credential, dear),
            }
            for reason, event in lies.items():
                forged.tell(Transfer(event, 1, 60.0))
                await until_dropped(second, reason)
            moved = msgspec.structs.replace(real, attributes={"honest": 1000})
            renamed = msgspec.structs.replace(real, id=EventId(1, 7))
            for count, event in enumerate((moved, renamed), start=2):
                forged.tell(Transfer(event, 1, 60.0))
                await until_dropped(second, "event_forged", count)
            await check_fifty_arrive(first, inbox)

    run(story())


def signed_anyway(credential: bytes, event: Event) -> Event:
    """By a member that does not ask what it may publish."""
    signature = SigningKey(private_of(BAD)).sign(b"event", msgspec.msgpack.encode(event))
    return msgspec.structs.replace(event, payload=credential + signature + len(credential).to_bytes(2, "big"))


def into(kept: list[bytes]) -> Callable[[bytes, LinkAddress], bool]:
    """Datagrams that do not go on the air, but here."""

    def keep(datagram: bytes, address: LinkAddress) -> bool:
        kept.append(datagram)
        return True

    return keep


async def until_dropped(node: LiveNode, reason: str, count: int = 1) -> None:
    deadline = time.monotonic() + 10
    while node.drops[reason] < count:
        assert time.monotonic() < deadline, (reason, dict(node.drops))
        await asyncio.sleep(0.005)


def test_a_bad_member_speaks_for_nobody_else_and_stops_no_link(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        bad = OPERATOR.keyed(config(BAD, "epidemic"))
        async with LiveNode(one) as first, LiveNode(two) as second, insider(bad, second) as forged:
            inbox = await connect(first, second)
            beacon = forged.codec(Layer.DISCOVERY).encode(Beacon(1_000_000, 77))
            for sequence in (1, 60_000, 2**62, 2**64 - 1):
                forged.say(beacon, sender=1, sequence=sequence)
                forged.say(beacon, sequence=sequence)
            await until_dropped(second, "link_sender", 4)
            await check_fifty_arrive(first, inbox)
            assert 1 in second.neighbors

    run(story())


def test_a_bad_members_summaries_and_garbage_cost_no_memory(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        bad = OPERATOR.keyed(config(BAD, "epidemic"))
        async with LiveNode(one) as first, LiveNode(two) as second, insider(bad, second) as forged:
            inbox = await connect(first, second)
            before_mb = resident_mb()

            def offer(number: int) -> None:
                ids = tuple(EventId(BAD, number * MAX_IDS + n) for n in range(MAX_IDS))
                forged.tell(SummaryVector(ids))

            await repeat_slowly(300, offer)
            await until_dropped(second, "offers_full", 50)
            await check_fifty_arrive(first, inbox)
            assert resident_mb() - before_mb < MORE_MB

    run(story())


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("member", [True, False], ids=["member", "stranger"])
def test_mutated_real_frames_leave_honest_traffic_as_it_is(
    count: int, member: bool, config: MakeConfig, run: Run
) -> None:
    """Of a member they are mutated before they are sealed; of a stranger, what was heard on the air is."""

    async def story() -> None:
        rng = Random(count)
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        bad = OPERATOR.keyed(config(BAD, "epidemic"))
        async with LiveNode(one) as first, LiveNode(two) as second, insider(bad, second) as forged:
            inbox = await connect(first, second)
            event = sign_event(forged.verifier.signatures, Event(EventId(BAD, 1), {"n": 1}, b"content"))
            messages = (Transfer(event, 1, 60.0), SummaryVector((EventId(BAD, 2), EventId(1, 3))))
            bodies = [forged.codec().encode(message) for message in messages]
            bodies.append(forged.codec(Layer.DISCOVERY).encode(Beacon(0.05, 3)))
            air: list[bytes] = []
            with pytest.MonkeyPatch.context() as quiet:
                quiet.setattr(forged.air, "send", into(air))
                for number, body in enumerate(bodies):
                    forged.transport.send(pack(LinkFrame(LinkKind.DATA, BAD, 1, 10**6 + number, body)), forged.target)
            before_mb, before = resident_mb(), Counter(second.drops)

            def attack(number: int) -> None:
                if member:
                    frame = LinkFrame(LinkKind.DATA, BAD, 1, 10**7 + number, rng.choice(bodies))
                    forged.transport.send(mutated(rng, pack(frame)), forged.target)
                else:
                    forged.air.send(mutated(rng, rng.choice(air)), forged.target)

            await repeat_slowly(count, attack)
            await check_fifty_arrive(first, inbox)
            assert resident_mb() - before_mb < MORE_MB
            dropped = Counter(second.drops) - before
            assert dropped.total() > count / 4
            assert "handler_raised" not in dropped
            if not member:
                assert not [reason for reason in dropped if reason.startswith(("frame_", "event_"))]

    run(story())


def test_what_was_sealed_once_is_heard_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        bad = OPERATOR.keyed(config(BAD, "epidemic"))
        async with LiveNode(one) as first, LiveNode(two) as second, insider(bad, second) as forged:
            inbox = await connect(first, second)
            kept: list[bytes] = []
            with pytest.MonkeyPatch.context() as tapped:
                tapped.setattr(forged.air, "send", into(kept))
                for _ in range(50):
                    forged.tell(Beacon(1_000_000, 0), Layer.DISCOVERY)
            before = second.drops["link_repeated"]
            for datagram in kept * 5:
                forged.air.send(datagram, forged.target)
            await until_dropped(second, "link_repeated", before + 200)
            await check_fifty_arrive(first, inbox)

    run(story())


def test_strangers_get_at_most_one_shorter_answer_and_cost_little(config: MakeConfig, run: Run) -> None:
    """Forged sealed datagrams, hellos, responses and handshakes, in anybody's name."""

    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        async with LiveNode(one) as first, LiveNode(two) as second:
            inbox = await connect(first, second)
            before_mb = resident_mb()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.1", 0))
                stranger.setblocking(False)
                said, answers, longer = 0, 0, 0
                for number in range(4000):
                    kind = LinkKind(8 + number % 8)
                    body = bytes(8 if kind in (LinkKind.KEYED_CHALLENGE, LinkKind.KEYED_RESPONSE) else 60)
                    sent = pack(LinkFrame(kind, number % 50, number, number, body))
                    stranger.sendto(sent, udp_address(second))
                    said += 1
                    if number % 20 == 19:
                        await asyncio.sleep(0.002)
                    try:
                        while answer := stranger.recv(65_536):
                            answers += 1
                            frame = unpack(answer, keyed=True)
                            assert not isinstance(frame, LinkFlaw)
                            longer += len(answer) > 35
                    except BlockingIOError:
                        pass
            assert 0 < answers <= said
            assert longer == 0
            assert second.neighbors == [1]
            await check_fifty_arrive(first, inbox)
            assert resident_mb() - before_mb < MORE_MB

    run(story())


def test_a_host_that_shakes_hands_without_end_is_held_back(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        one, two = (OPERATOR.keyed(config(id, "epidemic")) for id in (1, 2))
        async with LiveNode(one) as first, LiveNode(two) as second:
            inbox = await connect(first, second)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.1", 0))
                stranger.settimeout(5)
                # It is where it says, so it has the node's cookie.
                stranger.sendto(pack(LinkFrame(LinkKind.KEYED_CHALLENGE, 7, 1, 9, bytes(8))), udp_address(second))
                frame = unpack(await asyncio.to_thread(stranger.recv, 1000), keyed=True)
                assert isinstance(frame, LinkFrame)
                cookie = int.from_bytes(frame.body, "big")
                network = OPERATOR.verifier(1).membership.network
                for number in range(5 * int(BURST)):
                    body = OURS.encode() + network + Random(number).randbytes(32)
                    stranger.sendto(pack(LinkFrame(LinkKind.INITIATION, 7, 1, cookie, body)), udp_address(second))
                    if number % 20 == 19:
                        await asyncio.sleep(0.001)
                await until_dropped(second, "link_handshakes_full", 50)
            await check_fifty_arrive(first, inbox)

    run(story())


def over_quota(node: LiveNode) -> set[object]:
    return {row["peer"] for row in node.trace.table().to_pylist() if row["reason"] == "neighbor_over_quota"}


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "open"])
def test_who_takes_more_than_its_share_is_not_read_for_a_while(keyed: bool, config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        # Beacons take less than that on any machine, and a flood more also where others keep its cores busy.
        tight = QuotaSettings(share=0.005, advance_s=0.05)
        made = [config(id, "epidemic") for id in (1, 2, BAD)]
        if keyed:
            made = [OPERATOR.keyed(one) for one in made]
        limited = replace(made[1], interfaces=tuple(replace(one, quotas=tight) for one in made[1].interfaces))
        async with LiveNode(made[0]) as first, LiveNode(limited) as second, LiveNode(made[2]) as busy:
            inbox = await connect(first, second)
            await connect(busy, second)
            # It goes on until it has taken more than it gets back, however slow the machine is.
            for n in range(20_000):
                busy.publish({"loud": n})
                if n % 50 == 49:
                    await asyncio.sleep(0.01)
                    # The trace has so many rows of bad datagrams in a second, and others may have filled this one.
                    if n > 1000 and second.drops["neighbor_over_quota"] and BAD in over_quota(second):
                        break
            assert BAD in over_quota(second)
            await check_fifty_arrive(first, inbox)

    run(story())


def test_a_node_has_only_so_many_neighbors(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        # So patient that a machine that is busy loses no neighbor by itself.
        made = config(1, "epidemic", beacons=BeaconSettings(period_s=0.05, missed=100))
        few = replace(
            made, interfaces=tuple(replace(one, quotas=QuotaSettings(neighbors=1)) for one in made.interfaces)
        )
        async with LiveNode(few) as first, LiveNode(config(2, "epidemic")) as second:
            inbox = await connect(second, first)
            async with LiveNode(config(3, "epidemic")) as third:
                third.add_peer(first.address)
                await until_dropped(first, "neighbors_full", 3)
                assert first.neighbors == [2]
                await check_fifty_arrive(second, inbox)

    run(story())
