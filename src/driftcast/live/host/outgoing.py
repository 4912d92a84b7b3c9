"""Events that applications of a node publish: checked before anybody sees them, and what can be promised of them."""

import time
from collections.abc import Mapping

import msgspec

from driftcast.errors import UserError
from driftcast.live.link.frame import MAX_BODY_BYTES
from driftcast.matching import Filter, FilterError
from driftcast.model import AccessPolicy, Event, EventId, Scalar
from driftcast.protocol import Protocol
from driftcast.protocol.optional import KeepsEvents

MAX_EVENT_BYTES = MAX_BODY_BYTES - 512
"""What a datagram leaves for an event when a message of any protocol is put around it."""


def checked_event(
    id: EventId, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, policy: AccessPolicy | None
) -> Event:
    """An event that every other node will accept, or a UserError."""
    try:
        encoded = msgspec.msgpack.encode(Event(id, dict(attributes), payload, time.time(), lease_s, policy))
        if len(encoded) > MAX_EVENT_BYTES:
            raise ValueError(f"it has {len(encoded)} bytes, and at most {MAX_EVENT_BYTES} fit in a datagram")
        # Decoding checks types and bounds, as it will everywhere else.
        return msgspec.msgpack.decode(encoded, type=Event)
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UserError(f"event: {error}") from None


def checked_policy(access: str) -> AccessPolicy:
    """Who may have an event, in canonical form, or a UserError."""
    try:
        return AccessPolicy(Filter(access).text)
    except FilterError as error:
        raise UserError(f"access: {error}") from None


def check_keeps(protocol: Protocol) -> None:
    """A UserError if a protocol does not keep on disk what is published."""
    if not isinstance(protocol, KeepsEvents):
        raise UserError(f"{protocol.name} keeps no events on disk; publish at level accepted, or run epidemic")
    if not protocol.durable:
        raise UserError(
            f"this node keeps events in memory only; say durable = true in [protocol] of its configuration, and name a "
            f"file in [store], so that {protocol.name} stores them"
        )
