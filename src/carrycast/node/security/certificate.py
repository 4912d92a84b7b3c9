"""Certificates: an operator's signed statement of a node's identity, authorizations and attributes (RFC 5280).

A certificate has a public part, its card: the id and key of the node, its validity period, and a salted digest of
everything else. The operator signs the card, so that the card can be sent without the rest. In a handshake, a node
sends its card, which proves its membership and reveals nothing else to a peer that is not authenticated yet. The whole
certificate, with name, authorizations and attributes, is sent only to members: with events, subscriptions and requests.
Because of the salt, a node that knows a card cannot guess the rest.

Certificate and card are MessagePack arrays; the signature is the last element.
"""

import secrets
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.matching import Filter
from carrycast.core.model import FilterText, NodeId, Scalar, check_attributes
from carrycast.errors import UserError
from carrycast.node.security.primitives import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey, digest, is_signed_by

MAX_CERTIFICATE_BYTES = 2048
"""A certificate is part of every event and, in base64, one attribute of a subscription."""
SALT_BYTES = 16
DIGEST_BYTES = 32
FORMAT = 2
DAY_S = 86_400.0
GRACE_S = 7 * DAY_S
"""The default grace period: how long after the end of a certificate events are accepted that were signed before. A week
is longer than most events are carried, and bounds the use of a stolen key."""

Time = Annotated[float, Meta(ge=0, le=1e12)]
PublicKey = Annotated[bytes, Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Format = Annotated[int, Meta(ge=FORMAT, le=FORMAT)]


class Card(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The public part of a certificate."""

    format: Format
    node: NodeId
    key: PublicKey
    issued_s: Time
    expires_s: Time
    grace_s: Time
    details: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    """The salted digest of the rest of the certificate."""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A whole certificate, with or without its signature."""

    format: Format
    node: NodeId
    key: PublicKey
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    issued_s: Time
    expires_s: Time
    publish: FilterText | None = None
    """The filter of the events that the node is authorized to publish; None for any."""
    subscribe: FilterText | None = None
    """The filter that covers its authorized subscriptions and requests; None for any."""
    attributes: dict[str, Scalar] = {}
    """The attributes that the node's subscribers may claim to access policies."""
    grace_s: Time = GRACE_S
    """How long after `expires_s` events are accepted that were signed before."""
    salt: Annotated[bytes, Meta(max_length=SALT_BYTES)] = b""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)

    @property
    def card(self) -> Card:
        """The public part, with the same signature."""
        rest = _encode((self.name, self.publish, self.subscribe, self.attributes))
        details = digest(b"certificate details", self.salt, rest)
        return Card(
            self.format, self.node, self.key, self.issued_s, self.expires_s, self.grace_s, details, self.signature
        )


_encode = msgspec.msgpack.Encoder().encode
_certificates: msgspec.msgpack.Decoder[Certificate] = msgspec.msgpack.Decoder(Certificate)
_cards: msgspec.msgpack.Decoder[Card] = msgspec.msgpack.Decoder(Card)
_replace = msgspec.structs.replace


def issue_certificate(operator: SigningKey, certificate: Certificate) -> bytes:
    """Sign and encode a certificate; a UserError says what is wrong with it."""
    try:
        for filter in (certificate.publish, certificate.subscribe):
            Filter(filter or "")
        salted = _replace(certificate, signature=b"", salt=secrets.token_bytes(SALT_BYTES))
        checked = _certificates.decode(_encode(salted))
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise UserError(f"certificate: {error}") from None
    issued = _encode(_replace(checked, signature=operator.sign(b"certificate", _encode(checked.card))))
    if len(issued) > MAX_CERTIFICATE_BYTES:
        raise UserError(
            f"certificate: it has {len(issued)} bytes, and at most {MAX_CERTIFICATE_BYTES} travel with each event; "
            f"give it shorter filters or fewer attributes"
        )
    return issued


def read_certificate(text: bytes) -> Certificate | None:
    """Decode a certificate without verifying it; None if it is malformed."""
    if len(text) > MAX_CERTIFICATE_BYTES:
        return None
    try:
        return _certificates.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read_card(text: bytes) -> Card | None:
    """Decode a card without verifying it; None if it is malformed."""
    try:
        return _cards.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def encode_card(certificate: Certificate) -> bytes:
    """Encode the card of a certificate."""
    return _encode(certificate.card)


def is_issued_by(operator: bytes, card: Card) -> bool:
    """Whether an operator has signed a card."""
    return is_signed_by(operator, card.signature, b"certificate", _encode(_replace(card, signature=b"")))


def explain_unreadable(text: bytes) -> str:
    """Explain to the owner of a node why a certificate cannot be read."""
    try:
        format = msgspec.msgpack.decode(text)[0]
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError):
        format = None
    if isinstance(format, int) and format != FORMAT:
        other = "an older" if format < FORMAT else "a newer"
        return f"was made by {other} version of carrycast; have the operator certify the node again"
    return "holds no certificate that can be read"
