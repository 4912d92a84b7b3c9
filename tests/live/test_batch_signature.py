"""Events that are published at the same time share a signature, and each has an inclusion proof."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import Event, EventId
from carrycast.errors import UserError
from carrycast.node.security import event_signatures
from carrycast.node.security.batch_signature import (
    MAX_SIBLINGS,
    SIBLING_BYTES,
    InclusionProof,
    build_merkle_tree,
    merkle_root,
)
from carrycast.node.security.event_signatures import MAX_SIGNED_BYTES, EventFlaw, strip_signature
from carrycast.node.security.primitives import SIGNATURE_BYTES, is_signed_by
from tests.live.keyed import Operator, sign_event

OPERATOR = Operator()
_replace = msgspec.structs.replace


def events(number: int, source: int = 1) -> list[Event]:
    return [Event(EventId(source, n), {"n": n}, b"content") for n in range(number)]


def travelling(made: list[Event], signature_batch: int = 16) -> list[Event]:
    found = OPERATOR.verifier(1, signature_batch=signature_batch).signatures.sign(made)
    assert all(isinstance(one, Event) for one in found)
    return [one for one in found if isinstance(one, Event)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=40))
def test_every_text_leads_to_the_top(texts: list[bytes]) -> None:
    found, paths = build_merkle_tree(texts)
    for text, path in zip(texts, paths, strict=True):
        assert path.is_well_formed
        assert merkle_root(text, path) == found
        assert len(path.siblings) <= SIBLING_BYTES * (len(texts) - 1).bit_length()


@given(st.lists(st.binary(max_size=20), min_size=2, max_size=20), st.data())
def test_nothing_else_does(texts: list[bytes], data: st.DataObject) -> None:
    found, paths = build_merkle_tree(texts)
    at = data.draw(st.integers(0, len(texts) - 1))
    path = paths[at]
    other = data.draw(st.binary(max_size=20).filter(lambda text: text not in texts))
    assert merkle_root(other, path) != found
    bit = data.draw(st.integers(0, len(path.siblings) * 8 - 1))
    steps = bytearray(path.siblings)
    steps[bit // 8] ^= 1 << bit % 8
    assert merkle_root(texts[at], InclusionProof(bytes(steps), path.directions)) != found
    assert merkle_root(texts[at], InclusionProof(path.siblings[SIBLING_BYTES:], path.directions >> 1)) != found
    assert (
        merkle_root(path.siblings[:SIBLING_BYTES], InclusionProof(path.siblings[SIBLING_BYTES:], path.directions >> 1))
        != found
    ), "a digest is no text"


def test_a_tree_of_three_by_hand() -> None:
    def leaf(text: bytes) -> bytes:
        return merkle_root(text, InclusionProof(b"", 0))

    found, [a, b, c] = build_merkle_tree([b"a", b"b", b"c"])
    assert (a.siblings, a.directions) == (leaf(b"b") + leaf(b"c"), 0b00)
    assert (b.siblings, b.directions) == (leaf(b"a") + leaf(b"c"), 0b01)
    assert (c.siblings, c.directions) == (b"".join([merkle_root(b"a", InclusionProof(leaf(b"b"), 0))]), 0b1), (
        "the third has no sibling below"
    )
    assert (
        len(
            {
                found,
                leaf(b"a"),
                merkle_root(b"a", InclusionProof(leaf(b"b"), 0)),
                merkle_root(b"a", InclusionProof(leaf(b"b"), 1)),
            }
        )
        == 4
    )
    for number in (0, (1 << MAX_SIBLINGS) + 1):
        with pytest.raises(ValueError, match="1 to 256"):
            build_merkle_tree([b"x"] * number)


@pytest.mark.parametrize("number", [1, 2, 3, 15, 16, 17, 40])
def test_each_of_them_is_good_alone_and_in_any_order(number: int) -> None:
    made = events(number)
    sent = travelling(made)
    judge = OPERATOR.verifier(2).signatures
    for event, travelled in reversed(list(zip(made, sent, strict=True))):
        assert judge.verify(travelled) is None
        assert strip_signature(travelled) == event
    again = OPERATOR.verifier(2).signatures
    assert again.verify(sent[number // 2]) is None, "without the others"


def test_what_was_signed_one_by_one_before_is_still_verified() -> None:
    made = events(1)
    [sent] = travelling(made)
    assert len(sent.payload) == len(travelling(made, signature_batch=1)[0].payload), "one alone has no path"
    assert [len(one.payload) for one in travelling(events(3), signature_batch=1)] == [len(sent.payload)] * 3


def test_a_signature_of_many_is_made_and_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = travelling(events(40))
    signatures = {one.payload[-SIGNATURE_BYTES - 4 * SIBLING_BYTES - 4 :][:SIGNATURE_BYTES] for one in sent[:16]}
    assert len(signatures) == 1
    calls: list[bytes] = []

    def counted(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
        calls.append(purpose)
        return is_signed_by(public, signature, purpose, text)

    monkeypatch.setattr(event_signatures, "is_signed_by", counted)
    verifier = OPERATOR.verifier(2)
    for event in sent + sent:
        assert verifier.signatures.verify(event) is None
    assert calls == [b"events"] * 3, "16, 16 and 8"
    for changed in verifier.membership.changed:
        changed()
    assert verifier.signatures.verify(sent[0]) is None
    assert len(calls) == 4, "after a revocation nothing is taken for granted"


def test_what_was_not_among_them_is_forged() -> None:
    sent = travelling(events(16))
    judge = OPERATOR.verifier(2).signatures
    assert judge.verify(sent[3]) is None, "its signature is known to be good"
    one, other = sent[3], sent[4]
    tail = other.payload[len(b"content") :]
    for change in (
        {"attributes": {"n": 99}},
        {"id": EventId(1, 99)},
        {"payload": b"another" + one.payload[len(b"content") :]},
        {"payload": b"content" + tail},
    ):
        assert judge.verify(_replace(one, **change)) is EventFlaw.FORGED, change
    forged = Event(EventId(1, 500), {"n": 500}, b"content" + one.payload[len(b"content") :])
    assert judge.verify(forged) is EventFlaw.FORGED
    others = sign_event(OPERATOR.verifier(3).signatures, Event(EventId(3, 1), {"n": 1}))
    assert judge.verify(_replace(others, id=EventId(1, 1))) is EventFlaw.FORGED


def test_bytes_at_the_end_are_hostile() -> None:
    [one, *_] = travelling(events(16))
    judge = OPERATOR.verifier(2).signatures
    length = one.payload[-2:]
    for payload in (
        b"\x80\x00",
        b"\xff\xff",
        b"\x00\x80\x01",
        b"\x00\xff" + length,
        one.payload[:-4] + b"\x00\xff" + length,
        one.payload[:-4] + b"\xff\x04" + length,
        one.payload[:-4] + b"\x00\x09" + length,
        one.payload[:-4] + b"\x00\x00" + length,
    ):
        assert judge.verify(_replace(one, payload=payload)) is not None, payload[-6:]
    for at in range(len(b"content"), len(one.payload)):
        changed = bytearray(one.payload)
        changed[at] ^= 0x41
        assert judge.verify(_replace(one, payload=bytes(changed))) is not None, at


def test_one_that_may_not_be_published_does_not_hold_up_the_others() -> None:
    verifier = OPERATOR.verifier(1, publish="n < 3")
    found = verifier.signatures.sign(events(5))
    assert [isinstance(one, UserError) for one in found] == [False, False, False, True, True]
    judge = OPERATOR.verifier(2).signatures
    assert [judge.verify(one) for one in found if isinstance(one, Event)] == [None] * 3
    assert "only what matches" in str(found[3])


def test_what_fits_alone_and_not_with_a_path_goes_alone_and_what_does_not_fit_is_refused() -> None:
    tail = len(sign_event(OPERATOR.verifier(1).signatures, Event(EventId(1, 1), {}, b"")).payload)
    long = Event(EventId(1, 1), {}, bytes(MAX_SIGNED_BYTES - tail - 60))
    longer = Event(EventId(1, 2), {}, bytes(MAX_SIGNED_BYTES))
    found = OPERATOR.verifier(1).signatures.sign([*events(3), long, longer])
    judge = OPERATOR.verifier(2).signatures
    assert [judge.verify(one) for one in found if isinstance(one, Event)] == [None] * 4
    assert isinstance(found[3], Event)
    assert len(found[3].payload) == len(long.payload) + tail
    assert isinstance(found[4], UserError)
