"""The link-layer frame around a wire frame, and the memory that recognizes repetitions.

A datagram is a header and a body. The header is a magic byte, the format's version, the kind, the sender's node id, the
sender's session (a number drawn at each start, for each interface), a sequence number, and how many milliseconds it has
waited. Whoever holds a datagram back adds to these: the lane of its neighbor, a socket that cannot take it, one that is
not read. The body is a frame of `carrycast.core.wire`; an acknowledgement repeats the session and the number of what it
acknowledges, and has further numbers as its body. A challenge has none; a probe is PROBE_BYTES long, whatever they are.
The response to the one and the echo of the other repeat all of it but the sender. A compound has several frames in its
body (`compound.py`).

Kinds above these are for links with keys (`sealed.py`): a sealed datagram has a whole datagram of the kinds before
within its body.
"""

import enum
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from carrycast.core.model import MAX_NODE_ID, NodeId

MAGIC = 0xDB
VERSION = 4
"""3, until 0.1, acknowledged frames one by one, and sent them one by one."""
_HEADER = struct.Struct(">BBBQIQI")
_WAITED_MS = struct.Struct(">I")
MAX_WAITED_MS = (1 << 32) - 1
LINK_HEADER_BYTES = _HEADER.size
_WAITED_AT = LINK_HEADER_BYTES - _WAITED_MS.size
MAX_DATAGRAM_BYTES = 65_507
"""What UDP over IPv4 can carry."""
MAX_BODY_BYTES = MAX_DATAGRAM_BYTES - LINK_HEADER_BYTES
PROBE_BYTES = 500
"""The packet whose time is the cost of a link, in every world."""
PROBE_BODY_BYTES = PROBE_BYTES - LINK_HEADER_BYTES
COOKIE_BYTES = 8

WINDOW = 1024
"""How far behind the newest a number may be and still be told apart from a repetition. Retries end after seconds."""
ISLANDS = 4
"""Stretches of numbers that are remembered apart. A number far from all others, forged or honest, begins one of its
own, so that it does not make those that follow the others too old."""
_REMEMBERED = (1 << WINDOW) - 1
MAX_SENDERS = 4096
"""As many as discovery keeps neighbors; the one heard least recently makes room."""


class LinkKind(enum.IntEnum):
    """What a datagram is for."""

    DATA = 0
    ACKNOWLEDGED_DATA = 1
    ACKNOWLEDGEMENT = 2
    PROBE = 3
    ECHO = 4
    CHALLENGE = 5
    RESPONSE = 6
    COMPOUND = 7
    # Of links with keys.
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
MAX_TOGETHER = 128
"""Frames that one acknowledgement is of: it fits a small packet."""


class LinkFlaw(enum.StrEnum):
    """Why a datagram is none of ours. These are the reasons of drops in the trace."""

    TRUNCATED = "link_truncated"
    NOT_OURS = "link_bad_magic"
    VERSION = "link_version"
    KIND = "link_kind"
    SENDER = "link_sender"
    BODY = "link_body"
    KEYED = "link_keyed"
    """Its sender has keys, and this node has none."""


class LinkFrame(NamedTuple):
    """A datagram taken apart."""

    kind: LinkKind
    sender: NodeId
    session: int
    sequence: int
    body: bytes
    waited_ms: int = 0


def pack(frame: LinkFrame) -> bytes:
    """The datagram."""
    kind, sender, session, sequence, body, waited_ms = frame
    return _HEADER.pack(MAGIC, VERSION, kind, sender, session, sequence, waited_ms) + body


def older(datagram: bytes, waited_s: float) -> bytes:
    """A datagram that has waited so much longer. One that is none of ours, or did not wait, stays as it is."""
    # What waits for less has not waited. A clock that was set back may even make it less than nothing.
    waited_ms = int(waited_s * 1000)
    if waited_ms <= 0 or len(datagram) < LINK_HEADER_BYTES or datagram[0] != MAGIC or datagram[1] != VERSION:
        return datagram
    before_ms: int = _WAITED_MS.unpack_from(datagram, _WAITED_AT)[0]
    waited = _WAITED_MS.pack(min(before_ms + waited_ms, MAX_WAITED_MS))
    return datagram[:_WAITED_AT] + waited + datagram[LINK_HEADER_BYTES:]


def unpack(datagram: bytes, keyed: bool = False) -> LinkFrame | LinkFlaw:
    """The frame in a datagram, or what is wrong with it. Raises nothing, whatever the bytes are.
    Kinds that belong to links with keys are for those who say that they have some."""
    if len(datagram) < LINK_HEADER_BYTES:
        return LinkFlaw.TRUNCATED
    magic, version, kind, sender, session, sequence, waited_ms = _HEADER.unpack_from(datagram)
    if magic != MAGIC:
        return LinkFlaw.NOT_OURS
    if version != VERSION:
        return LinkFlaw.VERSION
    if kind > LinkKind.COMPOUND and not keyed:
        return LinkFlaw.KEYED if kind <= LinkKind.REFUSAL else LinkFlaw.KIND
    if kind > LinkKind.REFUSAL:
        return LinkFlaw.KIND
    if sender > MAX_NODE_ID:
        return LinkFlaw.SENDER
    body = datagram[LINK_HEADER_BYTES:]
    frame = LinkFrame(_KINDS[kind], sender, session, sequence, body, waited_ms)
    return frame if fits(kind, len(body)) else LinkFlaw.BODY


def unchanging(datagram: bytes) -> bytes:
    """What nobody changes on the way: the header but for the time that it has waited."""
    return datagram[:_WAITED_AT]


def fits(kind: int, body_bytes: int) -> bool:
    """Whether a body of this length belongs to this kind."""
    if kind <= LinkKind.ACKNOWLEDGED_DATA:
        return body_bytes > 0
    if kind == LinkKind.ACKNOWLEDGEMENT:
        return body_bytes % _NUMBER.size == 0 and body_bytes < MAX_TOGETHER * _NUMBER.size
    if kind in (LinkKind.PROBE, LinkKind.ECHO):
        return body_bytes == PROBE_BODY_BYTES
    if kind in (LinkKind.CHALLENGE, LinkKind.RESPONSE):
        return body_bytes == 0
    if kind in (LinkKind.KEYED_CHALLENGE, LinkKind.KEYED_RESPONSE):
        return body_bytes == COOKIE_BYTES
    if kind > LinkKind.COMPOUND:
        # What cannot be read is answered with a challenge, which must not be longer. A hello is as long, a seal longer.
        return body_bytes >= 2 * COOKIE_BYTES
    return body_bytes > 0


def acknowledgements(node: NodeId, session: int, sequences: Sequence[int]) -> Iterator[LinkFrame]:
    """The frames that acknowledge some numbers of a session: the first of each in its header, the others in its
    body."""
    for first in range(0, len(sequences), MAX_TOGETHER):
        others = b"".join(map(_NUMBER.pack, sequences[first + 1 : first + MAX_TOGETHER]))
        yield LinkFrame(LinkKind.ACKNOWLEDGEMENT, node, session, sequences[first], others)


def acknowledged(frame: LinkFrame) -> list[int]:
    """The numbers that a frame acknowledges."""
    return [frame.sequence, *(number for (number,) in _NUMBER.iter_unpack(frame.body))]


class Novelty(enum.Enum):
    """What is known of a sequence number."""

    NEW = enum.auto()
    REPEATED = enum.auto()
    TOO_OLD = enum.auto()


class _Heard:
    """A stretch of numbers of one session of one sender: the first, the newest, and a bit for each just below it."""

    __slots__ = ("bits", "first", "newest")

    def __init__(self, sequence: int) -> None:
        self.first = self.newest = sequence
        self.bits = 1

    def judge(self, sequence: int) -> Novelty | None:
        """What this stretch knows of a number; None if it is none of its own."""
        behind = self.newest - sequence
        if behind >= WINDOW:
            return Novelty.TOO_OLD if sequence >= self.first else None
        if behind < 0:
            return Novelty.NEW if -behind < WINDOW else None
        return Novelty.REPEATED if self.bits >> behind & 1 else Novelty.NEW

    def add(self, sequence: int) -> None:
        """Remember a number of this stretch."""
        self.first = min(self.first, sequence)
        ahead = sequence - self.newest
        if ahead > 0:
            self.bits = (self.bits << ahead | 1) & _REMEMBERED
            self.newest = sequence
        else:
            self.bits |= 1 << -ahead


class Windows:
    """Which numbers were heard from whom. Bounded in senders and in numbers per sender.

    Broadcasts and unicasts of a sender are numbered apart, and so are those of each session, so each have a memory of
    their own. A sender has several sessions at once if this node hears it over several of its interfaces.
    """

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: OrderedDict[tuple[NodeId, int, LinkKind], list[_Heard]] = OrderedDict()
        """The stretches of each, the one heard last at the end."""

    def judge(self, frame: LinkFrame) -> Novelty:
        """Whether a frame was heard before. Looking changes nothing: a frame that proves bad is not `add`ed."""
        islands = self._heard.get((frame.sender, frame.session, frame.kind), ())
        if len(islands) == 1:
            return islands[0].judge(frame.sequence) or Novelty.NEW
        known = [novelty for heard in islands if (novelty := heard.judge(frame.sequence)) is not None]
        # Stretches may meet. What one of them has heard was heard, and what one still can tell is not too old.
        for novelty in (Novelty.REPEATED, Novelty.NEW, Novelty.TOO_OLD):
            if novelty in known:
                return novelty
        return Novelty.NEW

    def add(self, frame: LinkFrame) -> None:
        """Remember a frame that was judged new."""
        key = (frame.sender, frame.session, frame.kind)
        islands = self._heard.setdefault(key, [])
        if islands and 0 < frame.sequence - islands[-1].newest < WINDOW:
            islands[-1].add(frame.sequence)
            self._heard.move_to_end(key)
            return
        for heard in reversed(islands):
            if heard.judge(frame.sequence) is Novelty.NEW:
                heard.add(frame.sequence)
                if heard is not islands[-1]:
                    islands.remove(heard)
                    islands.append(heard)
                break
        else:
            islands.append(_Heard(frame.sequence))
            del islands[:-ISLANDS]
        self._heard.move_to_end(key)
        if len(self._heard) > 2 * MAX_SENDERS:
            self._heard.popitem(last=False)
