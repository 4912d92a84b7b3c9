"""The handshake in which two nodes authenticate each other and agree on the keys of a link: Noise XX, three messages.

| message | number | body |
|---|---|---|
| initiation | the cookie of the responder | offer (6 bytes), network (8), first Noise message |
| reply | the same | version (1), second Noise message |
| finish | the same | third Noise message |
| refusal | the same | offer (6), 10 of 0 |

An offer is the lowest and the highest version of the link that its sender supports (a byte each) and its features (4
bytes, a bit for each). Both use the highest version that both support, and the features that both have; bits that
are not known are ignored. The prologue of the handshake has the initiator's offer, and the reply's payload has the
responder's, so neither can be changed on the way.

The payload of the second and of the third message is an introduction, a MessagePack array (what later versions add at
its end is ignored): offer, session, card, and the signature that binds the Noise static key to the card's key. Nothing
in it is confidential: the second message goes to a node that is not authenticated yet. Where the network has a secret,
it is mixed in before the first message (XXpsk0), and a node that does not know it gets no reply at all.

Cookies are those of DTLS (RFC 9147, 5.1): a node computes and stores nothing for an address from which no cookie has
come back.
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
"""Before the Noise message."""


class LinkEnd(NamedTuple):
    """One side of a link."""

    node: NodeId
    session: int

    def encode(self) -> bytes:
        """As it is hashed."""
        return self.node.to_bytes(8, "big") + self.session.to_bytes(4, "big")


class VersionOffer(NamedTuple):
    """Versions and features of the link that a node supports."""

    least: int
    most: int
    features: int = 0

    def encode(self) -> bytes:
        """As it travels."""
        return _OFFER.pack(*self)

    def choose_version(self, other: "VersionOffer") -> int | None:
        """The highest version that both support."""
        highest = min(self.most, other.most)
        return highest if highest >= max(self.least, other.least) else None


OURS = VersionOffer(1, 1)


def read_offer(text: bytes) -> VersionOffer:
    """The offer at the beginning of a text that is long enough."""
    return VersionOffer(*_OFFER.unpack_from(text))


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """The node that sends the message, and what it supports."""

    least: Annotated[int, Meta(ge=0, le=255)]
    most: Annotated[int, Meta(ge=0, le=255)]
    features: Annotated[int, Meta(ge=0, lt=1 << 32)]
    session: Annotated[int, Meta(ge=0, lt=1 << 32)]
    card: Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
    binding: Signature


class LinkKeys(NamedTuple):
    """Encryption and MAC keys: forth, from the initiator, and back."""

    forth: bytes
    forth_mac: bytes
    back: bytes
    back_mac: bytes


class AuthenticatedPeer(NamedTuple):
    """The other node, and the state of the handshake after its message."""

    member: Member
    offer: VersionOffer
    session: int
    state: HandshakeState


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Introduction] = msgspec.msgpack.Decoder(Introduction)


def start_handshake(
    membership: Membership, initiator: bool, offer: VersionOffer, initiator_end: LinkEnd, responder: NodeId, cookie: int
) -> HandshakeState:
    """The state of one side before the first message; the offer is the initiator's."""
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
    """This node's introduction, for a payload."""
    return _encode(Introduction(*offer, session, membership.card, membership.binding))


def read_introduction(membership: Membership, state: HandshakeState, message: bytes) -> AuthenticatedPeer | Rejection:
    """The node that has introduced itself by a message of a handshake. The state itself stays unchanged, so that it can
    read the message of a member after one that is rejected."""
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
    """The keys of a link, from those into which a finished handshake splits (Noise, Split())."""
    forth, back = (derive_key(key, state.hash, b"driftcast link", 2 * SECRET_BYTES) for key in state.split())
    return LinkKeys(forth[:SECRET_BYTES], forth[SECRET_BYTES:], back[:SECRET_BYTES], back[SECRET_BYTES:])
