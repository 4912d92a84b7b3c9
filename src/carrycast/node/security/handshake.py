"""The handshake in which two nodes authenticate each other and agree on the keys of a link: Noise XX, three messages.

| message | number | body |
|---|---|---|
| initiation | the cookie of the responder | offer (6 bytes), network (8), first Noise message |
| reply | the same | version (1), second Noise message |
| finish | the same | third Noise message |
| refusal | the same | offer (6), 10 of 0 |

An offer contains the lowest and the highest version of the link that its sender supports (one byte each), and its
features (4 bytes, one bit each). The nodes use the highest version that both support, and the features that both have.
Unknown bits are ignored. The prologue contains the initiator's offer, and the payload of the reply contains the
responder's, so an attacker can change neither.

The payload of the second and third message is an introduction, a MessagePack array: offer, session, card, and the
signature that binds the Noise static key to the key of the card. Elements that later versions add at its end are
ignored. An introduction contains nothing confidential, because the second message is sent to a node that is not
authenticated yet. If the network has a secret, it is the pre-shared key (XXpsk0), and a node that does not know it gets
no reply.

Cookies are used as in DTLS (RFC 9147, 5.1): a node computes and stores nothing for an address that has not returned a
cookie.
"""

import copy
import struct
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.node.security.certificate import MAX_CERTIFICATE_BYTES, Signature
from carrycast.node.security.membership import NETWORK_BYTES, Member, Membership, Rejection
from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.primitives import SECRET_BYTES, derive_key

_OFFER = struct.Struct(">BBI")
OFFER_BYTES = _OFFER.size
INITIATION_BYTES = OFFER_BYTES + NETWORK_BYTES
"""The length of the parts before the Noise message."""


class LinkEnd(NamedTuple):
    """One end of a link: a node, and the session of its interface."""

    node: NodeId
    session: int

    def encode(self) -> bytes:
        """Encode it for the prologue."""
        return self.node.to_bytes(8, "big") + self.session.to_bytes(4, "big")


class VersionOffer(NamedTuple):
    """The versions and features of the link that a node supports."""

    least: int
    most: int
    features: int = 0

    def encode(self) -> bytes:
        """Encode it for a message."""
        return _OFFER.pack(*self)

    def choose_version(self, other: "VersionOffer") -> int | None:
        """Return the highest version that both support; None if there is none."""
        highest = min(self.most, other.most)
        return highest if highest >= max(self.least, other.least) else None


OURS = VersionOffer(1, 1)


def read_offer(text: bytes) -> VersionOffer:
    """Read the offer at the beginning of a text that is long enough."""
    return VersionOffer(*_OFFER.unpack_from(text))


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """The payload by which the sender of a message introduces itself."""

    least: Annotated[int, Meta(ge=0, le=255)]
    most: Annotated[int, Meta(ge=0, le=255)]
    features: Annotated[int, Meta(ge=0, lt=1 << 32)]
    session: Annotated[int, Meta(ge=0, lt=1 << 32)]
    card: Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
    binding: Signature


class LinkKeys(NamedTuple):
    """The encryption and MAC keys of both directions: forth is from the initiator, back is from the responder."""

    forth: bytes
    forth_mac: bytes
    back: bytes
    back_mac: bytes


class AuthenticatedPeer(NamedTuple):
    """The authenticated peer, and the state of the handshake after its message."""

    member: Member
    offer: VersionOffer
    session: int
    state: HandshakeState


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Introduction] = msgspec.msgpack.Decoder(Introduction)


def start_handshake(
    membership: Membership, initiator: bool, offer: VersionOffer, initiator_end: LinkEnd, responder: NodeId, cookie: int
) -> HandshakeState:
    """Make the state of one side before the first message; the offer is the initiator's."""
    parts = (
        b"driftcast link",
        offer.encode(),
        membership.network,
        initiator_end.encode(),
        responder.to_bytes(8, "big"),
    )
    prologue = b"".join(parts) + cookie.to_bytes(8, "big")
    psks = [(0, membership.secret)] if membership.secret else []
    return HandshakeState(initiator, prologue, membership.static, psks)


def make_introduction(membership: Membership, offer: VersionOffer, session: int) -> bytes:
    """Encode the introduction of this node."""
    return _encode(Introduction(*offer, session, membership.card, membership.binding))


def read_introduction(membership: Membership, state: HandshakeState, message: bytes) -> AuthenticatedPeer | Rejection:
    """Read a handshake message with an introduction, and authenticate its sender. The given state is not changed, so
    that it can read the message of a member after a message that is rejected."""
    state = copy.copy(state)
    try:
        payload = state.read_message(message)
    except NoiseError:
        return Rejection.STRANGER
    try:
        introduction = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Rejection.MALFORMED
    member = membership.verify_card(introduction.card)
    if isinstance(member, Rejection):
        return member
    if not membership.is_bound(member, state.remote_static, introduction.binding):
        return Rejection.STRANGER
    return AuthenticatedPeer(
        member, VersionOffer(introduction.least, introduction.most, introduction.features), introduction.session, state
    )


def derive_link_keys(state: HandshakeState) -> LinkKeys:
    """Derive the keys of a link from the two keys of a finished handshake (Split(), Noise, section 5.2)."""
    forth, back = (derive_key(key, state.hash, b"driftcast link", 2 * SECRET_BYTES) for key in state.split())
    return LinkKeys(forth[:SECRET_BYTES], forth[SECRET_BYTES:], back[:SECRET_BYTES], back[SECRET_BYTES:])
