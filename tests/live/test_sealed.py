"""Sealed channels on a simulated medium: groups, simultaneous handshakes, renewed sessions."""

import asyncio
import time

import pytest

from carrycast.node.link.frame import LinkFlaw, LinkFrame, LinkKind, pack, unpack
from carrycast.node.security import sealed
from carrycast.node.security.handshake_manager import REPLY_TIMEOUT_S
from carrycast.node.security.session import SLOT_BYTES
from tests.live.air import Air, Speaker
from tests.live.conftest import Run
from tests.live.keyed import Operator


def kinds(air: Air) -> list[LinkKind]:
    frames = [unpack(datagram, keyed=True) for _, _, datagram in air.said]
    return [frame.kind for frame in frames if not isinstance(frame, LinkFlaw)]


def test_one_datagram_to_the_group_reaches_all_members_and_nobody_else(run: Run) -> None:
    async def story() -> None:
        air = Air()
        speakers = [Speaker(air, node) for node in (1, 2, 3)]
        stranger = Speaker(air, 4, Operator("another"))
        for speaker in speakers:
            speaker.say(b"beacon")
            air.carry()
        for speaker in (*speakers, stranger):
            speaker.heard.clear()
        air.said.clear()
        speakers[0].say(b"to everybody")
        air.carry()
        assert [speaker.heard for speaker in speakers] == [[], [(1, b"to everybody")], [(1, b"to everybody")]]
        assert stranger.heard == []
        [(_, _, datagram), *_] = air.said
        assert b"to everybody" not in datagram
        assert datagram[28] == 2, "marked for two"

    run(story())


@pytest.mark.guarantee("no-impersonation")
def test_a_neighbor_cannot_say_to_the_group_what_another_said(run: Run) -> None:
    """All neighbors know the key under which a node speaks to its group; the marks are each one's own."""

    async def story() -> None:
        air = Air()
        first, second, third = (Speaker(air, node) for node in (1, 2, 3))
        for _ in range(2):
            for speaker in (first, second, third):
                speaker.say(b"beacon")
                air.carry()
        # The bad one was given the key of the first, and speaks in its place.
        second.transport.group_key = first.transport.group_key
        second.transport._me = first.transport._me
        for session in second.transport.sessions:
            session.acknowledged_epoch = first.transport.group_key.epoch
        third.heard.clear()
        second.say(b"in the name of the first")
        air.carry()
        assert third.heard == []
        assert "link_unsealed" in third.dropped

    run(story())


def test_two_that_begin_at_once_end_with_one_link_each(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        first.say(b"a")
        second.say(b"b")
        air.carry()
        first.say(b"c", second.ear.address)
        second.say(b"d", first.ear.address)
        air.carry()
        assert (first.heard, second.heard) == ([(2, b"d")], [(1, b"c")])
        assert kinds(air).count(LinkKind.FINISH) == 1

    run(story())


def test_a_handshake_that_is_cut_off_anywhere_heals(run: Run) -> None:
    """Whichever datagram is lost, the next words of both bring a link."""

    async def story() -> None:
        for lost in range(6):
            air = Air()
            first, second = Speaker(air, 1), Speaker(air, 2)
            first.say(b"a")
            for step in range(20):
                if not air.waiting:
                    break
                if step == lost:
                    air.waiting.pop(0)
                    continue
                rest, air.waiting = air.waiting[1:], air.waiting[:1]
                air.carry()
                air.waiting = rest + air.waiting
            loop = asyncio.get_running_loop()
            for speaker in (first, second):
                speaker.transport._handshakes._initiated_s.clear()
                for answered in speaker.transport._handshakes._responded.values():
                    answered.since_s = loop.time() - REPLY_TIMEOUT_S
            for _ in range(2):
                first.say(b"b")
                second.say(b"c")
                air.carry()
            first.heard.clear()
            second.heard.clear()
            first.say(b"d", second.ear.address)
            second.say(b"e", first.ear.address)
            air.carry()
            assert (first.heard, second.heard) == ([(2, b"e")], [(1, b"d")]), lost

    run(story())


def test_who_is_revoked_cannot_read_what_goes_to_the_group(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of this air")
        first, second, third = (Speaker(air, node, operator) for node in (1, 2, 3))
        for _ in range(2):
            for speaker in (first, second, third):
                speaker.say(b"beacon")
                air.carry()
        before = first.transport.group_key.key
        assert first.membership.take_revocations(operator.revoked(3))
        air.carry()
        assert second.membership.number == 1, "who is left was told"
        assert first.transport.group_key.key != before
        for speaker in (first, second, third):
            speaker.heard.clear()
        for _ in range(2):
            for speaker in (first, second):
                speaker.say(b"word")
                air.carry()
        assert (1, b"word") in second.heard
        assert third.heard == []

    run(story())


@pytest.mark.guarantee("list-forged")
def test_a_member_makes_a_node_verify_one_list_and_not_thousands(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not among the messages for which a neighbor has a quota. An honest list still comes."""

    async def story() -> None:
        air, operator = Air(), Operator("of this air")
        first, second, bad = (Speaker(air, node, operator) for node in (1, 2, 3))
        for _ in range(2):
            for speaker in (first, second, bad):
                speaker.say(b"beacon")
                air.carry()
        judged: list[bytes] = []
        take = second.membership.take_revocations

        def judge(text: bytes) -> bool:
            judged.append(text)
            return take(text)

        monkeypatch.setattr(second.membership, "take_revocations", judge)
        forged = Operator("another").revoked(1)
        monkeypatch.setattr(bad.transport._control, "_membership", Liar(forged))
        for _ in range(50):
            bad.transport._control.announce_list()
            air.carry()
        assert judged == [forged], "it is believed once"
        assert second.dropped.count("link_list_forged") == 1
        assert first.membership.take_revocations(operator.revoked(4))
        air.carry()
        assert second.membership.number == 1, "an honest list still comes"

    run(story())


class Liar:
    """Says that it has a newer list, and brings one of its own making."""

    number = 9

    def __init__(self, text: bytes) -> None:
        self._text = text

    def encode_delta(self, since: int) -> bytes:
        return self._text


def test_a_session_ends_with_the_certificate_of_its_member(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever should have made it anew; nor is the key to the group that it knows used on."""

    async def story() -> None:
        air = Air()
        first, second, ending = Speaker(air, 1), Speaker(air, 2), Speaker(air, 3, expires_s=time.time() + 1000)
        for _ in range(2):
            for speaker in (first, second, ending):
                speaker.say(b"beacon")
                air.carry()
        assert {(1, b"beacon"), (2, b"beacon")} <= set(ending.heard)
        before = first.transport.group_key.key
        later_s = time.time() + 1001
        monkeypatch.setattr(time, "time", lambda: later_s)
        for speaker in (first, second, ending):
            speaker.heard.clear()
            speaker.transport._handshakes._initiated_s.clear()
        ending.say(b"still here", first.ear.address)
        air.carry()
        for _ in range(2):
            for speaker in (first, second):
                speaker.say(b"word")
                air.carry()
        assert first.transport.group_key.key != before
        assert "link_credential_expired" in first.dropped
        assert {sender for sender, _ in first.heard} == {2}
        assert (1, b"word") in second.heard
        assert ending.heard == []

    run(story())


def test_a_session_is_made_anew_after_a_while(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        for speaker in (first, second):
            speaker.say(b"a")
            air.carry()
        for speaker in (first, second):
            speaker.transport._handshakes._initiated_s.clear()
            for session in speaker.transport._sessions.values():
                session.made_s -= sealed.REKEY_S + 2 * sealed.RESPONDER_DELAY_S
            speaker.transport._on_timer()
        before = {id(session) for session in first.transport._sessions.values()}
        first.heard.clear()
        second.heard.clear()
        for _ in range(2):
            first.say(b"b", second.ear.address)
            second.say(b"c", first.ear.address)
            air.carry()
        assert not before & {id(session) for session in first.transport._sessions.values()}
        assert (len(first.heard), len(second.heard)) == (2, 2), "what was on its way was not lost"

    run(story())


def test_a_neighbor_may_be_heard_over_four_interfaces(run: Run) -> None:
    """Each has a session of its own; only a fifth takes the place of the oldest."""

    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)
        others = [Speaker(air, 2, port=port) for port in range(10, 15)]
        for number, other in enumerate(others, start=1):
            other.say(b"a", first.ear.address)
            air.carry()
            other.say(b"b", first.ear.address)
            air.carry()
            assert len(first.transport._sessions) == min(number, sealed.SESSIONS_PER_NODE)
        kept = {session for _, session in first.transport._sessions}
        assert kept == {other.transport._me.session for other in others[1:]}

    run(story())


def test_a_member_that_writes_anothers_address_gets_nothing_of_its_place(run: Run) -> None:
    """Datagrams to an address are encrypted for the node that completed a handshake from there."""

    async def story() -> None:
        air = Air()
        first, second, bad = (Speaker(air, node) for node in (1, 2, 3))
        for _ in range(2):
            for speaker in (first, second, bad):
                speaker.say(b"beacon")
                air.carry()
        first.heard.clear()
        for number in range(20):
            bad.say(b"as if from there", second.ear.address)
            [(_, _, forged)] = air.waiting
            air.waiting.clear()
            second.ear.hear(forged, first.ear.address, False)
            second.say(b"%d" % number, first.ear.address)
            air.carry()
        assert first.heard == [(2, b"%d" % number) for number in range(20)]
        assert "link_unsealed" not in first.dropped
        for port in range(1000):
            bad.say(b"as if from anywhere", second.ear.address)
            [(_, _, forged)] = air.waiting
            air.waiting.clear()
            second.ear.hear(forged, ("host", 1000 + port), False)
        assert len(second.transport._by_address) == 1 + sealed.ADDRESSES_PER_SESSION, "of the first, and of the bad one"

    run(story())


def test_who_takes_over_the_address_of_another_shakes_hands_from_there(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second, third = (Speaker(air, node) for node in (1, 2, 3))
        for speaker in (first, second, third):
            speaker.say(b"beacon")
            air.carry()
        first.transport.close()
        third.ear.move(first.ear.address)
        for speaker in (second, third):
            speaker.transport._handshakes._initiated_s.clear()
        third.say(b"a", second.ear.address)
        air.carry()
        for _ in range(2):
            second.say(b"b", third.ear.address)
            air.carry()
        assert third.heard[-1] == (2, b"b")

    run(story())


@pytest.mark.guarantee("replay")
def test_slots_that_are_cut_off_are_no_datagram(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        for speaker in (first, second):
            speaker.say(b"a")
            air.carry()
        session = first.transport._me.session
        for body in (b"\xff" * 20, b"\x02" + bytes(2 * SLOT_BYTES - 1), bytes(20), b"\x02" + bytes(2 * SLOT_BYTES)):
            second.ear.hear(pack(LinkFrame(LinkKind.SEALED_TO_GROUP, 1, session, 99, body)), first.ear.address, True)
        assert second.dropped.count("link_unsealed") == 4

    run(story())
