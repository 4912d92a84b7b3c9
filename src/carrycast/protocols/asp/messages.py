"""What ASP brokers say to each other [001 Figures 3 to 5], and what the extensions add.

Metrics and validities are plain numbers here: a bad one is dropped by name in the handler, not as a malformed frame.
"""

import enum
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.parts.fragments import MAX_FRAGMENTS
from carrycast.core.wire import EventMessage, Message, Traffic

US_PER_S = 1_000_000

MAX_KNOWN = 64
"""Announcements in one digest: about 1.3 kB at the most, so that it fits in a packet. More travel in more digests."""

MAX_MISSING = 256
"""Fragments asked for at a time: about 800 bytes. The others are asked for when these have come."""

Bits = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Flag(enum.IntFlag):
    """[001 §4.2] The flags of an announcement."""

    INDIVIDUAL = 1
    """The message is all there is: no path is wanted."""
    DESCRIPTIVE = 2
    """The message only describes what will be published; it is for nobody's application."""
    CACHED = 4
    """Handed on from a cache, not part of a flood."""


class PathKind(enum.IntEnum):
    """[001 §4.3] The types of a subscription; the last two belong to repair."""

    SUBSCRIBE = 0
    UNSUBSCRIBE = 1
    PATH_BROKEN = 2
    REPLACE = 3
    """Subscribe in place of whatever path this subscriber has, better or not."""
    RENEW = 4
    """No safe path is known any more: announce again."""


class Announcement(EventMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """[001 Fig. 3] There is a stream, and this is its next message. The metric includes the link it comes over."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s", "validity_s")

    id: Bits
    stream: Bits
    """The same for all announcements of a stream, whose ids change with their content."""
    metric_s: float
    validity_s: float
    sequence: Count
    counter: Count
    """The number of the message in its stream; publications count on from it."""
    flags: Annotated[int, Meta(ge=0, le=7)] = 0
    stages: Annotated[int, Meta(ge=0, le=255)] = 0
    """Processors that the message has passed through."""


class ShortAnnouncement(Message, frozen=True, gc=False, tag=2):
    """[001 §4.2] An announcement without its message: a better path to what is known."""

    id: Bits
    metric_s: float
    sequence: Count


class PathMessage(Message, frozen=True, gc=False, tag=3):
    """[001 Fig. 4] A subscription: toward the source, along best announcers."""

    id: Bits
    subscriber: Bits
    metric_s: float
    kind: PathKind
    sequence: Count | None = None
    """The last number of the stream that is not wanted again; None if nothing is to be repeated."""


class Publication(EventMessage, frozen=True, gc=False, kw_only=True, tag=4):
    """[001 Fig. 5] A message on active paths."""

    id: Bits
    counter: Count


class Fragment(Message, frozen=True, gc=False, tag=5):
    """A piece of a publication that is too large for one packet."""

    traffic: ClassVar[Traffic] = Traffic.DATA
    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    id: Bits
    counter: Count
    index: Annotated[int, Meta(ge=0, lt=MAX_FRAGMENTS)]
    count: Annotated[int, Meta(ge=1, le=MAX_FRAGMENTS)]
    hops: Annotated[int, Meta(ge=0, le=65535)]
    remaining_s: Annotated[float, Meta(gt=0)]
    piece: Annotated[bytes, Meta(max_length=65000)]


class MissingFragments(Message, frozen=True, gc=False, tag=6):
    """Send these again."""

    id: Bits
    counter: Count
    missing: Annotated[tuple[int, ...], Meta(max_length=MAX_MISSING)]


class Known(NamedTuple):
    """One announcement in a digest. The metric includes the link the digest comes over; in whole microseconds, rounded
    up, it takes a third of the bytes and never looks better than it is."""

    id: Bits
    sequence: Count
    metric_us: Annotated[int, Meta(ge=0, le=2**53)]


class Reply(enum.IntEnum):
    """What the receiver of a digest is asked to tell in turn."""

    NOTHING = 0
    REST = 1
    """What it knows and this digest does not list."""
    ALL = 2


class Digest(Message, frozen=True, gc=False, tag=7):
    """These announcements are valid here: ask for what you lack."""

    known: Annotated[tuple[Known, ...], Meta(max_length=MAX_KNOWN)]
    reply: Reply


class Ask(Message, frozen=True, gc=False, tag=8):
    """These announcements are unknown here: send them."""

    ids: Annotated[tuple[Bits, ...], Meta(max_length=MAX_KNOWN)]


class PathLost(Message, frozen=True, gc=False, tag=9):
    """Downstream: the one who told you of this announcement no longer has a way to its source."""

    id: Bits


MESSAGES: tuple[type[Message], ...] = (
    Announcement,
    ShortAnnouncement,
    PathMessage,
    Publication,
    Fragment,
    MissingFragments,
    Digest,
    Ask,
    PathLost,
)
