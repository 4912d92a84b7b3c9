"""Verification of received messages: events must be signed, subscriptions and requests certified and authorized.

Verification is part of the codecs, because everything from the network is decoded by them: also the parcels of routers,
and the messages that a protocol assembles from fragments (`Host.decoder`).
"""

import base64
import binascii
import enum
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, Request, Scalar, Subscription
from carrycast.core.protocol import StackPlan
from carrycast.core.wire import Codec, DecodeError, EventMessage, Layer, Message, Parcel
from carrycast.errors import UserError
from carrycast.node.security.certificate import MAX_CERTIFICATE_BYTES
from carrycast.node.security.event_signatures import EventFlaw, EventSignatures
from carrycast.node.security.identity import SIGNATURE_BATCH
from carrycast.node.security.membership import Certified, Member, Membership, Rejection
from carrycast.node.security.primitives import is_signed_by

CERTIFICATE = "$certificate"
"""The attribute of a subscription or a request that contains the certificate of its node."""
SIGNATURE = "$signature"
"""The attribute of a request, or of a subscription with history, that contains the signature of its node."""


LAPSED = frozenset({EventFlaw.EXPIRED, EventFlaw.REVOKED})
"""The flaws that valid events may get while nodes carry them."""

T = TypeVar("T")
Asking = TypeVar("Asking", bound=Subscription | Request)


class SubscriptionFlaw(enum.StrEnum):
    """The reasons for which a network with an operator rejects subscriptions."""

    UNCERTIFIED = "subscription_uncertified"
    NOT_ALLOWED = "subscription_not_allowed"


class RequestFlaw(enum.StrEnum):
    """The reasons for which a network with an operator rejects requests for stored events."""

    UNCERTIFIED = "request_uncertified"
    NOT_ALLOWED = "request_not_allowed"


class MessageVerifier:
    """Verifies the events, subscriptions and requests that messages carry."""

    def __init__(self, membership: Membership, batch: int = SIGNATURE_BATCH) -> None:
        self.membership = membership
        self.signatures = EventSignatures(membership, batch)
        self.on_drop: Callable[[str], None] = lambda reason: None
        """Called with the reason for which a part of a message is removed."""
        self._fields: dict[type[msgspec.Struct], tuple[str, ...]] = {}

    def add_verification(self, plan: StackPlan) -> StackPlan:
        """Return the same stack with codecs that verify."""
        verified = StackPlan(plan.protocol, plan.settings, plan.router, plan.router_settings, plan.beacons)
        verified.overhears = plan.overhears
        inner = _VerifyingCodec(verified.codecs[Layer.DISSEMINATION], self._verify, self._verify_assembled)
        verified.codecs[Layer.DISSEMINATION] = inner

        def open_parcels(message: T) -> T:
            for parcel in self._find_parcels(message):
                inner.decode(parcel.body)
            return message

        if Layer.ROUTING in verified.codecs:
            verified.codecs[Layer.ROUTING] = _VerifyingCodec(verified.codecs[Layer.ROUTING], open_parcels, open_parcels)
        return verified

    def attach_certificate(self, asking: Asking) -> Asking:
        """Add the certificate of this node to its subscription or request."""
        if not isinstance(self.membership, Certified):
            return asking
        attributes = {**asking.attributes, CERTIFICATE: base64.b64encode(self.membership.credential).decode()}
        # Every node that has received an event of this node knows its certificate, and could send a request in its name
        # to make others send answers to it. So requests are signed.
        if isinstance(asking, Request) or asking.history:
            signature = self.membership.identity.sign(b"claim", _encode_claim(attributes))
            attributes[SIGNATURE] = base64.b64encode(signature).decode()
        return msgspec.structs.replace(asking, attributes=attributes)

    def check_own_subscription(self, filter: str, attributes: Mapping[str, Scalar] | None) -> None:
        """Raise a UserError if this node is not authorized to subscribe to a filter, or claims an attribute that its
        certificate does not have."""
        mine = self.membership.mine
        if mine.subscribe is not None and not mine.subscribe.covers(Filter(filter)):
            raise UserError(f"this node may ask only for what matches {mine.subscribe} (its certificate says so)")
        if isinstance(self.membership, Certified):
            for name, value in (attributes or {}).items():
                if not _is_same(mine.attributes.get(name), value):
                    raise UserError(
                        f"subscription: attribute {name}={value} is not in this node's certificate; the operator "
                        f"says what may be claimed: carrycast keys certify --attribute"
                    )

    def _verify(self, message: T) -> T:
        """Return a message without its rejected parts; a DecodeError if the whole message is rejected."""
        self._check_claim(message)
        # Most messages carry one event and nothing else to verify.
        if isinstance(message, EventMessage) and self._find_carrying_fields(type(message)) == ("event",):
            self._check(message.event, frozenset())
            return message
        return self._filter(message, frozenset())

    def _verify_assembled(self, found: T) -> T:
        """The same for a message that was assembled from fragments. The fragments are acknowledged already, and later
        messages of the channel wait for this one. So events that were valid when they were sent stay in the message,
        and are dropped when they are delivered."""
        self._check_claim(found)
        return self._filter(found, LAPSED)

    def _filter(self, value: T, but: frozenset[EventFlaw]) -> T:
        """Return a value without the rows of its lists whose subscriptions are rejected: an expired certificate must
        not affect the other rows. A DecodeError for every other rejection."""
        if isinstance(value, Event | Subscription):
            self._check(value, but)
        elif isinstance(value, msgspec.Struct):
            before = {name: getattr(value, name) for name in self._find_carrying_fields(type(value))}
            after = {name: self._filter(one, but) for name, one in before.items()}
            if any(after[name] is not before[name] for name in before):
                return msgspec.structs.replace(value, **after)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._filter(one, but) for one in value))
        elif isinstance(value, tuple | list):
            return type(value)(self._filter_rows(value, but))
        elif isinstance(value, dict):
            return type(value)((key, self._filter(one, but)) for key, one in value.items())
        return value

    def _filter_rows(self, rows: Sequence[object], but: frozenset[EventFlaw]) -> Iterator[object]:
        for row in rows:
            try:
                yield self._filter(row, but)
            except DecodeError as error:
                # A subscription is not removed from a tuple itself, which would then be malformed.
                if isinstance(row, Subscription) or not isinstance(error.flaw, SubscriptionFlaw):
                    raise
                self.on_drop(error.flaw)

    def _check(self, found: Event | Subscription, but: frozenset[EventFlaw]) -> None:
        flaw: enum.StrEnum | None
        if isinstance(found, Event):
            flaw = self.signatures.verify(found)
        else:
            flaw = self._check_authorization(found, SubscriptionFlaw)
        if flaw is not None and flaw not in but:
            raise DecodeError(flaw)

    def _check_claim(self, found: object) -> None:
        claim = found.claim() if isinstance(found, Message) else None
        flaw = None if claim is None else self._check_authorization(claim, RequestFlaw)
        if flaw is not None:
            raise DecodeError(flaw)

    def _check_authorization(
        self, claim: Subscription, flaws: type[SubscriptionFlaw] | type[RequestFlaw]
    ) -> SubscriptionFlaw | RequestFlaw | None:
        if not isinstance(self.membership, Certified):
            return None
        credential = _decode_attribute(claim.attributes, CERTIFICATE)
        member = Rejection.MALFORMED if credential is None else self.membership.verify_credential(credential)
        if isinstance(member, Rejection) or member.node != claim.subscriber:
            return flaws.UNCERTIFIED
        try:
            covered = member.subscribe is None or member.subscribe.covers(Filter(claim.filter))
        except FilterError:
            covered = False
        claimed = all(
            name in (CERTIFICATE, SIGNATURE) or _is_same(member.attributes.get(name), value)
            for name, value in claim.attributes.items()
        )
        if not covered or not claimed:
            return flaws.NOT_ALLOWED
        return flaws.UNCERTIFIED if flaws is RequestFlaw and not _is_signed(member, claim.attributes) else None

    def _find_parcels(self, value: object) -> Iterator[Parcel]:
        if isinstance(value, Parcel):
            yield value
        elif isinstance(value, tuple | list | dict):
            for one in value.values() if isinstance(value, dict) else value:
                yield from self._find_parcels(one)
        elif isinstance(value, msgspec.Struct):
            for name in self._find_carrying_fields(type(value)):
                yield from self._find_parcels(getattr(value, name))

    def _find_carrying_fields(self, kind: type[msgspec.Struct]) -> tuple[str, ...]:
        """Return the fields of a message type that can carry an event, a subscription or a parcel."""
        known = self._fields.get(kind)
        if known is None:
            hints = typing.get_type_hints(kind)
            known = self._fields[kind] = tuple(
                name for name in kind.__struct_fields__ if _can_carry(hints[name], frozenset())
            )
        return known


class _VerifyingCodec(Codec):
    """A codec that verifies every message that it decodes."""

    def __init__(self, codec: Codec, verify: Callable[[Message], Message], assembled: Callable[[Any], Any]) -> None:
        super().__init__(codec.layer, codec.name, codec.messages)
        self._verify = verify
        self._verify_assembled = assembled

    def decode(self, frame: bytes) -> Message:
        return self._verify(super().decode(frame))

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        read, verify = super().decoder(kinds), self._verify_assembled
        return lambda body: verify(read(body))


def _can_carry(hint: object, seen: frozenset[object]) -> bool:
    """Whether a type can carry an event, a subscription or a parcel."""
    if hint in (Event, Subscription, Parcel):
        return True
    if isinstance(hint, type) and hint not in seen and (issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields")):
        return any(_can_carry(inner, seen | {hint}) for inner in typing.get_type_hints(hint).values())
    return any(_can_carry(inner, seen) for inner in typing.get_args(hint))


def _decode_attribute(attributes: Mapping[str, Scalar], name: str) -> bytes | None:
    text = attributes.get(name)
    if not isinstance(text, str) or len(text) > 2 * MAX_CERTIFICATE_BYTES:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None


def _encode_claim(attributes: Mapping[str, Scalar]) -> bytes:
    """Encode the signed part of a claim: not the filter, because brokers split requests among repositories."""
    return msgspec.msgpack.encode(sorted(item for item in attributes.items() if item[0] != SIGNATURE))


def _is_signed(member: Member, attributes: Mapping[str, Scalar]) -> bool:
    signature = _decode_attribute(attributes, SIGNATURE)
    return signature is not None and is_signed_by(member.key, signature, b"claim", _encode_claim(attributes))


def _is_same(certified: Scalar | None, claimed: Scalar) -> bool:
    """Whether two values are equal and of the same type: in Python `True` is 1, in a filter it is not."""
    return type(certified) is type(claimed) and certified == claimed
