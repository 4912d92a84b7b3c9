"""Signatures of events: the publisher signs, and every node verifies before its protocol sees the event.

The signature travels at the end of the payload, so that protocols, stores and routers carry it without knowing:
payload, credential of the publisher, signature, length of the credential. Applications get the payload alone. The
signature is over the whole event with its own payload; hops and the rest of a lease change on the way, and are not
signed.

To sign and to verify takes longer than everything else that is done for an event. So events that are published at the
same time share one batch signature, as far as `signature_batch` allows: each has the same signature, and behind it an
inclusion proof (`batch_signature.py`): payload, credential, signature, siblings of the proof, its directions and number
of siblings in a byte each, and the length with its highest bit set.

A signature is verified once per node, be it of one event or of a batch. Verified events are remembered by a digest of
all of their bytes, so that another event under the same id is verified again.
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
from carrycast.node.security.batch_signature import STEP_BYTES, Path, planted, top
from carrycast.node.security.identity import TOGETHER
from carrycast.node.security.membership import Member, Membership, Rejection
from carrycast.node.security.primitives import SIGNATURE_BYTES, digest, is_signed_by

LENGTH_BYTES = 2
WITH_PATH = 1 << 15
"""In the length of the credential: the event was signed together with others."""
MAX_SIGNED_BYTES = 62_000
"""What a datagram leaves for an event with its signature, sealed to a group of 200 neighbors."""
MAX_REMEMBERED = 65_536
"""Events whose signature was found good. One that is met again later is verified again."""
MAX_TOPS = 4096
"""Signatures of several events that were found good."""

_encode = msgspec.msgpack.Encoder().encode
_replace = msgspec.structs.replace


class EventFlaw(enum.StrEnum):
    """Why an event does not count in a network with keys. These are the reasons of drops in the trace."""

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


class Signatures:
    """Signs the events of one node, and judges those of all."""

    def __init__(self, membership: Membership, together: int = TOGETHER) -> None:
        self._membership = membership
        self._together = together
        self._good: OrderedDict[EventId, tuple[bytes, float]] = OrderedDict()
        """Digest of each, and until when it is accepted."""
        self._tops: OrderedDict[tuple[bytes, bytes, bytes], None] = OrderedDict()
        """By key, signature and what was signed."""
        self._last: Event | None = None
        """The one found good last: between a codec and an application it is the same object."""
        self._last_until_s = 0.0
        self._last_plain: Event | None = None
        membership.changed.append(self._forget)

    def sign(self, events: Sequence[Event]) -> list[Event | UserError]:
        """The events as they travel, or why this node may not publish one."""
        trouble = self._membership.trouble()
        if trouble is not None:
            return [NotAuthorizedError(f"event: {trouble}") for _ in events]
        mine = self._membership.mine
        signed: list[Event | UserError] = []
        for at in range(0, len(events), self._together):
            group = events[at : at + self._together]
            may = [_allowed(mine, event) for event in group]
            allowed = list(compress(group, may))
            ready = iter(self._signed_together(allowed) if len(allowed) > 1 else map(self._signed_alone, allowed))
            signed += [next(ready) if this else self._not_allowed() for this in may]
        return signed

    def flaw(self, event: Event) -> EventFlaw | None:
        """What is wrong with an event that has come."""
        now_s = time.time()
        if event is self._last and now_s < self._last_until_s:
            return None
        known = self._good.get(event.id)
        if known is not None and now_s < known[1] and known[0] == digest(_encode(event)):
            return None
        parts = _taken_apart(event)
        if parts is None:
            return EventFlaw.UNSIGNED
        member = self._membership.publisher(parts.credential, parts.plain)
        if isinstance(member, Rejection):
            return _OF_REFUSAL[member]
        if member.node != event.id.source or not self._signed_by(member.key, parts):
            return EventFlaw.FORGED
        if not _allowed(member, parts.plain):
            return EventFlaw.NOT_ALLOWED
        self._remember(event, _encode(event), member.accepted_until_s(event))
        self._last_plain = parts.plain
        return None

    def plain(self, event: Event) -> Event:
        """The event as its publisher made it, for applications; it was found good."""
        return self._last_plain if event is self._last and self._last_plain is not None else plain(event)

    def _signed_alone(self, event: Event) -> Event | UserError:
        return self._travelling(event, self._membership.identity.sign(b"event", _encode(event)))

    def _signed_together(self, events: Sequence[Event]) -> list[Event | UserError]:
        found, paths = planted([_encode(event) for event in events])
        signature = self._membership.identity.sign(b"events", found)
        return [self._travelling(event, signature, path) for event, path in zip(events, paths, strict=True)]

    def _travelling(self, event: Event, signature: bytes, path: Path | None = None) -> Event | UserError:
        credential = self._membership.credential
        length, behind = len(credential), b""
        if path is not None:
            length |= WITH_PATH
            behind = path.steps + bytes((path.turns, len(path.steps) // STEP_BYTES))
        tail = credential + signature + behind + length.to_bytes(LENGTH_BYTES, "big")
        signed = _replace(event, payload=event.payload + tail)
        text = _encode(signed)
        if len(text) > MAX_SIGNED_BYTES:
            if path is not None:  # Without the path it may still fit.
                return self._signed_alone(event)
            return UserError(
                f"event: it has {len(text)} bytes with its signature, and at most {MAX_SIGNED_BYTES} fit in a datagram"
            )
        self._remember(signed, text, self._membership.mine.accepted_until_s(event))
        return signed

    def _not_allowed(self) -> UserError:
        may = self._membership.mine.publish
        return NotAuthorizedError(f"event: this node may publish only what matches {may} (its certificate says so)")

    def _signed_by(self, key: bytes, parts: "_Parts") -> bool:
        text = _encode(parts.plain)
        if parts.path is None:
            return is_signed_by(key, parts.signature, b"event", text)
        found = top(text, parts.path)
        known = (key, parts.signature, found)
        if known in self._tops:
            return True
        if not is_signed_by(key, parts.signature, b"events", found):
            return False
        self._tops[known] = None
        if len(self._tops) > MAX_TOPS:
            self._tops.popitem(last=False)
        return True

    def _forget(self) -> None:
        self._good.clear()
        self._tops.clear()
        self._last = self._last_plain = None

    def _remember(self, event: Event, text: bytes, until_s: float) -> None:
        self._last, self._last_until_s, self._last_plain = event, until_s, None
        self._good[event.id] = (digest(text), until_s)
        if len(self._good) > MAX_REMEMBERED:
            self._good.popitem(last=False)


def plain(event: Event) -> Event:
    """The event as its publisher made it, for applications."""
    parts = _taken_apart(event)
    return event if parts is None else parts.plain


class _Parts(NamedTuple):
    """Of an event that was signed."""

    plain: Event
    credential: bytes
    signature: bytes
    path: Path | None


def _taken_apart(event: Event) -> _Parts | None:
    """The event without signature, the credential, the signature; None if it has none."""
    payload = event.payload
    end = len(payload) - LENGTH_BYTES
    length = int.from_bytes(payload[-LENGTH_BYTES:], "big")
    path: Path | None = None
    if length & WITH_PATH:
        length ^= WITH_PATH
        if end < 2:
            return None
        turns, number = payload[end - 2 : end]
        behind = end - 2
        end = behind - number * STEP_BYTES
        if end < 0:
            return None
        path = Path(payload[end:behind], turns)
        if not path.fits:
            return None
    credential_at = end - SIGNATURE_BYTES - length
    if credential_at < 0 or length == 0:
        return None
    signature_at = credential_at + length
    made = _replace(event, payload=payload[:credential_at])
    return _Parts(made, payload[credential_at:signature_at], payload[signature_at:end], path)


def _allowed(member: Member, event: Event) -> bool:
    return member.publish is None or member.publish.matches(event.attributes)
