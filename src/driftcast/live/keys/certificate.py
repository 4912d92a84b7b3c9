"""What an operator says of a node: who it is, what it may publish and subscribe to, what is true of it.

A certificate is a MessagePack array, its signature last. It is good between two times, and until a newer list of
revocations names its node: that ends all certificates that the node was given before it was revoked.
"""

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.errors import UserError
from driftcast.live.keys.primitives import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey, signed_by
from driftcast.matching import Filter
from driftcast.model import FilterText, NodeId, Scalar
from driftcast.model.event import check_attributes

MAX_CERTIFICATE_BYTES = 2048
"""It travels in every event, and, in base64, as one attribute of a subscription."""
MAX_REVOKED = 1500
"""So that the list fits in a datagram."""
FORMAT = 1

Time = Annotated[float, Meta(ge=0, le=1e12)]
PublicKey = Annotated[bytes, Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The statement, with or without its signature."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    node: NodeId
    key: PublicKey
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    issued_s: Time
    expires_s: Time
    publish: FilterText | None = None
    """The filter that all events of the node match; None for any."""
    subscribe: FilterText | None = None
    """The filter that covers what the node asks for; None for any."""
    attributes: dict[str, Scalar] = {}
    """What access policies may be told of the node's subscribers."""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)


class Revocations(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose certificates of before which time no longer count. The list with the highest number counts."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    number: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    before_s: Annotated[dict[NodeId, Time], Meta(max_length=MAX_REVOKED)] = {}
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def revokes(self, certificate: Certificate) -> bool:
        """Whether a certificate no longer counts."""
        return certificate.issued_s <= self.before_s.get(certificate.node, -math.inf)


_encode = msgspec.msgpack.Encoder().encode
_certificates: msgspec.msgpack.Decoder[Certificate] = msgspec.msgpack.Decoder(Certificate)
_revocations: msgspec.msgpack.Decoder[Revocations] = msgspec.msgpack.Decoder(Revocations)
_replace = msgspec.structs.replace


def issue(operator: SigningKey, certificate: Certificate) -> bytes:
    """A certificate with its signature; a UserError says what is wrong with it."""
    try:
        for filter in (certificate.publish, certificate.subscribe):
            Filter(filter or "")
        checked = _certificates.decode(_encode(_replace(certificate, signature=b"")))
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise UserError(f"certificate: {error}") from None
    issued = _encode(_replace(checked, signature=operator.sign(b"certificate", _encode(checked))))
    if len(issued) > MAX_CERTIFICATE_BYTES:
        raise UserError(
            f"certificate: it has {len(issued)} bytes, and at most {MAX_CERTIFICATE_BYTES} travel with each event; "
            f"give it shorter filters or fewer attributes"
        )
    return issued


def read_certificate(text: bytes) -> Certificate | None:
    """The certificate in some bytes, whoever signed it; None if there is none."""
    if len(text) > MAX_CERTIFICATE_BYTES:
        return None
    try:
        return _certificates.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def issued_by(operator: bytes, certificate: Certificate) -> bool:
    """Whether an operator has signed it."""
    unsigned = _encode(_replace(certificate, signature=b""))
    return signed_by(operator, certificate.signature, b"certificate", unsigned)


def sign_list(operator: SigningKey, revocations: Revocations) -> bytes:
    """A list with its signature."""
    if len(revocations.before_s) > MAX_REVOKED:
        raise UserError(f"a list holds at most {MAX_REVOKED} nodes; start a network with another operator's key")
    unsigned = _replace(revocations, signature=b"")
    return _encode(_replace(unsigned, signature=operator.sign(b"revocations", _encode(unsigned))))


def read_list(operator: bytes, text: bytes) -> Revocations | None:
    """A list that an operator signed; None if it is none."""
    try:
        found = _revocations.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    unsigned = _encode(_replace(found, signature=b""))
    return found if signed_by(operator, found.signature, b"revocations", unsigned) else None
