"""Signatures of events: the publisher signs an event, and every node verifies it before its protocol handles it.

The signature is appended to the payload, so that protocols, stores and routers need not know about it: payload,
credential of the publisher, signature, length of the credential. Applications get the payload alone. The signature is
over the whole event with its original payload. Hops and remaining lease change on the way, so they are not signed.

To sign and to verify takes longer than everything else that a node does for an event. So up to `signature_batch` events
that are published at the same time share one batch signature (`batch_signature.py`). Each then has an inclusion proof
after the signature: payload, credential, signature, siblings, directions (1 byte), number of siblings (1 byte), and the
length of the credential with its highest bit set.

A node verifies each signature once, of an event or of a batch. It remembers a verified event by a digest of all its
bytes, so that another event with the same id is verified again.
"""

import enum
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import msgspec

from carrycast.core.model import Event, EventId
from carrycast.errors import NotAuthorizedError, UserError
from carrycast.node.security.batch_signature import SIBLING_BYTES, InclusionProof, build_merkle_tree, merkle_root
from carrycast.node.security.identity import SIGNATURE_BATCH
from carrycast.node.security.membership import Member, Membership, Rejection
from carrycast.node.security.primitives import SIGNATURE_BYTES, digest, is_signed_by

LENGTH_BYTES = 2
WITH_PROOF = 1 << 15
"""The bit in the length of the credential that marks an event with an inclusion proof."""
MAX_SIGNED_BYTES = 62_000
"""The longest event with its signature: it fits in a datagram that is encrypted for a group of 200 neighbors."""
MAX_REMEMBERED = 65_536
"""The most verified events that are remembered. An event that was forgotten is verified again."""
MAX_ROOTS = 4096
"""The most verified batch signatures that are remembered."""

_encode = msgspec.msgpack.Encoder().encode
_replace = msgspec.structs.replace


class EventFlaw(enum.StrEnum):
    """The reasons for which a network with keys rejects events, as in the drops of a trace."""

    UNSIGNED = "event_unsigned"
    STRANGER = "event_of_a_stranger"
    EXPIRED = "event_certificate_expired"
    REVOKED = "event_of_a_revoked_node"
    FORGED = "event_forged"
    NOT_ALLOWED = "event_not_allowed"


_OF_REFUSAL = {
    Rejection.MALFORMED: EventFlaw.UNSIGNED,
    Rejection.STRANGER: EventFlaw.STRANGER,
    Rejection.EXPIRED: EventFlaw.EXPIRED,
    Rejection.REVOKED: EventFlaw.REVOKED,
}


class EventSignatures:
    """Signs the events of one node, and verifies the events of all nodes."""

    def __init__(self, membership: Membership, batch: int = SIGNATURE_BATCH) -> None:
        self._membership = membership
        self._batch = batch
        self._verified: OrderedDict[EventId, tuple[bytes, float]] = OrderedDict()
        """The digest of each verified event, and until when the event is accepted."""
        self._roots: OrderedDict[tuple[bytes, bytes, bytes], None] = OrderedDict()
        """The verified batch signatures, by public key, signature and Merkle root."""
        self._last: Event | None = None
        """The event that was verified last. The codec and the application layer often verify the same object."""
        self._last_until_s = 0.0
        self._last_stripped: Event | None = None
        membership.changed.append(self._forget)

    def sign(self, events: Sequence[Event]) -> list[Event | UserError]:
        """Sign events; in place of an event that this node may not publish, the error."""
        problem = self._membership.find_problem()
        if problem is not None:
            return [NotAuthorizedError(f"event: {problem}") for _ in events]
        mine = self._membership.mine
        signed: list[Event | UserError] = []
        for at in range(0, len(events), self._batch):
            group = events[at : at + self._batch]
            may = [_may_publish(mine, event) for event in group]
            allowed = list(compress(group, may))
            ready = iter(self._sign_batch(allowed) if len(allowed) > 1 else map(self._sign_alone, allowed))
            signed += [next(ready) if this else self._make_authorization_error() for this in may]
        return signed

    def verify(self, event: Event) -> EventFlaw | None:
        """Verify a received event; the reason if it is rejected, None if its signature is valid."""
        now_s = time.time()
        if event is self._last and now_s < self._last_until_s:
            return None
        known = self._verified.get(event.id)
        if known is not None and now_s < known[1] and known[0] == digest(_encode(event)):
            return None
        parts = _split(event)
        if parts is None:
            return EventFlaw.UNSIGNED
        member = self._membership.verify_publisher(parts.credential, parts.plain)
        if isinstance(member, Rejection):
            return _OF_REFUSAL[member]
        if member.node != event.id.source or not self._is_signed_by(member.key, parts):
            return EventFlaw.FORGED
        if not _may_publish(member, parts.plain):
            return EventFlaw.NOT_ALLOWED
        self._remember(event, _encode(event), member.accepted_until_s(event))
        self._last_stripped = parts.plain
        return None

    def strip(self, event: Event) -> Event:
        """Return a verified event without its signature, for applications."""
        return (
            self._last_stripped if event is self._last and self._last_stripped is not None else strip_signature(event)
        )

    def _sign_alone(self, event: Event) -> Event | UserError:
        return self._attach(event, self._membership.identity.sign(b"event", _encode(event)))

    def _sign_batch(self, events: Sequence[Event]) -> list[Event | UserError]:
        root, proofs = build_merkle_tree([_encode(event) for event in events])
        signature = self._membership.identity.sign(b"events", root)
        return [self._attach(event, signature, proof) for event, proof in zip(events, proofs, strict=True)]

    def _attach(self, event: Event, signature: bytes, proof: InclusionProof | None = None) -> Event | UserError:
        credential = self._membership.credential
        length, behind = len(credential), b""
        if proof is not None:
            length |= WITH_PROOF
            behind = proof.siblings + bytes((proof.directions, len(proof.siblings) // SIBLING_BYTES))
        tail = credential + signature + behind + length.to_bytes(LENGTH_BYTES, "big")
        signed = _replace(event, payload=event.payload + tail)
        text = _encode(signed)
        if len(text) > MAX_SIGNED_BYTES:
            if proof is not None:  # The event may fit without the proof.
                return self._sign_alone(event)
            return UserError(
                f"event: it has {len(text)} bytes with its signature, and at most {MAX_SIGNED_BYTES} fit in a datagram"
            )
        self._remember(signed, text, self._membership.mine.accepted_until_s(event))
        return signed

    def _make_authorization_error(self) -> UserError:
        may = self._membership.mine.publish
        return NotAuthorizedError(f"event: this node may publish only what matches {may} (its certificate says so)")

    def _is_signed_by(self, key: bytes, parts: "_SignedEvent") -> bool:
        text = _encode(parts.plain)
        if parts.proof is None:
            return is_signed_by(key, parts.signature, b"event", text)
        root = merkle_root(text, parts.proof)
        known = (key, parts.signature, root)
        if known in self._roots:
            return True
        if not is_signed_by(key, parts.signature, b"events", root):
            return False
        self._roots[known] = None
        if len(self._roots) > MAX_ROOTS:
            self._roots.popitem(last=False)
        return True

    def _forget(self) -> None:
        self._verified.clear()
        self._roots.clear()
        self._last = self._last_stripped = None

    def _remember(self, event: Event, text: bytes, until_s: float) -> None:
        self._last, self._last_until_s, self._last_stripped = event, until_s, None
        self._verified[event.id] = (digest(text), until_s)
        if len(self._verified) > MAX_REMEMBERED:
            self._verified.popitem(last=False)


def strip_signature(event: Event) -> Event:
    """Return an event without its signature."""
    parts = _split(event)
    return event if parts is None else parts.plain


class _SignedEvent(NamedTuple):
    """The parts of a signed event."""

    plain: Event
    credential: bytes
    signature: bytes
    proof: InclusionProof | None


def _split(event: Event) -> _SignedEvent | None:
    """Split a signed event into its parts; None if it has no signature."""
    payload = event.payload
    end = len(payload) - LENGTH_BYTES
    length = int.from_bytes(payload[-LENGTH_BYTES:], "big")
    proof: InclusionProof | None = None
    if length & WITH_PROOF:
        length ^= WITH_PROOF
        if end < 2:
            return None
        directions, number = payload[end - 2 : end]
        behind = end - 2
        end = behind - number * SIBLING_BYTES
        if end < 0:
            return None
        proof = InclusionProof(payload[end:behind], directions)
        if not proof.is_well_formed:
            return None
    credential_at = end - SIGNATURE_BYTES - length
    if credential_at < 0 or length == 0:
        return None
    signature_at = credential_at + length
    made = _replace(event, payload=payload[:credential_at])
    return _SignedEvent(made, payload[credential_at:signature_at], payload[signature_at:end], proof)


def _may_publish(member: Member, event: Event) -> bool:
    return member.publish is None or member.publish.matches(event.attributes)
