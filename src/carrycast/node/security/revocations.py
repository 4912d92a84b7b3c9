"""The operator's revocation list (as the CRL of RFC 5280): the nodes whose certificates are revoked.

A revocation list is numbered and signed, and replaces only an older one. Each entry ends when the last certificate that
it revokes would have expired (and events under it, see `grace_s`), so a revocation list does not grow for ever. An
entry has the number of the revocation list in which it came first, so that the difference to an older list (a delta
CRL) travels alone: applied to the older list it gives the newer one, whose signature is over all of it.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.errors import UserError
from carrycast.node.security.certificate import FORMAT, Format, Time
from carrycast.node.security.primitives import SIGNATURE_BYTES, SigningKey, is_signed_by

MAX_LIST_BYTES = 4 << 20
"""As much as a node holds back of frames whose path is not validated: some 140,000 entries. A malicious member that
announces a newer revocation list can make a node hold so much."""

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]


class RevocationEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A revoked node."""

    before_s: Time
    """Certificates that were issued to it until then are revoked."""
    until_s: Time
    """When the last of them would have expired."""
    number: Number
    """Of the list in which this entry came first."""


class RevocationList(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A revocation list, or the difference to an older one (`since`)."""

    format: Format = FORMAT
    number: Number = 0
    issued_s: Time = 0.0
    """Entries that ended before this are not on the list."""
    entries: dict[NodeId, RevocationEntry] = {}
    since: Number = 0
    """The number of the older list; 0 for a whole list."""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def revokes(self, node: NodeId, issued_s: float) -> bool:
        """Whether a certificate of a node is revoked, whatever time its events claim."""
        found = self.entries.get(node)
        return found is not None and issued_s <= found.before_s

    def encode_delta(self, since: int) -> bytes:
        """The difference to an older list, encoded; since 0, all of it."""
        changed = {node: one for node, one in self.entries.items() if one.number > since}
        return _encode(msgspec.structs.replace(self, entries=changed, since=since))


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[RevocationList] = msgspec.msgpack.Decoder(RevocationList)
_replace = msgspec.structs.replace


class RevocationTimes(NamedTuple):
    """Of one node that is revoked."""

    before_s: float
    """Certificates that were issued until then are revoked."""
    until_s: float
    """Until when it stays on the list."""


def revoke_nodes(
    operator: SigningKey, before: RevocationList, nodes: dict[NodeId, RevocationTimes], now_s: float
) -> RevocationList:
    """The next list; entries that have ended are left out."""
    number = before.number + 1
    entries = {node: one for node, one in before.entries.items() if one.until_s >= now_s}
    for node, (before_s, until_s) in nodes.items():
        earlier = entries.get(node)
        entries[node] = RevocationEntry(before_s, until_s if earlier is None else max(until_s, earlier.until_s), number)
    # As it is read: an integer for a time would be signed as one, and read as a float.
    unsigned = _decoder.decode(_encode(RevocationList(number=number, issued_s=now_s, entries=_sort(entries))))
    signed = _replace(unsigned, signature=operator.sign(b"revocations", _encode(unsigned)))
    if len(signed.encode_delta(0)) > MAX_LIST_BYTES:
        raise UserError(
            f"a list holds at most {MAX_LIST_BYTES >> 20} MiB, and this one has {len(entries)} nodes; "
            f"start a network with another operator's key"
        )
    return signed


def read_revocation_list(operator: bytes, text: bytes, before: RevocationList | None = None) -> RevocationList | None:
    """A whole revocation list that an operator signed, from its bytes or those of the difference to `before`; None if
    the signature is not valid."""
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
        found = _replace(found, entries=_sort(kept | found.entries), since=0)
    unsigned = _encode(_replace(found, signature=b""))
    return found if is_signed_by(operator, found.signature, b"revocations", unsigned) else None


def _sort(entries: dict[NodeId, RevocationEntry]) -> dict[NodeId, RevocationEntry]:
    """In the order in which they are signed."""
    return dict(sorted(entries.items()))


def read_unsigned(text: bytes) -> RevocationList | None:
    """A revocation list, unverified."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


NEVER_S = 1e12
"""The end of an entry whose certificates are not known."""
