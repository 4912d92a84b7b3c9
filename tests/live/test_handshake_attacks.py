"""Attackers who speak the handshake: without keys, with foreign, stolen, ended or revoked ones, who listen, repeat, and
change bytes on the way. docs/security.md says of each message what it may carry to whom."""

import time

import msgspec
import pytest

from carrycast.node.link.frame import LINK_HEADER_BYTES, LinkFrame, LinkKind, pack, unpack
from carrycast.node.security.certificate import read_card
from carrycast.node.security.config import Keys
from carrycast.node.security.handshake import (
    INITIATION_BYTES,
    OURS,
    Introduction,
    VersionOffer,
    make_introduction,
    start_handshake,
)
from carrycast.node.security.identity import derive_node_id
from carrycast.node.security.membership import Membership
from carrycast.node.security.noise import NoiseError
from carrycast.node.security.primitives import PUBLIC_BYTES, TAG_BYTES, SigningKey
from carrycast.node.security.session_control import GROUP_KEY
from tests.live.air import OPERATOR, Air, Speaker, meet
from tests.live.attacker import Attacker, group_bodies
from tests.live.conftest import Run
from tests.live.keyed import Operator, private_of

SECRET = b"s" * 32


def stranger(node: int = 66, network: bytes | None = None) -> Membership:
    """Without any key of the network: it has made its own, and read from the air what the network is called."""
    made = Operator("of strangers").verifier(node).membership
    made.network = OPERATOR.verifier(1).membership.network if network is None else network
    return made


def thief_of_a_card(victim: Speaker) -> Membership:
    """Has seen the card of a member and its binding, as anybody can, and shows them with a static key of its own."""
    made = stranger(victim.node)
    made.card, made.binding = victim.membership.card, victim.membership.binding
    return made


def ended() -> Membership:
    return OPERATOR.verifier(66, issued_s=0.0, expires_s=time.time() - 1).membership


def secret_member(name: str, secret: bytes = SECRET) -> Membership:
    return Keys(private_of(name), secret).make_membership()


def secret_speaker(air: Air, name: str) -> Speaker:
    node = derive_node_id(SigningKey(private_of(name)).public)
    return Speaker(air, node, membership=secret_member(name), port=len(air.ears) + 1)


def frames(air: Air, kind: LinkKind) -> list[LinkFrame]:
    found = [unpack(datagram, keyed=True) for _, _, datagram in air.said]
    return [frame for frame in found if isinstance(frame, LinkFrame) and frame.kind is kind]


# The first message.


@pytest.mark.guarantee("first-message")
@pytest.mark.parametrize("with_secret", [False, True])
def test_the_first_message_has_versions_network_and_a_fresh_key(with_secret: bool, run: Run) -> None:
    async def story() -> None:
        seen: list[bytes] = []
        for _ in range(2):
            air = Air()
            if with_secret:
                first, second = secret_speaker(air, "a"), secret_speaker(air, "b")
            else:
                first, second = Speaker(air, 1), Speaker(air, 2)
            meet(air, first, second)
            [*_, initiation] = frames(air, LinkKind.INITIATION)
            body = initiation.body
            assert body[:INITIATION_BYTES] == OURS.encode() + first.membership.network
            assert len(body) == INITIATION_BYTES + PUBLIC_BYTES + TAG_BYTES * with_secret
            for member in (first.membership, second.membership):
                assert member.identity.public not in body
                assert member.static.public not in body
            seen.append(body[INITIATION_BYTES : INITIATION_BYTES + PUBLIC_BYTES])
        assert seen[0] != seen[1]

    run(story())


@pytest.mark.guarantee("repeated-handshake")
def test_a_first_message_of_another_is_not_answered_elsewhere(run: Run) -> None:
    """Its cookie is for the address from which it came."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        [*_, initiation] = frames(air, LinkKind.INITIATION)
        target = first if initiation.sender == 2 else second
        attacker = Attacker(air, stranger(), node=initiation.sender)
        attacker.me = attacker.me._replace(session=initiation.session)
        attacker.say(target, LinkKind.INITIATION, initiation.sequence, initiation.body)
        assert attacker.of(LinkKind.REPLY) == []
        assert target.dropped[-1] == "link_unexpected_handshake"

    run(story())


# The second message.


@pytest.mark.guarantee("second-message")
@pytest.mark.guarantee("outsider-active")
def test_a_stranger_learns_from_the_second_message_what_a_card_says_and_no_more(run: Run) -> None:
    """It is where it says, and goes as far as the handshake lets it."""

    async def story() -> None:
        air = Air()
        policy = {"publish": "road = 'A1'", "subscribe": "topic = 'orders'", "attributes": {"rank": "major"}}
        verifier = OPERATOR.verifier(1, **policy)
        first, second = Speaker(air, 1, membership=verifier.membership), Speaker(air, 2)
        meet(air, first, second)
        attacker = Attacker(air, stranger())
        reply = attacker.initiate(first)
        assert reply is not None
        assert reply.payload, "this much it can read"
        for confidential in (b"node-1", b"road", b"orders", b"rank", b"major", first.transport.group_key.key):
            assert confidential not in reply.payload
        said = msgspec.msgpack.decode(reply.payload, type=Introduction)
        card = read_card(said.card)
        assert card is not None
        assert (card.node, card.key) == (1, first.membership.identity.public)
        assert reply.payload == make_introduction(first.membership, OURS, first.transport._me.session), (
            "and nothing else"
        )
        # What the rest of the certificate is cannot be guessed: its digest is salted.
        again = OPERATOR.verifier(1, **policy).membership
        other = read_card(again.card)
        assert other is not None
        assert other.details != card.details

    run(story())


@pytest.mark.guarantee("no-session")
@pytest.mark.guarantee("outsider-active")
def test_who_has_no_key_gets_no_session_and_no_key_to_the_group(run: Run) -> None:
    """Also after it has sent what it likes for a third message; and also when somebody was revoked in between."""

    async def story() -> None:
        air, operator = Air(), Operator("of this air")
        network = operator.verifier(1).membership.network
        first, second, third = (Speaker(air, node, operator) for node in (1, 2, 3))
        meet(air, first, second, third)
        attacker = Attacker(air, stranger(network=network))
        for _ in range(2):
            reply = attacker.initiate(first)
            assert reply is not None
            session = attacker.finish(first, reply)
            first.say(b"to everybody")
            first.say(b"to you", attacker.ear.address)
            air.carry()
            assert attacker.decrypt_all(session) == []
            assert attacker.of(LinkKind.SEALED) == []
            assert "link_credential_of_a_stranger" in first.dropped
            assert 66 not in {one.member.node for one in first.transport.sessions}
            first.membership.take_revocations(operator.revoked(3))
            air.carry()
        keys = [attacker.membership.static.public, attacker.membership.identity.public]
        for _, _, body in group_bodies(air, 1):
            for key in keys:
                assert key not in body.ciphertext
            assert b"to everybody" not in body.ciphertext

    run(story())


@pytest.mark.guarantee("secret-network")
def test_who_does_not_know_the_secret_is_not_answered(run: Run) -> None:
    """Nor does it learn from a guess whether that was near."""

    async def story() -> None:
        air = Air()
        first, second = secret_speaker(air, "a"), secret_speaker(air, "b")
        meet(air, first, second)
        for secret in (bytes(32), SECRET[:-1] + b"t"):
            guess = secret_member("c", secret)
            guess.network = first.membership.network
            attacker = Attacker(air, guess, node=guess.mine.node, port=len(air.ears) + 1)
            assert attacker.initiate(first) is None
            assert [frame.kind for frame, _, _ in attacker.frames] == []
            assert first.dropped[-1] == "link_credential_of_a_stranger"
        knows = secret_member("d")
        member = Attacker(air, knows, node=knows.mine.node, port=len(air.ears) + 1)
        assert member.initiate(first) is not None

    run(story())


@pytest.mark.guarantee("no-session")
@pytest.mark.parametrize("who", ["stranger", "thief of a card", "ended"])
def test_a_responder_without_a_good_key_is_told_nothing_more(who: str, run: Run) -> None:
    """A member begins, because somebody is where it says; and learns from the second message who that is."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        node = 2 if who == "thief of a card" else 66
        made = thief_of_a_card(second) if who == "thief of a card" else ended() if who == "ended" else stranger()
        attacker = Attacker(air, made, node)
        attacker.say(first, LinkKind.HELLO, 0, attacker.membership.network + bytes(8))
        challenge = attacker.of(LinkKind.KEYED_CHALLENGE)[-1]
        attacker.say(first, LinkKind.KEYED_RESPONSE, challenge.sequence, (99).to_bytes(8, "big"))
        [initiation] = attacker.of(LinkKind.INITIATION)
        began = first.transport._me
        state = start_handshake(attacker.membership, False, OURS, began, attacker.me.node, 99)
        state.read_message(initiation.body[INITIATION_BYTES:])
        message = state.write_message(make_introduction(attacker.membership, OURS, attacker.me.session))
        first.dropped.clear()
        attacker.say(first, LinkKind.REPLY, 99, bytes([OURS.most]) + message)
        assert first.dropped == ["link_credential_expired" if who == "ended" else "link_credential_of_a_stranger"]
        assert attacker.of(LinkKind.FINISH) == attacker.of(LinkKind.SEALED) == []

    run(story())


@pytest.mark.guarantee("no-session")
@pytest.mark.parametrize("kind", [LinkKind.REPLY, LinkKind.FINISH])
def test_who_answers_in_the_place_of_another_does_not_end_its_handshake(kind: LinkKind, run: Run) -> None:
    """It is on the way, sees the first message, and is faster; what it says is well made, with a card of its own."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        speakers = {one.ear.address: one for one in (first, second)}
        first.say(b"word", second.ear.address)
        forged, initiated = False, b""
        while air.waiting:
            origin, target, datagram = air.waiting.pop(0)
            frame = unpack(datagram, keyed=True)
            assert isinstance(frame, LinkFrame)
            if frame.kind is kind is LinkKind.REPLY:
                began, asked = speakers[target], speakers[origin]
                bad = stranger(asked.node)
                state = start_handshake(bad, False, OURS, began.transport._me, asked.node, frame.sequence)
                state.read_message(initiated[INITIATION_BYTES:])
                message = state.write_message(make_introduction(bad, OURS, frame.session))
                forged = True
                began.ear.hear(pack(frame._replace(body=bytes([OURS.most]) + message)), origin, False)
                assert list(began.transport.sessions) == []
            elif frame.kind is kind is LinkKind.FINISH:
                forged = True
                for body in (frame.body[::-1], bytes(300), frame.body[:-1], frame.body + b"x"):
                    air.ears[target].hear(pack(frame._replace(body=body)), origin, False)
                assert list(speakers[target].transport.sessions) == []
            elif frame.kind is LinkKind.INITIATION:
                initiated = frame.body
            air.ears[target].hear(datagram, origin, False)
        assert forged
        assert [len(list(one.transport.sessions)) for one in (first, second)] == [1, 1]

    run(story())


# The third message.


@pytest.mark.guarantee("no-session")
@pytest.mark.parametrize("who", ["stranger", "thief of a card", "ended", "revoked"])
def test_an_initiator_without_a_good_key_gets_no_session(who: str, run: Run) -> None:
    async def story() -> None:
        air, operator = Air(), OPERATOR
        if who == "revoked":
            operator = Operator("of this air")
        first, second = Speaker(air, 1, operator), Speaker(air, 2, operator)
        meet(air, first, second)
        made = thief_of_a_card(second) if who == "thief of a card" else ended() if who == "ended" else stranger()
        if who == "revoked":
            made = operator.verifier(66).membership
            assert first.membership.take_revocations(operator.revoked(66))
            air.carry()
        attacker = Attacker(air, made, 2 if who == "thief of a card" else 66)
        reply = attacker.initiate(first)
        assert reply is not None
        first.dropped.clear()
        session = attacker.finish(first, reply)
        reason = {"ended": "link_credential_expired", "revoked": "link_credential_revoked"}
        assert first.dropped == [reason.get(who, "link_credential_of_a_stranger")]
        first.say(b"word")
        first.say(b"word", attacker.ear.address)
        air.carry()
        assert attacker.decrypt_all(session) == []

    run(story())


@pytest.mark.guarantee("no-session")
def test_a_static_key_found_in_memory_is_of_no_use_with_a_newer_card(run: Run) -> None:
    """The newer card is for the same identity, and anybody can ask for it; the older one has ended."""

    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)
        found = OPERATOR.verifier(66, issued_s=0.0, expires_s=time.time() - 1).membership
        newer = OPERATOR.verifier(66).membership
        assert newer.identity.public == found.identity.public
        found.card = newer.card
        attacker = Attacker(air, found)
        reply = attacker.initiate(first)
        assert reply is not None
        attacker.finish(first, reply)
        assert first.dropped[-1] == "link_credential_of_a_stranger"
        assert list(first.transport.sessions) == []

    run(story())


@pytest.mark.guarantee("third-message")
def test_the_third_message_cannot_be_read_by_who_listens(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        [*_, finish] = frames(air, LinkKind.FINISH)
        for member in (first.membership, second.membership):
            for part in (member.card, member.static.public, member.identity.public, member.binding):
                assert part not in finish.body

    run(story())


@pytest.mark.guarantee("no-impersonation")
def test_a_member_cannot_take_the_name_of_another(run: Run) -> None:
    """Its own card is good, and says who it is."""

    async def story() -> None:
        air = Air()
        first, second, _bad = (Speaker(air, node) for node in (1, 2, 3))
        attacker = Attacker(air, OPERATOR.verifier(3).membership, node=2)
        reply = attacker.initiate(first)
        assert reply is not None
        attacker.finish(first, reply)
        assert "link_credential_of_a_stranger" in first.dropped
        assert list(first.transport.sessions) == []
        assert second.node == 2

    run(story())


@pytest.mark.guarantee("repeated-handshake")
def test_a_handshake_that_was_recorded_brings_no_session(run: Run) -> None:
    """Also at the address where it was recorded, and while the cookie is good."""

    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        recorded = [
            (origin, datagram)
            for origin, target, datagram in air.said
            if isinstance(frame := unpack(datagram, keyed=True), LinkFrame)
            and frame.kind in (LinkKind.INITIATION, LinkKind.REPLY, LinkKind.FINISH)
            and target != first.ear.address
        ]
        before = [id(session) for session in second.transport.sessions]
        assert recorded
        for _ in range(2):
            for origin, datagram in recorded:
                second.ear.hear(datagram, origin, False)
        assert [id(session) for session in second.transport.sessions] == before

    run(story())


# Versions.


@pytest.mark.guarantee("downgrade")
@pytest.mark.parametrize("sent", [VersionOffer(1, 1), VersionOffer(0, 2), VersionOffer(1, 2, 1)])
def test_who_changes_the_versions_of_the_first_message_is_found_out(sent: VersionOffer, run: Run) -> None:
    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)
        member = Attacker(air, OPERATOR.verifier(66).membership)
        honest = member.initiate(first, VersionOffer(1, 2))
        assert honest is not None
        assert honest.payload
        changed = member.initiate(first, VersionOffer(1, 2), sent)
        assert changed is not None
        assert changed.payload == b"", "it cannot be read: the initiator goes no further"

    run(story())


@pytest.mark.guarantee("downgrade")
def test_who_changes_the_version_of_the_reply_is_found_out(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1, offer=VersionOffer(1, 3)), Speaker(air, 2, offer=VersionOffer(1, 3))
        first.say(b"word", second.ear.address)
        while air.waiting:
            origin, target, datagram = air.waiting.pop(0)
            frame = unpack(datagram, keyed=True)
            assert isinstance(frame, LinkFrame)
            if frame.kind is LinkKind.REPLY:
                assert frame.body[0] == 3
                datagram = pack(frame._replace(body=b"\x01" + frame.body[1:]))
            air.ears[target].hear(datagram, origin, False)
        assert list(first.transport.sessions) == list(second.transport.sessions) == []
        assert "link_downgraded" in first.dropped + second.dropped

    run(story())


@pytest.mark.guarantee("versions")
@pytest.mark.parametrize(
    ("mine", "theirs", "version"),
    [
        (VersionOffer(1, 1), VersionOffer(1, 1), 1),
        (VersionOffer(1, 3), VersionOffer(2, 7), 3),
        (VersionOffer(1, 2), VersionOffer(2, 2), 2),
        (VersionOffer(1, 1, 5), VersionOffer(1, 9, 0xFFFFFFFC), 1),
    ],
)
def test_both_go_by_the_highest_version_and_the_features_of_both(
    mine: VersionOffer, theirs: VersionOffer, version: int, run: Run
) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1, offer=mine), Speaker(air, 2, offer=theirs)
        meet(air, first, second)
        for speaker in (first, second):
            [session] = speaker.transport.sessions
            assert (session.version, session.features) == (version, mine.features & theirs.features)

    run(story())


@pytest.mark.guarantee("no-common-version")
@pytest.mark.parametrize("newer", [1, 2])
def test_nodes_without_a_common_version_both_say_so(newer: int, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        air = Air()
        offers = {newer: VersionOffer(4, 7)}
        first, second = (Speaker(air, node, offer=offers.get(node, OURS)) for node in (1, 2))
        first.say(b"word", second.ear.address)
        air.carry()
        assert list(first.transport.sessions) == list(second.transport.sessions) == []
        assert "link_no_common_version" in first.dropped
        assert "link_no_common_version" in second.dropped
        refusals = frames(air, LinkKind.REFUSAL)
        initiations = frames(air, LinkKind.INITIATION)
        assert len(refusals) == len(initiations) == 1
        assert len(refusals[0].body) < len(initiations[0].body)

    run(story())
    assert "speaks versions 4 to 7, and this one 1 to 1" in caplog.text
    assert "speaks versions 1 to 1, and this one 4 to 7" in caplog.text


@pytest.mark.guarantee("no-common-version")
def test_a_refusal_that_somebody_else_said_ends_nothing(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        first.say(b"word", second.ear.address)
        while air.waiting:
            origin, target, datagram = air.waiting.pop(0)
            frame = unpack(datagram, keyed=True)
            assert isinstance(frame, LinkFrame)
            if frame.kind is LinkKind.INITIATION:
                to = next(one for one in (first, second) if one.ear.address == target)
                refusal = LinkFrame(
                    LinkKind.REFUSAL, to.node, 1, frame.sequence, VersionOffer(9, 9).encode().ljust(16, b"\0")
                )
                air.ears[origin].hear(pack(refusal), target, False)
            air.ears[target].hear(datagram, origin, False)
        assert [len(list(one.transport.sessions)) for one in (first, second)] == [1, 1]

    run(story())


@pytest.mark.guarantee("later-versions")
def test_what_a_later_version_adds_is_ignored(run: Run) -> None:
    """A payload in the first message, more fields in an introduction, features that are not known."""

    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)
        later = Attacker(air, OPERATOR.verifier(66).membership)
        offer = VersionOffer(1, 200, 0xFFFF)
        cookie = later.cookie(first)
        state = start_handshake(later.membership, True, offer, later.me, 1, cookie)
        body = offer.encode() + later.membership.network + state.write_message(b"something new")
        later.say(first, LinkKind.INITIATION, cookie, body)
        [reply] = later.of(LinkKind.REPLY)
        assert reply.body[0] == OURS.most
        state.read_message(reply.body[1:])
        known = msgspec.msgpack.decode(make_introduction(later.membership, offer, later.me.session))
        message = state.write_message(msgspec.msgpack.encode([*known, "new", {"and": "more"}]))
        later.say(first, LinkKind.FINISH, cookie, message)
        [session] = first.transport.sessions
        assert (session.member.node, session.version, session.features) == (66, 1, 0)

    run(story())


# What may follow.


@pytest.mark.guarantee("key-in-session")
def test_the_key_to_the_group_goes_to_authenticated_neighbors_within_the_session(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)
        member = Attacker(air, OPERATOR.verifier(66).membership)
        reply = member.initiate(first)
        assert reply is not None
        assert member.of(LinkKind.SEALED) == [], "nothing before the third message"
        session = member.finish(first, reply)
        key = first.transport.group_key.key
        assert [text for text in member.decrypt_all(session) if text[:1] == GROUP_KEY] == [
            GROUP_KEY + bytes([first.transport.group_key.epoch]) + key
        ]
        for _, _, datagram in air.said:
            assert key not in datagram
            assert key not in datagram[LINK_HEADER_BYTES:]

    run(story())


@pytest.mark.guarantee("outsider-passive")
def test_who_listens_reads_no_card_key_or_word(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second, third = (Speaker(air, node) for node in (1, 2, 3))
        meet(air, first, second, third)
        first.say(b"to everybody")
        first.say(b"to the second", second.ear.address)
        air.carry()
        heard = b"".join(datagram for _, _, datagram in air.said)
        for speaker in (first, second, third):
            member = speaker.membership
            for part in (member.card, member.credential, member.identity.public, speaker.transport.group_key.key):
                assert part not in heard
        for word in (b"to everybody", b"to the second", b"beacon", b"node-1"):
            assert word not in heard
        assert (1).to_bytes(8, "big") in heard, "node ids can be seen"

    run(story())


@pytest.mark.guarantee("forward-secrecy")
@pytest.mark.parametrize("with_secret", [False, True])
def test_who_steals_the_keys_of_a_device_opens_nothing_that_was_recorded(with_secret: bool, run: Run) -> None:
    """The identity signs, and no key of a session comes from it: a start has a static key of its own, and a handshake
    an ephemeral one."""

    async def story() -> None:
        air = Air()
        if with_secret:
            first, second = secret_speaker(air, "a"), secret_speaker(air, "b")
            stolen = {first.node: secret_member("a"), second.node: secret_member("b")}
        else:
            first, second = Speaker(air, 1), Speaker(air, 2)
            stolen = {node: OPERATOR.verifier(node).membership for node in (1, 2)}
        meet(air, first, second)
        for speaker in (first, second):
            assert stolen[speaker.node].identity.public == speaker.membership.identity.public
            assert stolen[speaker.node].static.public != speaker.membership.static.public
        initiation, reply = frames(air, LinkKind.INITIATION)[-1], frames(air, LinkKind.REPLY)[-1]
        began, asked = (first, second) if initiation.sender == first.node else (second, first)
        # The thief has both devices, and the first message as it was.
        thief = start_handshake(stolen[began.node], True, OURS, began.transport._me, asked.node, initiation.sequence)
        thief.write_message(b"")
        thief._symmetric.hash = _hash_after_first(stolen[asked.node], began, asked, initiation)
        with pytest.raises(NoiseError):
            thief.read_message(reply.body[1:])

    run(story())


def _hash_after_first(stolen: Membership, began: Speaker, asked: Speaker, initiation: LinkFrame) -> bytes:
    """All who know the secret can follow the handshake so far."""
    state = start_handshake(stolen, False, OURS, began.transport._me, asked.node, initiation.sequence)
    state.read_message(initiation.body[INITIATION_BYTES:])
    return state.hash


# Before anything.


@pytest.mark.guarantee("cookies")
def test_nothing_is_computed_or_remembered_before_a_cookie_comes_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From as many addresses as somebody likes to write."""

    async def story() -> None:
        air = Air()
        first = Speaker(air, 1)

        def no_key() -> None:
            raise AssertionError("a key was computed")

        monkeypatch.setattr("carrycast.node.security.noise.DhKeyPair", no_key)
        network = first.membership.network
        kinds = [kind for kind in LinkKind if kind >= LinkKind.HELLO]
        for port in range(300):
            for kind in kinds:
                sent = pack(LinkFrame(kind, 66, 1, 99, (network + OURS.encode() + network).ljust(60, b"x")))
                if kind in (LinkKind.KEYED_CHALLENGE, LinkKind.KEYED_RESPONSE):
                    sent = sent[: LINK_HEADER_BYTES + 8]
                first.ear.hear(sent, ("elsewhere", port), False)
                answers, air.waiting = air.waiting, []
                assert sum(len(datagram) for _, _, datagram in answers) <= len(sent)
        greeting = first.transport._handshakes
        assert not greeting._initiated
        assert not greeting._responded
        assert not greeting._initiated_s
        assert not first.transport._by_address
        assert list(first.transport.sessions) == []

    run(story())


@pytest.mark.guarantee("replay")
def test_a_sealed_datagram_is_accepted_once_and_as_it_was_sealed(run: Run) -> None:
    async def story() -> None:
        air = Air()
        first, second = Speaker(air, 1), Speaker(air, 2)
        meet(air, first, second)
        second.heard.clear()
        first.say(b"word", second.ear.address)
        [(origin, _, datagram)] = air.waiting
        air.waiting.clear()
        waited = range(LINK_HEADER_BYTES - 4, LINK_HEADER_BYTES)
        for at in range(2, len(datagram)):
            if at not in waited:
                second.ear.hear(datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :], origin, False)
        assert second.heard == []
        second.dropped.clear()
        for _ in range(3):
            second.ear.hear(datagram, origin, False)
        assert second.heard == [(1, b"word")]
        assert second.dropped.count("link_repeated") == 2

    run(story())
