"""Lists of revocations on their way: in pieces, by difference, over links that lose much, until every neighbor has
them; and how they are made and end."""

import time
from pathlib import Path
from random import Random

import pytest

from carrycast.cli import main
from carrycast.node.link.frame import LinkFrame, LinkKind, unpack
from carrycast.node.security import commands
from carrycast.node.security.commands import issuance_log_path
from carrycast.node.security.key_files import KeyKind, read_key
from carrycast.node.security.membership import CLOCK_SLACK_S, Certified, Rejection
from carrycast.node.security.revocations import (
    MAX_LIST_BYTES,
    NEVER_S,
    RevocationList,
    RevocationTimes,
    read_revocation_list,
    revoke_nodes,
)
from carrycast.node.security.session_control import LIST_SEGMENT, SEGMENT_BYTES, ListDownload
from tests.live.air import Air, Speaker, carry_until, meet
from tests.live.conftest import Run
from tests.live.keyed import Operator

MANY = 1700
MTU = 508
"""The longest UDP payload that every IPv4 host accepts."""


@pytest.mark.guarantee("list-arrives")
def test_a_long_list_crosses_a_link_with_a_small_mtu_that_loses_three_of_ten(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the node that is out stays a neighbor of nobody."""
    monkeypatch.setattr("carrycast.node.security.session_control.MAX_RESEND_S", 0.5)

    async def story() -> None:
        air, operator = Air(), Operator("of many")
        first, second, third, bad = (Speaker(air, node, operator) for node in (1, 2, 3, 4))
        meet(air, first, second, third, bad)
        air.loss, air.mtu = 0.3, MTU
        assert first.membership.take_revocations(operator.revoked(4, *range(1000, 1000 + MANY)))
        others = (second, third)
        await carry_until(air, lambda: all(one.membership.number == 1 for one in others))
        for one in (first, *others):
            assert 4 not in {session.member.node for session in one.transport.sessions}
        # Each knows that the others have it: nothing is sent for ever.
        everybody = (first, *others)
        await carry_until(
            air, lambda: all(session.list_number == 1 for one in everybody for session in one.transport.sessions)
        )
        air.carry()
        assert max(len(datagram) for _, _, datagram in air.said) <= MTU
        assert air.lost > 0

    run(story())


@pytest.mark.guarantee("list-difference")
def test_only_what_changed_travels(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of changes")
        first, second = (Speaker(air, node, operator) for node in (1, 2))
        meet(air, first, second)
        assert first.membership.take_revocations(operator.revoked(*range(1000, 1000 + MANY)))
        air.carry()
        assert second.membership.number == 1
        air.said.clear()
        assert first.membership.take_revocations(operator.revoked(9))
        air.carry()
        assert second.membership.number == 2
        assert len(second.membership.encode_delta(0)) == len(first.membership.encode_delta(0)) > 39_000
        assert sum(len(datagram) for _, _, datagram in air.said) < 2000

    run(story())


@pytest.mark.guarantee("list-arrives")
def test_a_neighbor_that_was_away_gets_the_list_when_it_is_back(run: Run) -> None:
    """Nothing of the first attempts arrives."""

    async def story() -> None:
        air, operator = Air(), Operator("of the lost")
        first, second = (Speaker(air, node, operator) for node in (1, 2))
        meet(air, first, second)
        air.loss = 1.0
        assert first.membership.take_revocations(operator.revoked(9))
        await carry_until(air, lambda: air.lost > 3)
        assert second.membership.number == 0
        air.loss = 0.0
        await carry_until(air, lambda: second.membership.number == 1)

    run(story())


def test_a_newcomer_that_knows_more_tells(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of newcomers")
        first, second = (Speaker(air, node, operator) for node in (1, 2))
        operator.revoked(7)
        assert second.membership.take_revocations(operator.revoked(9))
        meet(air, first, second)
        assert first.membership.number == 2

    run(story())


@pytest.mark.guarantee("list-difference")
def test_a_list_to_which_changes_do_not_fit_is_fetched_whole(run: Run) -> None:
    """The operator's file was lost and begun again: lists of one number that are not the same."""

    async def story() -> None:
        air, operator, again = Air(), Operator("twice"), Operator("twice")
        first, second = (Speaker(air, node, operator) for node in (1, 2))
        assert first.membership.take_revocations(operator.revoked(7))
        again.revoked(8)
        assert second.membership.take_revocations(again.revoked(9))
        meet(air, first, second)
        assert first.membership.number == second.membership.number == 2
        assert first.membership.encode_delta(0) == second.membership.encode_delta(0)
        assert "link_list_forged" not in first.dropped

    run(story())


class Silent:
    """Has a newer list, as it says, and gives none of it."""

    number = 1 << 60

    def encode_delta(self, since: int) -> bytes:
        return b""


@pytest.mark.guarantee("list-forged")
def test_a_neighbor_that_only_says_it_has_a_list_keeps_nobody_from_bringing_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carrycast.node.security.session_control.TURN_S", 0.2)

    async def story() -> None:
        air, operator = Air(), Operator("of the silent")
        first, second, bad = (Speaker(air, node, operator) for node in (1, 2, 3))
        meet(air, first, second, bad)
        monkeypatch.setattr(bad.transport._control, "_membership", Silent())
        bad.transport._control.announce_list()
        air.carry()
        assert second.transport._control._download.active
        assert first.membership.take_revocations(operator.revoked(9))
        await carry_until(air, lambda: second.membership.number == 1)

    run(story())


def test_a_member_that_asks_without_end_is_answered_so_much_only(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of askers")
        first, bad = (Speaker(air, node, operator) for node in (1, 3))
        operator.revoked(7)
        operator.revoked(8)
        text = operator.revoked(9)
        assert first.membership.take_revocations(text)
        meet(air, first, bad)
        [session] = bad.transport.sessions
        air.said.clear()
        for number in range(500):
            bad.transport._control._request(session, number % 3, 3, [0])
        air.carry()
        kinds = [unpack(datagram, keyed=True) for _, _, datagram in air.said]
        answers = [frame for frame in kinds if isinstance(frame, LinkFrame) and frame.sender == 1]
        assert 0 < len(answers) < 200
        assert first.dropped.count("neighbor_over_quota") == 500 - len(answers), "each is answered or counted"
        assert {frame.kind for frame in answers} == {LinkKind.SEALED}

    run(story())


@pytest.mark.guarantee("later-versions")
def test_texts_within_a_session_that_are_none_are_named(run: Run) -> None:
    """Unknown messages of later versions are ignored, also unknown bytes at the end of known ones."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        [session] = first.transport.sessions
        for text in (b"", b"z", b"zzzzzzz"):
            first.transport.send_control(session, text)
        air.carry()
        assert second.dropped == ["link_control_unknown"] * 3
        second.dropped.clear()
        for text in (b"K", b"Kx", b"k", b"V1", b"Q12345678"):
            first.transport.send_control(session, text)
        air.carry()
        assert second.dropped == ["link_control_malformed"] * 5
        first.transport.send_control(session, LIST_SEGMENT + bytes(40))
        air.carry()
        assert second.dropped[-1] == "link_unexpected_piece"
        second.dropped.clear()
        first.transport.send_control(session, b"V" + bytes(16) + b"of a later version")
        air.carry()
        assert second.dropped == []

    run(story())


@pytest.mark.guarantee("list-ends")
def test_entries_end_and_go_from_the_list_by_difference_too() -> None:
    operator, now_s = Operator("of ends"), 1e9
    first = revoke_nodes(
        operator.key,
        RevocationList(),
        {1: RevocationTimes(now_s, now_s + 100), 2: RevocationTimes(now_s, now_s + 9000)},
        now_s,
    )
    second = revoke_nodes(operator.key, first, {3: RevocationTimes(now_s, now_s + 9000)}, now_s + 101)
    assert list(second.entries) == [2, 3]
    changes = second.encode_delta(1)
    assert len(changes) < len(second.encode_delta(0))
    assert read_revocation_list(operator.key.public, changes, first) == second
    assert read_revocation_list(operator.key.public, changes) is None
    assert read_revocation_list(operator.key.public, changes, second) is None
    # Revoked again, a node stays as long as the longer of both says.
    third = revoke_nodes(operator.key, second, {2: RevocationTimes(now_s, now_s + 200)}, now_s + 102)
    assert third.entries[2].until_s == now_s + 9000
    assert read_revocation_list(operator.key.public, bytes(MAX_LIST_BYTES + 1)) is None


@pytest.mark.guarantee("list-ends")
def test_a_node_stays_on_the_list_until_its_last_certificate_has_ended_with_its_grace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator, listed = tmp_path / "operator.key", tmp_path / "out.list"
    assert main(["keys", "operator", str(operator)]) == 0
    commands.make_key_pair(tmp_path / "car.key", KeyKind.IDENTITY)
    for name, days in (("car", 300.0), ("car", 10.0), ("van", 20.0)):
        commands.certify(tmp_path / "car.key.pub", operator, tmp_path / f"{name}.cert", name, days=days, grace_days=3)
    # The file is of the shorter one.
    revoke = ["keys", "revoke", str(tmp_path / "car.cert"), "7", "--operator", str(operator), "--list", str(listed)]
    assert main(revoke) == 0
    said = capsys.readouterr().out
    assert "node 7 stays on the list for good" in said
    found = read_revocation_list(_public(operator), read_key(listed, KeyKind.REVOCATIONS)[1])
    assert found is not None
    [car, seven] = [found.entries[node] for node in (commands._parse_node("car"), 7)]
    assert car.until_s == pytest.approx(time.time() + 303 * 86_400 + CLOCK_SLACK_S, abs=60)
    assert seven.until_s == NEVER_S
    assert issuance_log_path(operator).stat().st_mode & 0o077 == 0
    issuance_log_path(operator).write_text("nonsense\n")
    assert main(revoke) == 2
    assert "line 1" in capsys.readouterr().err


def _public(operator: Path) -> bytes:
    return read_key(operator.with_name(f"{operator.name}.pub"), KeyKind.PUBLIC)[1]


@pytest.mark.guarantee("revocation-overrides")
def test_a_revocation_counts_whatever_time_is_claimed() -> None:
    operator = Operator("of claims")
    judge = operator.verifier(1).membership
    assert isinstance(judge, Certified)
    keys = operator.keys(2)
    assert judge.take_revocations(operator.revoked(2))
    assert judge.verify_credential(keys.certificate) is Rejection.REVOKED
    assert judge.verify_card(operator.verifier(2).membership.card) is not Rejection.REVOKED, "it was certified again"


@pytest.mark.guarantee("revocation-overrides")
def test_a_certificate_that_was_issued_by_a_clock_that_was_ahead_is_revoked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kind in (("car.key", KeyKind.IDENTITY), ("operator.key", KeyKind.OPERATOR)):
        commands.make_key_pair(tmp_path / name, kind)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    made = commands.certify(tmp_path / "car.key.pub", tmp_path / "operator.key", tmp_path / "car.cert", "car")
    monkeypatch.setattr(time, "time", real)
    listed = commands.revoke(["car"], tmp_path / "operator.key", tmp_path / "out.list")
    assert listed.revokes(made.node, made.issued_s)
    again = commands.certify(tmp_path / "car.key.pub", tmp_path / "operator.key", tmp_path / "car.cert", "car")
    assert not listed.revokes(again.node, again.issued_s), "certified again, it is in again"


def test_whatever_a_member_says_within_a_session_raises_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no bounds but what a datagram holds; and who is honest is heard afterwards."""
    monkeypatch.setattr("carrycast.node.security.session_control.REQUEST_BURST", 1e9)

    async def story() -> None:
        air, operator, rng = Air(), Operator("of noise"), Random(7)
        first, second, bad = (Speaker(air, node, operator) for node in (1, 2, 3))
        assert first.membership.take_revocations(operator.revoked(*range(1000, 1100)))
        meet(air, first, second, bad)
        [session] = [one for one in bad.transport.sessions if one.member.node == 1]
        for _ in range(3000):
            body = rng.randbytes(rng.choice((0, 1, 8, 16, 20, 24, 33, 40, 500)))
            if rng.random() < 0.5:  # Numbers that are near to what is.
                body = bytes(7) + bytes([rng.randrange(3)]) + bytes(7) + bytes([rng.randrange(3)]) + body
            bad.transport.send_control(session, rng.choice((b"K", b"k", b"V", b"Q", b"F", b"G", b"x")) + body)
            air.carry()
        second.say(b"word", first.ear.address)
        first.say(b"word", second.ear.address)
        air.carry()
        assert first.heard[-1] == (2, b"word")
        assert second.heard[-1] == (1, b"word")
        assert first.membership.number == 1

    run(story())


def test_a_piece_that_does_not_fit_to_the_others_is_ignored(run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of pieces")
        first, second = (Speaker(air, node, operator) for node in (1, 2))
        meet(air, first, second)
        [session] = first.transport.sessions
        session.list_number = 5
        asked: list[list[int]] = []
        fetching = ListDownload(lambda _session, _since, _number, indexes: asked.append(indexes))
        fetching.start(session, 0, 0.0)
        whole, total = b"a" * SEGMENT_BYTES, SEGMENT_BYTES + 1
        assert fetching.on_segment(session, (0, 5, MAX_LIST_BYTES + 1, 0), whole, 0.1) is None
        assert asked == [[0]], "no list is so long; only the first piece says how many there are"
        assert fetching.on_segment(session, (0, 5, total, 0), whole, 0.1) is None
        assert asked == [[0], [1]]
        assert fetching.on_segment(session, (0, 5, total + 1, 1), b"bb", 0.2) is None, "of another length in all"
        assert fetching.on_segment(session, (0, 5, total, 0), b"c" * SEGMENT_BYTES, 0.2) is None, "it is there"
        assert fetching.on_segment(session, (0, 5, total, 1), b"b", 0.2) == whole + b"b"

    run(story())
