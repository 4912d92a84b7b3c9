"""The messages of ASP brokers [001 Figures 3 to 5], and those of the extensions.

Metrics and validities have no bounds here: the handler drops an invalid one by name, not as a malformed frame.
"""

import enum
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.parts import MAX_FRAGMENTS
from carrycast.core.wire import EventMessage, Message, Traffic

US_PER_S = 1_000_000

MAX_DIGEST_ENTRIES = 64
"""Announcements in one digest: about 1.3 kB at the most, so that it fits in a packet. More are sent in several digests.
"""

MAX_MISSING = 256
"""Fragments requested at a time: about 800 bytes. The others are requested when these have arrived."""

Bits = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AnnouncementFlag(enum.IntFlag):
    """[001 §4.2] The flags of an announcement."""

    INDIVIDUAL = 1
    """The message is the whole stream: no path is needed."""
    DESCRIPTIVE = 2
    """The message only describes the publications, and is not delivered to applications."""
    CACHED = 4
    """The announcement comes from a cache and is not part of a flood."""


class PathKind(enum.IntEnum):
    """[001 §4.3] The types of a subscription; the last two belong to repair."""

    SUBSCRIBE = 0
    UNSUBSCRIBE = 1
    PATH_BROKEN = 2
    REPLACE = 3
    """Subscribe in place of the path that this subscriber has, better or not."""
    RENEW = 4
    """No safe path is known any more: the source has to announce again."""


class Announcement(EventMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """[001 Fig. 3] An announcement of a stream, with its next message. The metric includes the link it comes over."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s", "validity_s")

    id: Bits
    stream: Bits
    """The id of the stream, which all of its announcements share; their own ids change with their content."""
    metric_s: float
    validity_s: float
    sequence: Count
    counter: Count
    """The number of the message in its stream; publications continue from it."""
    flags: Annotated[int, Meta(ge=0, le=7)] = 0
    stages: Annotated[int, Meta(ge=0, le=255)] = 0
    """The number of processors that the message has passed through."""


class ShortAnnouncement(Message, frozen=True, gc=False, tag=2):
    """[001 §4.2] An announcement without its message: a better path to a known announcement."""

    id: Bits
    metric_s: float
    sequence: Count


class PathMessage(Message, frozen=True, gc=False, tag=3):
    """[001 Fig. 4] A subscription, which travels along best announcers to the source."""

    id: Bits
    subscriber: Bits
    metric_s: float
    kind: PathKind
    sequence: Count | None = None
    """The last message of the stream that is not requested again; None if none are requested."""


class Publication(EventMessage, frozen=True, gc=False, kw_only=True, tag=4):
    """[001 Fig. 5] A message on active paths."""

    id: Bits
    counter: Count


class Fragment(Message, frozen=True, gc=False, tag=5):
    """A fragment of a publication that is too large for one packet."""

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
    """A request to send these fragments again."""

    id: Bits
    counter: Count
    missing: Annotated[tuple[int, ...], Meta(max_length=MAX_MISSING)]


class DigestEntry(NamedTuple):
    """One announcement in a digest. The metric includes the link the digest comes over; in whole microseconds, rounded
    up, it takes a third of the bytes and is never better than the true one."""

    id: Bits
    sequence: Count
    metric_us: Annotated[int, Meta(ge=0, le=2**53)]


class DigestReply(enum.IntEnum):
    """The announcements that the sender of a digest requests in return."""

    NOTHING = 0
    REST = 1
    """The announcements that this digest does not list."""
    ALL = 2


class Digest(Message, frozen=True, gc=False, tag=7):
    """The announcements that are valid at the sender; the receiver requests those that it is missing."""

    known: Annotated[tuple[DigestEntry, ...], Meta(max_length=MAX_DIGEST_ENTRIES)]
    reply: DigestReply


class AnnouncementRequest(Message, frozen=True, gc=False, tag=8):
    """A request for the full announcements with these ids."""

    ids: Annotated[tuple[Bits, ...], Meta(max_length=MAX_DIGEST_ENTRIES)]


class PathLost(Message, frozen=True, gc=False, tag=9):
    """Sent downstream: the sender no longer has a path to the source of this announcement."""

    id: Bits


MESSAGES: tuple[type[Message], ...] = (
    Announcement,
    ShortAnnouncement,
    PathMessage,
    Publication,
    Fragment,
    MissingFragments,
    Digest,
    AnnouncementRequest,
    PathLost,
)
