"""How two nodes agree on the keys of a link, and show each other who they are: signed Diffie-Hellman, three messages.

| message | number | body |
|---|---|---|
| initiation | the cookie of who is asked | ephemeral key (32 bytes), network (8) |
| reply | the same | ephemeral key (32), then sealed: introduction |
| finish | the same | sealed: introduction |

An introduction is a MessagePack array: voucher, key of what its speaker says to the group, number of its list of
revocations, signature. The signature is over a digest of the two ids, the two sessions, the network and the two
ephemeral keys (the transcript), so it is good for this handshake alone; which side it is of is part of its purpose.
The keys come from the secret of the ephemeral keys and, where the network has one, from the network's secret.

This is SIGMA (sign and seal), whose cookies are those of DTLS: nobody computes or remembers anything for an address
from which no cookie has come back.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from driftcast.live.keys.certificate import MAX_CERTIFICATE_BYTES, Signature
from driftcast.live.keys.membership import Member, Membership, Refusal
from driftcast.live.keys.primitives import SECRET_BYTES, Cipher, Ephemeral, derived, digest, signed_by
from driftcast.model import NodeId

NAME = b"link 1"


class End(NamedTuple):
    """One side of a link."""

    node: NodeId
    session: int

    def text(self) -> bytes:
        """As it is signed."""
        return self.node.to_bytes(8, "big") + self.session.to_bytes(4, "big")


class LinkKeys(NamedTuple):
    """Forth is from who began."""

    reply: bytes
    finish: bytes
    forth: bytes
    back: bytes
    forth_marks: bytes
    back_marks: bytes


class Introduction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who speaks."""

    voucher: Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
    group_key: Annotated[bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
    number: Annotated[int, Meta(ge=0, lt=1 << 62)]
    signature: Signature


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Introduction] = msgspec.msgpack.Decoder(Introduction)


def transcript(network: bytes, began: End, asked: End, first: bytes, second: bytes) -> bytes:
    """What both have seen of a handshake."""
    return digest(NAME, network, began.text(), asked.text(), first, second)


def agreed(mine: Ephemeral, other: bytes, network_secret: bytes, seen: bytes) -> LinkKeys | None:
    """The keys; None if the other's ephemeral key is none."""
    shared = mine.shared(other)
    if shared is None:
        return None
    made = derived(shared + network_secret, seen, NAME, SECRET_BYTES * len(LinkKeys._fields))
    return LinkKeys(*(made[at : at + SECRET_BYTES] for at in range(0, len(made), SECRET_BYTES)))


def introduce(membership: Membership, purpose: bytes, key: bytes, seen: bytes, group_key: bytes) -> bytes:
    """This node's introduction, sealed."""
    signature = membership.identity.sign(purpose, seen)
    introduction = Introduction(membership.voucher, group_key, membership.number, signature)
    return Cipher(key).seal(0, _encode(introduction), seen)


def introduced(
    membership: Membership, purpose: bytes, key: bytes, seen: bytes, sealed: bytes
) -> tuple[Member, Introduction] | Refusal:
    """Who has introduced itself."""
    text = Cipher(key).open(0, sealed, seen)
    if text is None:
        return Refusal.STRANGER
    try:
        introduction = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Refusal.MALFORMED
    member = membership.member(introduction.voucher)
    if isinstance(member, Refusal):
        return member
    if not signed_by(member.key, introduction.signature, purpose, seen):
        return Refusal.STRANGER
    return member, introduction
