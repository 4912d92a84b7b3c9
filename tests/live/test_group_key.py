"""Group keys: sent in sessions, acknowledged, renewed periodically and when a node is no longer a member."""

import asyncio
import time

import pytest

from carrycast.node.link.frame import LinkFrame, LinkKind, unpack
from carrycast.node.security import sealed, session, session_control
from carrycast.node.security.primitives import Cipher
from carrycast.node.security.session import RENEW_S, OwnGroupKey, Session
from carrycast.node.security.session_control import SILENT_S
from tests.live.air import Air, Speaker, carry_until, meet
from tests.live.attacker import group_bodies
from tests.live.conftest import Run
from tests.live.keyed import Operator


def session_with(speaker: Speaker, node: int) -> Session:
    [found] = [one for one in speaker.transport.sessions if one.member.node == node]
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour is a moment."""
    monkeypatch.setattr(session, "RENEW_S", 0.3)
    monkeypatch.setattr(sealed, "REVIEW_S", 0.05)


@pytest.mark.guarantee("key-hourly")
@pytest.mark.usefixtures("soon")
def test_the_key_is_renewed_by_the_clock_and_not_by_what_is_said(run: Run) -> None:
    """Nothing is said at all; and both neighbors have each new key."""

    async def story() -> None:
        air = Air()
        speakers = [Speaker(air, node) for node in (1, 2, 3)]
        meet(air, *speakers)
        keys = {speaker.transport.group_key.key for speaker in speakers}
        later: set[bytes] = set()

        def renewed() -> bool:
            later.update(speaker.transport.group_key.key for speaker in speakers)
            return len(later - keys) >= 6

        await carry_until(air, renewed)
        for speaker in speakers:
            speaker.heard.clear()
        speakers[0].say(b"word")
        air.carry()
        assert [speaker.heard for speaker in speakers[1:]] == [[(1, b"word")]] * 2
        assert not [speaker.dropped for speaker in speakers if "link_unsealed" in speaker.dropped]

    run(story())


@pytest.mark.guarantee("key-hourly")
def test_nothing_is_sealed_under_a_key_of_more_than_an_hour(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the device ran all the time, or slept, or its clock was set back."""
    assert RENEW_S <= 3600

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        own = first.transport.group_key
        for clock in ("_made_s", "_made_wall_s"):
            before = own.key
            setattr(own, clock, getattr(own, clock) - RENEW_S)
            first.say(b"word")
            assert own.key != before, clock
            air.carry()
            assert second.heard[-1] == (1, b"word")
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert not OwnGroupKey(asyncio.get_running_loop().time()).is_old(asyncio.get_running_loop().time())
        before = own.key
        own._made_s -= RENEW_S
        first.say(b"word")
        assert own.key != before

    run(story())


@pytest.mark.guarantee("revoked-reads-nothing")
def test_who_was_revoked_opens_nothing_that_is_sealed_from_then_on(run: Run) -> None:
    """It had the key to the group, and all keys of its own session, and hears everything."""

    async def story() -> None:
        air, operator = Air(), Operator("of this air")
        first, second, out = (Speaker(air, node, operator) for node in (1, 2, 3))
        meet(air, first, second, out)
        known = first.transport.group_key.key
        mine = session_with(out, 1)
        air.said.clear()
        out.heard.clear()
        assert first.membership.take_revocations(operator.revoked(3))
        # In the same moment, before anybody was told.
        for number in range(5):
            first.say(b"%d" % number)
            first.say(b"to who is out", out.ear.address)
        air.carry()
        assert [body for sender, body in second.heard if sender == 1][-5:] == [b"%d" % number for number in range(5)]
        assert out.heard == []
        for _, _, datagram in air.said:
            frame = unpack(datagram, keyed=True)
            assert isinstance(frame, LinkFrame)
            if frame.sender == 1 and frame.kind is LinkKind.SEALED:
                assert not isinstance(mine.decrypt(frame.sequence, frame.body, datagram[:23]), bytes)
        first.say(b"again")
        air.carry()
        sealed_bodies = group_bodies(air, 1)
        assert sealed_bodies
        for frame, beside, body in sealed_bodies:
            assert Cipher(known).decrypt(frame.sequence, body.ciphertext, beside) is None

    run(story())


@pytest.mark.guarantee("revoked-reads-nothing")
def test_what_a_revoked_node_says_is_not_heard(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of this air")
        first, second, out = (Speaker(air, node, operator) for node in (1, 2, 3))
        meet(air, first, second, out)
        assert first.membership.take_revocations(operator.revoked(3))
        air.carry()
        for speaker in (first, second):
            speaker.heard.clear()
        for _ in range(3):
            out.say(b"still here")
            out.say(b"still here", first.ear.address)
            air.carry()
        assert first.heard == second.heard == []

    run(story())


@pytest.mark.guarantee("key-at-certificate-end")
def test_the_end_of_a_certificate_is_noticed_without_a_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "REVIEW_S", 0.05)

    async def story() -> None:
        air = Air()
        first, second, ending = Speaker(air, 1), Speaker(air, 2), Speaker(air, 3, expires_s=time.time() + 1000)
        meet(air, first, second, ending)
        before, kept = first.transport.group_key.key, session_with(first, 2)
        later_s = time.time() + 1001
        monkeypatch.setattr(time, "time", lambda: later_s)
        await carry_until(air, lambda: first.transport.group_key.key != before)
        assert [one.member.node for one in first.transport.sessions] == [2]
        assert session_with(first, 2) is kept, "the others keep their sessions"

    run(story())


@pytest.mark.guarantee("renewal-loses-nothing")
def test_what_is_said_while_keys_are_renewed_comes_once_to_everybody(run: Run) -> None:
    async def story() -> None:
        air = Air()
        speakers = [Speaker(air, node) for node in (1, 2, 3)]
        meet(air, *speakers)
        first = speakers[0]
        for speaker in speakers:
            speaker.heard.clear()
            speaker.dropped.clear()
        for number in range(30):
            first.say(b"%d" % number)  # on its way while the key is renewed
            if number % 3 == 0:
                first.transport._renew_group_key()
            first.say(b"%d and a half" % number)
            if number % 2 == 0:
                air.carry()
        air.carry()
        wanted = sorted(word for number in range(30) for word in (b"%d" % number, b"%d and a half" % number))
        for speaker in speakers[1:]:
            assert sorted(body for _, body in speaker.heard) == wanted
            assert not {"link_unsealed", "link_stranger"} & set(speaker.dropped)

    run(story())


@pytest.mark.guarantee("renewal-loses-nothing")
def test_a_key_arrives_over_a_link_that_loses_three_of_ten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_control, "MAX_RESEND_S", 0.5)

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        air.loss = 0.3
        for _ in range(3):
            first.transport._renew_group_key()
            await carry_until(
                air, lambda: session_with(first, 2).acknowledged_epoch == first.transport.group_key.epoch, within_s=60
            )

    run(story())


@pytest.mark.guarantee("renewal-loses-nothing")
def test_the_key_before_is_accepted_for_a_while_and_no_longer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        first.say(b"late")
        [late] = air.waiting
        air.waiting.clear()
        first.transport._renew_group_key()
        air.carry()
        for key in session_with(second, 1)._group_keys.values():
            key.until_s -= session.OVERLAP_S
        second.heard.clear()
        second.ear.hear(late[2], first.ear.address, True)
        assert second.heard == []
        assert session.OVERLAP_S <= 60

    run(story())


def test_a_neighbor_that_never_acknowledges_costs_a_copy_for_a_while_only(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        air = Air()
        first, second, bad = (Speaker(air, node) for node in (1, 2, 3))
        meet(air, first, second, bad)
        monkeypatch.setattr(bad.transport, "send_control", lambda session, text: None)
        first.transport._renew_group_key()
        air.carry()
        first.say(b"word")
        assert len(air.waiting) == 2, "a datagram to the group, and a copy"
        air.carry()
        session_with(first, 3).key_sent_s -= session.COPIES_S
        air.waiting.clear()
        first.say(b"word")
        assert len(air.waiting) == 1

    run(story())


@pytest.mark.guarantee("replay")
def test_a_datagram_to_the_group_is_taken_once(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        second.heard.clear()
        first.say(b"word")
        air.carry()
        *_, (origin, _, datagram) = air.said
        second.ear.hear(datagram, origin, True)
        assert second.heard == [(1, b"word")]
        assert second.dropped[-1] == "link_repeated"

    run(story())


@pytest.mark.guarantee("sessions-hourly")
def test_sessions_are_made_again_every_hour_though_nothing_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again and again, if a handshake is lost."""
    assert sealed.REKEY_S <= 3600
    monkeypatch.setattr(sealed, "REVIEW_S", 0.05)
    monkeypatch.setattr(sealed, "REKEY_RETRY_S", 0.1)

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        before = session_with(first, 2)
        for speaker in (first, second):
            for one in speaker.transport.sessions:
                one.made_s -= sealed.REKEY_S + sealed.RESPONDER_DELAY_S
        air.loss = 1.0
        await carry_until(air, lambda: air.lost > 2)
        assert session_with(first, 2) is before
        air.loss = 0.0
        await carry_until(air, lambda: session_with(first, 2) is not before)
        # What was sealed for the one before is not opened for ever.
        session_with(first, 2).made_s -= session.OVERLAP_S
        await carry_until(air, lambda: session_with(first, 2).previous is None)

    run(story())


def test_a_session_that_cannot_be_made_again_ends(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        session_with(first, 2).made_s -= 2 * sealed.REKEY_S + 1
        first.transport._on_timer()
        assert list(first.transport.sessions) == []
        assert second.node == 2

    run(story())


@pytest.mark.guarantee("no-impersonation")
def test_a_neighbor_does_not_take_part_of_a_group_for_a_handshake(run: Run) -> None:
    """More than 200 neighbors take several datagrams: one that is marked for others is no reason to begin again."""

    async def story() -> None:
        air = Air()
        first, second, third = (Speaker(air, node) for node in (1, 2, 3))
        meet(air, first, second, third)
        session_with(first, 3).acknowledged_epoch = None
        session_with(first, 3).key_sent_s = asyncio.get_running_loop().time()
        air.said.clear()
        third.heard.clear()
        first.say(b"word")
        air.carry()
        assert third.heard == [(1, b"word")], "by a copy of its own"
        assert third.dropped[-1] == "link_unmarked"
        kinds = {frame.kind for _, _, text in air.said if isinstance(frame := unpack(text, keyed=True), LinkFrame)}
        assert LinkKind.KEYED_CHALLENGE not in kinds

    run(story())


def test_a_neighbor_that_is_gone_costs_nothing_and_is_told_when_it_is_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that a silent neighbor never acknowledges are always due, and must not keep a node busy."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        session_with(first, 2).heard_s -= SILENT_S + 1
        first.transport._renew_group_key()
        air.waiting.clear()
        calls: list[float] = []
        retry = first.transport._control.retry

        def counted(now_s: float) -> None:
            calls.append(now_s)
            retry(now_s)

        monkeypatch.setattr(first.transport._control, "retry", counted)
        session_with(first, 2).resend_s = 0.0
        first.transport._on_timer()
        await asyncio.sleep(0.3)
        assert len(calls) <= 3
        assert air.waiting == []
        second.say(b"back", first.ear.address)
        air.carry()
        assert session_with(first, 2).acknowledged_epoch == first.transport.group_key.epoch

    run(story())
