"""The messages of brokers and clients, and the values that they are made of [002 §2]."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.model.subscription import MAX_STATE_BYTES
from carrycast.core.parts.channel import ChannelAck, ChannelPacket
from carrycast.core.wire import EventMessage, Message, ParcelMessage

MAX_PATH = 64

Count = Annotated[int, Meta(ge=0, le=2**53)]

Hops = Annotated[int, Meta(ge=0, le=65535)]

Distance = Annotated[float, Meta(ge=0, le=1e6)]

Share = Annotated[float, Meta(ge=0, le=1)]

Age = Annotated[float, Meta(ge=0, le=1e9)]

Path = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_PATH)]


class Version(NamedTuple):
    """Who is home: of two words on a client the one with the higher version holds. A client counts its incarnations
    and, in each, how often it looked for a home anew; homes count the moves since then."""

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    attach: Count
    moves: Count = 0


class Round(NamedTuple):
    """A counter that goes on growing when its node starts anew."""

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    number: Count

    def next(self) -> "Round":
        return Round(self.incarnation, self.number + 1)


class Following(NamedTuple):
    """The number with which a producer's stream continues. A generation is one attachment of the producer."""

    producer: NodeId
    generation: Version
    number: Count


MAX_ENTRIES = 256
"""Rows of one message; longer lists go in several."""


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


# Looking around, and the topology of the brokers [002 §2.3].


class RingQuery(Message, frozen=True, gc=False, tag=1):
    """Who is a broker within so many hops of me?"""

    origin: NodeId
    search: Round
    hops_left: Annotated[int, Meta(ge=1, le=255)]
    hops: Annotated[int, Meta(ge=1, le=255)]


class RingAnswer(Message, frozen=True, gc=False, tag=2):
    """I am, so far away and so busy."""

    search: Round
    hops: Annotated[int, Meta(ge=1, le=255)]
    load: Share


class Item(NamedTuple):
    """A row of the broker topology table, and what the broker information table has on that broker."""

    broker: NodeId
    version: Round
    age_s: Age
    links: Annotated[tuple[tuple[NodeId, Distance], ...], Meta(max_length=64)]
    load: Share = 0.0
    spent: Share = 0.0
    free_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    """Memory that is left to it, if it can tell."""


class Topology(Message, frozen=True, gc=False, tag=3):
    """Step 2: "those items in its topology table that have changed since the prior propagation period"."""

    items: Annotated[tuple[Item, ...], Meta(max_length=MAX_ENTRIES)]


# The channel and the source routes beneath everything else.


class Packet(ChannelPacket, frozen=True, gc=False, kw_only=True, tag=4):
    """A piece of a message, numbered."""


class Ack(ChannelAck, frozen=True, gc=False, tag=5):
    """Which pieces are here."""


class Hop(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=6):
    """[002 §2.2] Source routing: a packet and the brokers that are still to come; the last of `path` is its target."""

    origin: NodeId
    path: Path
    hops: Hops


# A client and its home broker [002 §2.4].


class Attach(Message, frozen=True, gc=False, tag=7):
    """Be my home."""

    version: Version


class Home(Message, frozen=True, gc=False, tag=8):
    """The sender is the client's home."""

    version: Version


class Unknown(Message, frozen=True, gc=False, tag=9):
    """The sender is not the client's home, or no longer."""

    version: Version


class Seek(Message, frozen=True, gc=False, tag=31):
    """Who is my home? Asked of all brokers by a client whose home is lost, or says that it is none."""

    version: Version


class Here(Message, frozen=True, gc=False, tag=10):
    """A client says that it is there."""

    version: Version


class Report(Message, frozen=True, gc=False, tag=11):
    """Step 1: a nearer broker, its distance, and its load if it was asked."""

    version: Version
    broker: NodeId
    distance: Distance
    load: Share | None


Followings = Annotated[tuple[Following, ...], Meta(max_length=MAX_ENTRIES)]


class Want(Message, frozen=True, gc=False, tag=12):
    """A client subscribes; `following` is what it has had, if this is not its first home."""

    version: Version
    subscription: Subscription
    following: Followings = ()
    output: Count = 0


class Missing(Message, frozen=True, gc=False, tag=33):
    """The home to its client: no broker runs this subscription any more. Say again what you want."""

    subscription: SubscriptionId


class Unwant(Message, frozen=True, gc=False, tag=13):
    """A subscription has ended."""

    subscription: SubscriptionId


# Streams: from a producer to its home, from there to modulators, from there to the client.


class Publish(EventMessage, frozen=True, gc=False, kw_only=True, tag=14):
    """A producer to its home broker."""

    version: Version
    number: Count
    first: Count


class Accepted(Message, frozen=True, gc=False, tag=15):
    """The home has all before `number`."""

    version: Version
    number: Count


class Place(NamedTuple):
    """Where in a subscription's stream something stands: its number, and the first that its sender still keeps."""

    subscription: SubscriptionId
    number: Count
    first: Count


class Raw(EventMessage, frozen=True, gc=False, kw_only=True, tag=16):
    """An event from a producer's home to the broker of modulators, once for all that run there."""

    producer: NodeId
    generation: Version
    places: Annotated[tuple[Place, ...], Meta(max_length=MAX_ENTRIES)]


class Skip(Message, frozen=True, gc=False, tag=17):
    """What stood before `first` of each place will not come: its lease is over."""

    producer: NodeId
    generation: Version
    places: Annotated[tuple[Place, ...], Meta(max_length=MAX_ENTRIES)]


class Taken(Message, frozen=True, gc=False, tag=18):
    """What the clients have, subscription by subscription: nothing before these numbers need be kept."""

    taken: Annotated[tuple[tuple[SubscriptionId, Following], ...], Meta(max_length=MAX_ENTRIES)]


class Output(EventMessage, frozen=True, gc=False, kw_only=True, tag=19):
    """What a modulator made of an input, on its way to the client."""

    place: Place
    version: Version
    input: Following
    part: Count = 0
    """Which of the outputs of that input it is."""
    ordered: bool = True


class Got(Message, frozen=True, gc=False, tag=20):
    """The client has all outputs before a number, and is at home there."""

    subscription: SubscriptionId
    number: Count
    home: NodeId


# Who wants what, at every broker.


class Ask(Message, frozen=True, gc=False, tag=30):
    """The sender has just started, and knows of nobody: what do you know of?"""


class Known(Message, frozen=True, gc=False, tag=32):
    """All interests that the sender knows of, or a part of them; if it is `sure`, it has asked before, or been told."""

    interests: Annotated[tuple[Interest, ...], Meta(max_length=64)]
    more: bool
    sure: bool


class Interests(Message, frozen=True, gc=False, tag=21):
    """[002 §2.4 step 3] "asks all producers' home brokers to compute paths to the new home broker, and switches"."""

    interests: Annotated[tuple[Interest, ...], Meta(max_length=64)]
    following: Annotated[tuple[tuple[SubscriptionId, Following], ...], Meta(max_length=MAX_ENTRIES)] = ()


class Ended(Message, frozen=True, gc=False, tag=22):
    """A subscription is no more."""

    subscription: SubscriptionId
    version: Version


CARRIED: tuple[type[Message], ...] = (
    *(Topology, Attach, Home, Unknown, Here, Report, Want, Missing, Unwant, Publish, Raw, Skip, Output),
    *(Ask, Known, Seek, Interests, Ended, Prepare, Ready, Moved, Installed, Release, Abort, Begun),
)
"""What goes through the channel."""

MESSAGES: tuple[type[Message], ...] = (
    *(RingQuery, RingAnswer, Topology, Packet, Ack, Hop, Attach, Home, Unknown, Here, Report, Want, Unwant, Publish),
    *(Missing, Accepted, Raw, Skip, Taken, Output, Got, Ask, Known, Seek, Interests, Ended),
    *(Prepare, Ready, Moved, Installed, Release, Abort, Begun),
)
