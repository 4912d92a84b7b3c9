"""What moves from broker to broker, and the words with which it does [002 §2.4 step 3, §3.4]."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.model.subscription import MAX_STATE_BYTES
from carrycast.core.wire import Message
from carrycast.protocols.overlay.words import Count, Following, Hops, Round, Version

MAX_ENTRIES = 256
MOVE_VALID_S = 600.0
"""What is moved says how old it is by what is left of this."""


class Interest(NamedTuple):
    """A subscription, where its modulator is, and where its client's home is."""

    subscription: Subscription
    version: Version
    place: NodeId
    home: NodeId


class Kept(NamedTuple):
    """An event that waits to be taken."""

    number: Count
    event: Event
    hops: Hops
    left_s: float
    input: Following | None = None
    part: Count = 0


class Stream(NamedTuple):
    """The stream of a producer for one subscription, at the producer's home."""

    subscription: SubscriptionId
    number: Count
    kept: Annotated[tuple[Count, ...], Meta(max_length=4096)]
    """Numbers that wait; their events stand in the production, in the same order."""
    events: Annotated[tuple[Count, ...], Meta(max_length=4096)]


class Production(NamedTuple):
    """A producer at its home."""

    generation: Version
    expected: Count
    events: tuple[Kept, ...]
    streams: tuple[Stream, ...]
    interests: tuple[Interest, ...]
    """Of the streams, should the new home not know of them."""
    floor: Count = 0
    """Where new streams begin."""


class Modulator(NamedTuple):
    """A subscription at the broker that runs its modulator."""

    subscription: Subscription
    version: Version
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)]
    following: tuple[Following, ...]
    output: Count
    kept: tuple[Kept, ...]
    met: Annotated[tuple[EventId, ...], Meta(max_length=MAX_ENTRIES)] = ()
    """Inputs of late, by id."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What moves: modulators, and with its home a client, which may be a producer."""

    client: NodeId
    home: NodeId
    version: Version
    is_home: bool
    production: Annotated[tuple[Production, ...], Meta(max_length=64)]
    modulators: Annotated[tuple[Modulator, ...], Meta(max_length=MAX_ENTRIES)]


class Prepare(Message, frozen=True, gc=False, tag=23):
    """May this client's modulators, and its home if `home`, come to you?"""

    move: Round
    client: NodeId
    processors: Annotated[tuple[Annotated[str, Meta(max_length=256)], ...], Meta(max_length=MAX_ENTRIES)]
    home: bool


class Ready(Message, frozen=True, gc=False, tag=24):
    """They may, or why not."""

    move: Round
    refused: Annotated[str, Meta(max_length=64)] = ""


class Moved(Message, frozen=True, tag=25):
    """All there is, as of the last event that was processed. The sender processes none from then on."""

    durations = ("valid_s",)

    move: Round
    record: Record
    valid_s: float
    begin: bool = False
    """Whether to begin at once: without order nobody waits for a release."""


class Installed(Message, frozen=True, gc=False, tag=26):
    """It is here, and does nothing until it is released."""

    move: Round


class Release(Message, frozen=True, gc=False, tag=27):
    """The sender has let go: from now on it is yours."""

    move: Round


class Abort(Message, frozen=True, gc=False, tag=28):
    """The sender has taken it back: forget it."""

    move: Round


class Begun(Message, frozen=True, gc=False, tag=29):
    """The release has come; the sender of the record may forget it."""

    move: Round
