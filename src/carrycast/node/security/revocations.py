"""The operator's certificate revocation list (CRL, RFC 5280, 5): the nodes whose certificates are revoked.

A list is numbered (CRL number) and signed, and replaces only an older one. Each entry ends when the last certificate
that it revokes has expired, with its grace period, so that the list does not grow for ever. An entry has the number of
the list in which it first appeared. So a node that has an older list needs only the delta CRL (RFC 5280, 5.2.4), the
entries that are newer. The older list and the delta give the newer list, whose signature is over the whole list.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.errors import UserError
from carrycast.node.security.certificate import FORMAT, Format, Time
from carrycast.node.security.primitives import SIGNATURE_BYTES, SigningKey, is_signed_by

MAX_LIST_BYTES = 4 << 20
"""Some 140,000 entries. A malicious member that announces a newer list can make a node store this much, which is as
much as is stored of frames whose path is not validated."""

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]


class RevocationEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A revoked node."""

    before_s: Time
    """Certificates that were issued to the node until then are revoked."""
    until_s: Time
    """When the last of these certificates has expired, with its grace period."""
    number: Number
    """The number of the list in which this entry first appeared."""


class RevocationList(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A revocation list, or the delta to an older one (`since`)."""

    format: Format = FORMAT
    number: Number = 0
    issued_s: Time = 0.0
    """When the list was issued (`thisUpdate`). Entries that ended before are not on the list."""
    entries: dict[NodeId, RevocationEntry] = {}
    since: Number = 0
    """The number of the older list (`BaseCRLNumber`); 0 for a complete list."""
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""

    def revokes(self, node: NodeId, issued_s: float) -> bool:
        """Whether the certificate that was issued to a node at this time is revoked."""
        found = self.entries.get(node)
        return found is not None and issued_s <= found.before_s

    def encode_delta(self, since: int) -> bytes:
        """Encode the delta to an older list; the complete list since 0."""
        changed = {node: one for node, one in self.entries.items() if one.number > since}
        return _encode(msgspec.structs.replace(self, entries=changed, since=since))


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[RevocationList] = msgspec.msgpack.Decoder(RevocationList)
_replace = msgspec.structs.replace


class RevocationTimes(NamedTuple):
    """The times of the entry of one node."""

    before_s: float
    """Certificates that were issued until then are revoked."""
    until_s: float
    """Until when the entry stays on the list."""


def revoke_nodes(
    operator: SigningKey, before: RevocationList, nodes: dict[NodeId, RevocationTimes], now_s: float
) -> RevocationList:
    """Sign the next list, with these nodes, and without the entries that have ended."""
    number = before.number + 1
    entries = {node: one for node, one in before.entries.items() if one.until_s >= now_s}
    for node, (before_s, until_s) in nodes.items():
        earlier = entries.get(node)
        entries[node] = RevocationEntry(before_s, until_s if earlier is None else max(until_s, earlier.until_s), number)
    # Encoded and decoded once, so that the signature is over the same types that a reader sees (floats for times).
    unsigned = _decoder.decode(_encode(RevocationList(number=number, issued_s=now_s, entries=_sort(entries))))
    signed = _replace(unsigned, signature=operator.sign(b"revocations", _encode(unsigned)))
    if len(signed.encode_delta(0)) > MAX_LIST_BYTES:
        raise UserError(
            f"a list holds at most {MAX_LIST_BYTES >> 20} MiB, and this one has {len(entries)} nodes; "
            f"start a network with another operator's key"
        )
    return signed


def read_revocation_list(operator: bytes, text: bytes, before: RevocationList | None = None) -> RevocationList | None:
    """Read a complete list, or a delta to the list `before`, and return the complete list; None if it is malformed, or
    the operator has not signed it."""
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
    """Sort entries in the order in which they are signed."""
    return dict(sorted(entries.items()))


def read_unsigned(text: bytes) -> RevocationList | None:
    """Decode a revocation list without verifying it; None if it is malformed."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


NEVER_S = 1e12
"""The end of an entry whose certificates are unknown."""
