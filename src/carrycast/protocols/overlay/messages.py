"""What brokers and clients say to each other [002 §2]."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId, Subscription, SubscriptionId
from carrycast.core.parts.inbox import ChannelAck, ChannelPacket
from carrycast.core.wire import EventMessage, Message, ParcelMessage
from carrycast.protocols.overlay.moves import Abort, Begun, Installed, Interest, Moved, Prepare, Ready, Release
from carrycast.protocols.overlay.words import Age, Count, Distance, Following, Hops, Path, Round, Share, Version

MAX_ENTRIES = 256
"""Rows of one message; longer lists go in several."""

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
