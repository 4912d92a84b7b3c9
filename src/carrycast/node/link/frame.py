"""The link-layer frame around a wire frame.

A datagram is a header and a body. The header consists of a magic byte, the version of the format, the kind, the
sender's node id, the sender's session (a random number for each start and interface), a sequence number, and the
waiting time in milliseconds. Every queue that delays a datagram adds its delay to the waiting time: the send queue of
the neighbor, a socket with a full send buffer, a receive buffer that is not read.

The body of a data frame is a frame of `carrycast.core.wire`. An acknowledgement repeats the session and the sequence
number of the frame that it acknowledges, and lists further sequence numbers in its body. A challenge has no body. A
probe is PROBE_BYTES long, with any content. The response to a challenge and the echo of a probe repeat everything but
the sender. A coalesced datagram contains several frames (`coalescing.py`).

The kinds from HELLO on are for links with keys (`security/sealed.py`). The body of a sealed datagram is a whole
datagram of one of the other kinds, encrypted.
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from carrycast.core.model import MAX_NODE_ID, NodeId

MAGIC = 0xDB
VERSION = 4
"""Version 3 (until 0.1) had neither coalesced datagrams nor acknowledgements of several frames."""
_HEADER = struct.Struct(">BBBQIQI")
_WAITED_MS = struct.Struct(">I")
MAX_WAITED_MS = (1 << 32) - 1
LINK_HEADER_BYTES = _HEADER.size
_WAITED_AT = LINK_HEADER_BYTES - _WAITED_MS.size
_SENDER_AT = 3
MAX_DATAGRAM_BYTES = 65_507
"""The longest payload of UDP over IPv4 (RFC 768, RFC 791)."""
MAX_BODY_BYTES = MAX_DATAGRAM_BYTES - LINK_HEADER_BYTES
PROBE_BYTES = 500
"""The size of the packet whose transmission time is the cost of a link, in every environment."""
PROBE_BODY_BYTES = PROBE_BYTES - LINK_HEADER_BYTES
COOKIE_BYTES = 8

MAX_SENDERS = 4096
"""The most senders that the link layer remembers, as many as discovery has neighbors at most. The least recently heard
one is evicted."""


class LinkKind(enum.IntEnum):
    """The kind of a datagram."""

    DATA = 0
    ACKNOWLEDGED_DATA = 1
    ACKNOWLEDGEMENT = 2
    PROBE = 3
    ECHO = 4
    CHALLENGE = 5
    RESPONSE = 6
    COALESCED = 7
    # For links with keys.
    HELLO = 8
    KEYED_CHALLENGE = 9
    KEYED_RESPONSE = 10
    INITIATION = 11
    REPLY = 12
    FINISH = 13
    SEALED = 14
    SEALED_TO_GROUP = 15
    REFUSAL = 16


_KINDS = tuple(LinkKind)
_NUMBER = struct.Struct(">Q")
MAX_ACKNOWLEDGED = 128
"""The most frames that one acknowledgement covers: it still fits in a small packet."""


class LinkFlaw(enum.StrEnum):
    """The reasons for which datagrams are rejected, as in the drops of a trace."""

    TRUNCATED = "link_truncated"
    NOT_OURS = "link_bad_magic"
    VERSION = "link_version"
    KIND = "link_kind"
    SENDER = "link_sender"
    BODY = "link_body"
    KEYED = "link_keyed"
    """The sender has keys, and this node has none."""


class LinkFrame(NamedTuple):
    """A parsed datagram."""

    kind: LinkKind
    sender: NodeId
    session: int
    sequence: int
    body: bytes
    waited_ms: int = 0


def pack(frame: LinkFrame) -> bytes:
    """Encode a frame as a datagram."""
    kind, sender, session, sequence, body, waited_ms = frame
    return _HEADER.pack(MAGIC, VERSION, kind, sender, session, sequence, waited_ms) + body


def add_waiting_time(datagram: bytes, waited_s: float) -> bytes:
    """Add to the waiting time of a datagram, for adapters that queue. Foreign datagrams stay unchanged."""
    # Negative if the clock was set back.
    waited_ms = int(waited_s * 1000)
    if waited_ms <= 0 or len(datagram) < LINK_HEADER_BYTES or datagram[0] != MAGIC or datagram[1] != VERSION:
        return datagram
    before_ms: int = _WAITED_MS.unpack_from(datagram, _WAITED_AT)[0]
    waited = _WAITED_MS.pack(min(before_ms + waited_ms, MAX_WAITED_MS))
    return datagram[:_WAITED_AT] + waited + datagram[LINK_HEADER_BYTES:]


def read_sender(datagram: bytes) -> NodeId | None:
    """Return the sender that a header claims, without parsing the rest; None for a foreign datagram."""
    if len(datagram) < LINK_HEADER_BYTES or datagram[0] != MAGIC or datagram[1] != VERSION:
        return None
    return int.from_bytes(datagram[_SENDER_AT : _SENDER_AT + 8], "big")


def unpack(datagram: bytes, keyed: bool = False, waited_ms: int = 0) -> LinkFrame | LinkFlaw:
    """Parse a datagram: the frame, or the reason why it is rejected. Never raises.

    Kinds of links with keys are accepted only if `keyed`. `waited_ms` is added to the waiting time in the header."""
    if len(datagram) < LINK_HEADER_BYTES:
        return LinkFlaw.TRUNCATED
    magic, version, kind, sender, session, sequence, already_ms = _HEADER.unpack_from(datagram)
    if magic != MAGIC:
        return LinkFlaw.NOT_OURS
    if version != VERSION:
        return LinkFlaw.VERSION
    if kind > LinkKind.COALESCED and not keyed:
        return LinkFlaw.KEYED if kind <= LinkKind.REFUSAL else LinkFlaw.KIND
    if kind > LinkKind.REFUSAL:
        return LinkFlaw.KIND
    if sender > MAX_NODE_ID:
        return LinkFlaw.SENDER
    if waited_ms:
        already_ms = min(already_ms + waited_ms, MAX_WAITED_MS)
    body = datagram[LINK_HEADER_BYTES:]
    frame = LinkFrame(_KINDS[kind], sender, session, sequence, body, already_ms)
    return frame if is_body_length_valid(kind, len(body)) else LinkFlaw.BODY


def read_associated_data(datagram: bytes) -> bytes:
    """Return the part of the header that is authenticated as associated data (AEAD, RFC 5116): everything but the
    waiting time, which queues change."""
    return datagram[:_WAITED_AT]


def is_body_length_valid(kind: int, body_bytes: int) -> bool:
    """Whether a frame of this kind may have a body of this length."""
    if kind <= LinkKind.ACKNOWLEDGED_DATA:
        return body_bytes > 0
    if kind == LinkKind.ACKNOWLEDGEMENT:
        return body_bytes % _NUMBER.size == 0 and body_bytes < MAX_ACKNOWLEDGED * _NUMBER.size
    if kind in (LinkKind.PROBE, LinkKind.ECHO):
        return body_bytes == PROBE_BODY_BYTES
    if kind in (LinkKind.CHALLENGE, LinkKind.RESPONSE):
        return body_bytes == 0
    if kind in (LinkKind.KEYED_CHALLENGE, LinkKind.KEYED_RESPONSE):
        return body_bytes == COOKIE_BYTES
    if kind > LinkKind.COALESCED:
        # A datagram that cannot be decrypted is answered with a challenge, which must not be longer than the datagram
        # (no amplification, RFC 9000, 8).
        return body_bytes >= 2 * COOKIE_BYTES
    return body_bytes > 0


def make_acknowledgements(node: NodeId, session: int, sequences: Sequence[int]) -> Iterator[LinkFrame]:
    """Make the frames that acknowledge these sequence numbers of a session: the first number of each frame is in its
    header, the others are in its body."""
    for first in range(0, len(sequences), MAX_ACKNOWLEDGED):
        others = b"".join(map(_NUMBER.pack, sequences[first + 1 : first + MAX_ACKNOWLEDGED]))
        yield LinkFrame(LinkKind.ACKNOWLEDGEMENT, node, session, sequences[first], others)


def read_acknowledged_sequences(frame: LinkFrame) -> list[int]:
    """Return the sequence numbers that a frame acknowledges."""
    return [frame.sequence, *(number for (number,) in _NUMBER.iter_unpack(frame.body))]
