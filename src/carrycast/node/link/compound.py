"""Several frames in one datagram: what is said to one address at the same time travels together.

A compound is a frame whose body has a record for each frame within: its kind, session, number, the time that it has
waited, the length of its body, and the body. All are of the compound's sender; its session and number say nothing. Only
data and acknowledgements travel so, and no compound within another.
"""

import struct
from collections.abc import Sequence

from carrycast.core.model import NodeId
from carrycast.node.link.frame import MAX_WAITED_MS, LinkFrame, LinkKind, fits, pack

_RECORD = struct.Struct(">BIQIH")
RECORD_BYTES = _RECORD.size
MAX_COMPOUND_BYTES = 1200
"""The bodies of frames that travel together, and their records: with all headers a compound fits the smallest packet
that IPv6 allows, so that none is cut into pieces which get lost one by one. [RFC 9000 §14]"""

_KINDS = {int(kind): kind for kind in (LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA, LinkKind.ACKNOWLEDGEMENT)}


def together(frames: Sequence[LinkFrame], node: NodeId, waited_ms: int) -> bytes:
    """The datagram of one frame or more of a node, which have all waited for so long since they were made."""
    if len(frames) == 1:
        [frame] = frames
        if waited_ms:
            frame = frame._replace(waited_ms=min(frame.waited_ms + waited_ms, MAX_WAITED_MS))
        return pack(frame)
    parts = []
    for kind, _, session, sequence, body, already_ms in frames:
        parts.append(_RECORD.pack(kind, session, sequence, already_ms, len(body)))
        parts.append(body)
    return pack(LinkFrame(LinkKind.COMPOUND, node, 0, 0, b"".join(parts), waited_ms))


def taken_apart(compound: LinkFrame) -> list[LinkFrame] | None:
    """The frames of a compound; None if it is none. Raises nothing, whatever its body is."""
    frames: list[LinkFrame] = []
    body, sender, waited_ms = compound.body, compound.sender, compound.waited_ms
    at, end = 0, len(body)
    # No node sends a longer one, and a datagram full of frames would take tens of milliseconds at once.
    if end > MAX_COMPOUND_BYTES:
        return None
    while at < end:
        begin = at + RECORD_BYTES
        if begin > end:
            return None
        kind, session, sequence, before_ms, length = _RECORD.unpack_from(body, at)
        at = begin + length
        known = _KINDS.get(kind)
        if known is None or at > end or not fits(kind, length):
            return None
        if waited_ms:
            before_ms = min(before_ms + waited_ms, MAX_WAITED_MS)
        frames.append(LinkFrame(known, sender, session, sequence, body[begin:at], before_ms))
    return frames
