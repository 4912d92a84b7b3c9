"""Events signed by their publisher, and shown to be so wherever they come by.

The signature travels at the end of the payload, so that protocols, stores and routers carry it without knowing:
payload, voucher of the publisher, signature, length of the voucher. Applications are handed the payload alone. What is
signed is the whole event with its own payload; hops and what is left of a lease change on the way, and are not.

A signature is verified once per event and node. What was found good is remembered by a digest of all of it, so that
another event under the same id is looked at anew.
"""

import enum
from collections import OrderedDict

import msgspec

from driftcast.errors import UserError
from driftcast.live.keys.membership import Member, Membership, Refusal
from driftcast.live.keys.primitives import SIGNATURE_BYTES, digest, signed_by
from driftcast.model import Event, EventId

LENGTH_BYTES = 2
MAX_SIGNED_BYTES = 62_000
"""What a datagram leaves for an event with its signature, sealed to a group of 200 neighbors."""
MAX_REMEMBERED = 65_536
"""Events whose signature was found good. One that is met again later is verified again."""

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
    Refusal.MALFORMED: EventFlaw.UNSIGNED,
    Refusal.STRANGER: EventFlaw.STRANGER,
    Refusal.EXPIRED: EventFlaw.EXPIRED,
    Refusal.REVOKED: EventFlaw.REVOKED,
}


class Signatures:
    """Signs the events of one node, and judges those of all."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._good: OrderedDict[EventId, bytes] = OrderedDict()
        self._last: Event | None = None
        """The one found good last: between a codec and an application it is the same object."""
        membership.changed.append(self._forget)

    def sign(self, event: Event) -> Event:
        """The event as it travels; a UserError if this node may not publish it."""
        mine = self._membership.mine
        if not _allowed(mine, event):
            raise UserError(f"event: this node may publish only what matches {mine.publish} (its certificate says so)")
        voucher = self._membership.voucher
        signature = self._membership.identity.sign(b"event", _encode(event))
        length = len(voucher).to_bytes(LENGTH_BYTES, "big")
        signed = _replace(event, payload=event.payload + voucher + signature + length)
        text = _encode(signed)
        if len(text) > MAX_SIGNED_BYTES:
            raise UserError(
                f"event: it has {len(text)} bytes with its signature, and at most {MAX_SIGNED_BYTES} fit in a datagram"
            )
        self._remember(signed, text)
        return signed

    def flaw(self, event: Event) -> EventFlaw | None:
        """What is wrong with an event that has come."""
        if event is self._last:
            return None
        known = self._good.get(event.id)
        if known is not None and known == digest(_encode(event)):
            return None
        parts = _taken_apart(event)
        if parts is None:
            return EventFlaw.UNSIGNED
        plain, voucher, signature = parts
        member = self._membership.member(voucher)
        if isinstance(member, Refusal):
            return _OF_REFUSAL[member]
        if member.node != event.id.source or not signed_by(member.key, signature, b"event", _encode(plain)):
            return EventFlaw.FORGED
        if not _allowed(member, plain):
            return EventFlaw.NOT_ALLOWED
        self._remember(event, _encode(event))
        return None

    def _forget(self) -> None:
        self._good.clear()
        self._last = None

    def _remember(self, event: Event, text: bytes) -> None:
        self._last = event
        self._good[event.id] = digest(text)
        if len(self._good) > MAX_REMEMBERED:
            self._good.popitem(last=False)


def plain(event: Event) -> Event:
    """The event as its publisher made it, for applications."""
    parts = _taken_apart(event)
    return event if parts is None else parts[0]


def _taken_apart(event: Event) -> tuple[Event, bytes, bytes] | None:
    """The event without signature, the voucher, the signature; None if it has none."""
    payload = event.payload
    length = int.from_bytes(payload[-LENGTH_BYTES:], "big")
    voucher_at = len(payload) - LENGTH_BYTES - SIGNATURE_BYTES - length
    if voucher_at < 0 or length == 0:
        return None
    signature_at = voucher_at + length
    made = _replace(event, payload=payload[:voucher_at])
    return made, payload[voucher_at:signature_at], payload[signature_at:-LENGTH_BYTES]


def _allowed(member: Member, event: Event) -> bool:
    return member.publish is None or member.publish.matches(event.attributes)
