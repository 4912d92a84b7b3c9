"""How two nodes agree on the keys of a link, and show each other who they are: Noise XX, three messages.

| message | number | body |
|---|---|---|
| initiation | the cookie of the responder | offer (6 bytes), network (8), first Noise message |
| reply | the same | version (1), second Noise message |
| finish | the same | third Noise message |
| refusal | the same | offer (6), 10 of 0 |

An offer is the lowest and the highest version of the link that its sender speaks (a byte each) and its features (4
bytes, a bit for each). Both go by the highest version that both speak, and by the features that both have; bits that
are not known are ignored. The prologue of the handshake has the initiator's offer, and the reply's payload has the
responder's, so neither can be changed on the way.

The payload of the second and of the third message is an introduction, a MessagePack array (what later versions add at
its end is ignored): offer, session, card, and the signature that binds the Noise static key to the card's key. Nothing
in it is confidential: the second message goes to somebody who is not authenticated yet. Where the network has a secret,
it is mixed in before the first message (XXpsk0), and whoever does not know it is not answered at all.

Cookies are those of DTLS: nobody computes or remembers anything for an address from which no cookie has come back.
"""

import copy
import struct
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.node.security.certificate import MAX_CERTIFICATE_BYTES, Signature
from carrycast.node.security.membership import NETWORK_BYTES, Member, Membership, Refusal
from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.primitives import SECRET_BYTES, derived

_OFFER = struct.Struct(">BBI")
OFFER_BYTES = _OFFER.size
INITIATION_BYTES = OFFER_BYTES + NETWORK_BYTES
"""Before the Noise message."""


class End(NamedTuple):
    """One side of a link."""

    node: NodeId
    session: int

    def text(self) -> bytes:
        """As it is hashed."""
        return self.node.to_bytes(8, "big") + self.session.to_bytes(4, "big")


class Offer(NamedTuple):
    """Versions of the link and features that a node speaks."""

    least: int
    most: int
    features: int = 0

    def text(self) -> bytes:
        """As it travels."""
        return _OFFER.pack(*self)

    def common_version(self, other: "Offer") -> int | None:
        """The highest that both speak."""
        highest = min(self.most, other.most)
        return highest if highest >= max(self.least, other.least) else None


OURS = Offer(1, 1)


def read_offer(text: bytes) -> Offer:
    """The offer at the beginning of a text that is long enough."""
    return Offer(*_OFFER.unpack_from(text))


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """Who speaks."""

    least: Annotated[int, Meta(ge=0, le=255)]
    most: Annotated[int, Meta(ge=0, le=255)]
    features: Annotated[int, Meta(ge=0, lt=1 << 32)]
    session: Annotated[int, Meta(ge=0, lt=1 << 32)]
    card: Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
    binding: Signature


class LinkKeys(NamedTuple):
    """Forth is from the initiator. What is sealed, and what is marked, each way."""

    forth: bytes
    forth_marks: bytes
    back: bytes
    back_marks: bytes


class Introduced(NamedTuple):
    """Who the other is, and how the handshake goes on."""

    member: Member
    offer: Offer
    session: int
    state: HandshakeState


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Introduction] = msgspec.msgpack.Decoder(Introduction)


def handshake(
    membership: Membership, initiator: bool, offer: Offer, began: End, asked: NodeId, cookie: int
) -> HandshakeState:
    """One side of a handshake that one end began with another node; the offer is the initiator's."""
    parts = (b"driftcast link", offer.text(), membership.network, began.text(), asked.to_bytes(8, "big"))
    prologue = b"".join(parts) + cookie.to_bytes(8, "big")
    psks = [(0, membership.secret)] if membership.secret else []
    return HandshakeState(initiator, prologue, membership.static, psks)


def introduce(membership: Membership, offer: Offer, session: int) -> bytes:
    """This node's introduction, for a payload."""
    return _encode(Introduction(*offer, session, membership.card, membership.binding))


def introduced(membership: Membership, state: HandshakeState, message: bytes) -> Introduced | Refusal:
    """Who has introduced itself by a message of a handshake. The state stays as it is, and waits for the message of a
    member if this is none."""
    state = copy.copy(state)
    try:
        payload = state.read(message)
    except NoiseError:
        return Refusal.STRANGER
    try:
        said = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Refusal.MALFORMED
    member = membership.neighbor(said.card)
    if isinstance(member, Refusal):
        return member
    if not membership.is_bound(member, state.remote_static, said.binding):
        return Refusal.STRANGER
    return Introduced(member, Offer(said.least, said.most, said.features), said.session, state)


def link_keys(state: HandshakeState) -> LinkKeys:
    """What seals and marks, from the keys into which a finished handshake splits."""
    forth, back = (derived(key, state.hash, b"driftcast link", 2 * SECRET_BYTES) for key in state.split())
    return LinkKeys(forth[:SECRET_BYTES], forth[SECRET_BYTES:], back[:SECRET_BYTES], back[SECRET_BYTES:])
