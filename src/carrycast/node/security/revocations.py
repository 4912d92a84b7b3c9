"""The operator's list of nodes that are out.

A list is numbered and signed, and only a newer one counts. Each entry ends when the last certificate that it ends would
have ended by itself (and events under it, see `grace_s`), so a list does not grow for ever. An entry says in which list
it came, so what changed since an older list is known, and travels alone: who applies it to the older list has all of
the newer, and the signature, which is over all of it, shows that.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.errors import UserError
from carrycast.node.security.certificate import FORMAT, Format, Time
from carrycast.node.security.primitives import SIGNATURE_BYTES, SigningKey, is_signed_by

MAX_LIST_BYTES = 4 << 20
"""As much as a node keeps of frames that wait for an answer: some 140,000 entries. A neighbor that lies about a newer
list can make a node hold so much."""

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]


class Revoked(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One node that is out."""

    before_s: Time
    """Certificates that it was given until then no longer count."""
    until_s: Time
    """When the last of them would have ended."""
    number: Number
    """Of the list in which this came."""


class Revocations(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A list, or what changed since another (`since`)."""

    format: Format = FORMAT
    number: Number = 0
    issued_s: Time = 0.0
    """Entries that ended before this are not on the list."""
    entries: dict[NodeId, Revoked] = {}
    since: Number = 0
    """The number of the list to which this is to be applied; 0 for a whole list."""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def revokes(self, node: NodeId, issued_s: float) -> bool:
        """Whether a certificate of a node no longer counts, whatever time is claimed for what it signed."""
        found = self.entries.get(node)
        return found is not None and issued_s <= found.before_s

    def difference(self, since: int) -> bytes:
        """What changed since an older list, as it travels; from 0, all of it."""
        changed = {node: one for node, one in self.entries.items() if one.number > since}
        return _encode(msgspec.structs.replace(self, entries=changed, since=since))


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Revocations] = msgspec.msgpack.Decoder(Revocations)
_replace = msgspec.structs.replace


class Times(NamedTuple):
    """Of one node that is revoked."""

    before_s: float
    """Certificates that were issued until then no longer count."""
    until_s: float
    """So long it must stay on the list."""


def revoke_nodes(operator: SigningKey, before: Revocations, nodes: dict[NodeId, Times], now_s: float) -> Revocations:
    """The next list; entries that have ended are left out."""
    number = before.number + 1
    entries = {node: one for node, one in before.entries.items() if one.until_s >= now_s}
    for node, (before_s, until_s) in nodes.items():
        earlier = entries.get(node)
        entries[node] = Revoked(before_s, until_s if earlier is None else max(until_s, earlier.until_s), number)
    # As it is read: an integer for a time would be signed as one, and read as a float.
    unsigned = _decoder.decode(_encode(Revocations(number=number, issued_s=now_s, entries=_in_order(entries))))
    signed = _replace(unsigned, signature=operator.sign(b"revocations", _encode(unsigned)))
    if len(signed.difference(0)) > MAX_LIST_BYTES:
        raise UserError(
            f"a list holds at most {MAX_LIST_BYTES >> 20} MiB, and this one has {len(entries)} nodes; "
            f"start a network with another operator's key"
        )
    return signed


def read_list(operator: bytes, text: bytes, before: Revocations | None = None) -> Revocations | None:
    """A whole list that an operator signed, from its text or from what changed since `before`; None if it is none."""
    if len(text) > MAX_LIST_BYTES:
        return None
    try:
        found = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if found.since:
        if before is None or before.number != found.since:
            return None
        kept = {node: one for node, one in before.entries.items() if one.until_s >= found.issued_s}
        found = _replace(found, entries=_in_order(kept | found.entries), since=0)
    unsigned = _encode(_replace(found, signature=b""))
    return found if is_signed_by(operator, found.signature, b"revocations", unsigned) else None


def _in_order(entries: dict[NodeId, Revoked]) -> dict[NodeId, Revoked]:
    """As they are signed, however they came together."""
    return dict(sorted(entries.items()))


def read_unsigned(text: bytes) -> Revocations | None:
    """What a list says, whoever signed it."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


NEVER_S = 1e12
"""The end of an entry whose certificates are not known."""
