"""The messages of brokers and clients, and the values that they are made of [002 §2]."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import MAX_STATE_BYTES, Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import ChannelAck, ChannelPacket
from carrycast.core.wire import EventMessage, Message, ParcelMessage

MAX_PATH = 64
"""Brokers of one source route."""
MAX_ENTRIES = 256
"""Rows of one message; longer lists are sent in several messages."""
TRANSFER_VALID_S = 600.0
"""A state transfer says how old it is by the rest of this duration."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
Hops = Annotated[int, Meta(ge=0, le=65535)]
Distance = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Age = Annotated[float, Meta(ge=0, le=1e9)]
Path = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_PATH)]

# Values.


class HomeVersion(NamedTuple):
    """The version of a client's home broker: of two statements about a client the one with the higher version is valid.

    A client counts its incarnations, and in each of them the times that it attached to a broker. Home brokers count the
    relocations since then.
    """

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    attach: Count
    moves: Count = 0


class SequenceNumber(NamedTuple):
    """A number that keeps rising when its node restarts."""

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    number: Count

    def next(self) -> "SequenceNumber":
        """The number after this one."""
        return SequenceNumber(self.incarnation, self.number + 1)


class StreamPosition(NamedTuple):
    """The next number of a producer's stream. A generation is one attachment of the producer to a home broker."""

    producer: NodeId
    generation: HomeVersion
    number: Count


class StreamSlot(NamedTuple):
    """The number of an event in the stream of a subscription, and the first number that its sender still keeps."""

    subscription: SubscriptionId
    number: Count
    first: Count


class DirectoryEntry(NamedTuple):
    """A row of the subscription directory: a subscription, the broker of its modulator, its client's home broker."""

    subscription: Subscription
    version: HomeVersion
    broker: NodeId
    home: NodeId


class TopologyItem(NamedTuple):
    """A row of the broker topology table, with the row of the broker information table about the same broker."""

    broker: NodeId
    version: SequenceNumber
    age_s: Age
    links: Annotated[tuple[tuple[NodeId, Distance], ...], Meta(max_length=64)]
    load: Share = 0.0
    battery_used: Share = 0.0
    free_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    """Free memory; None if the broker does not know it."""


# The state that a relocation moves [002 §2.4 step 3, §3.4].


class BufferedEventRecord(NamedTuple):
    """An event that waits for its acknowledgement."""

    number: Count
    event: Event
    hops: Hops
    left_s: float
    input: StreamPosition | None = None
    part: Count = 0


class StreamRecord(NamedTuple):
    """The stream of a producer for one subscription, at the producer's home broker."""

    subscription: SubscriptionId
    number: Count
    numbers: Annotated[tuple[Count, ...], Meta(max_length=4096)]
    """The numbers of the buffered events; `events` has the index of each in the producer's record."""
    events: Annotated[tuple[Count, ...], Meta(max_length=4096)]


class ProducerRecord(NamedTuple):
    """A producer at its home broker."""

    generation: HomeVersion
    expected: Count
    events: tuple[BufferedEventRecord, ...]
    streams: tuple[StreamRecord, ...]
    entries: tuple[DirectoryEntry, ...]
    """The subscriptions of the streams, in case the new home broker does not know them."""
    first_number: Count = 0
    """The number with which new streams begin."""


class ModulatorRecord(NamedTuple):
    """A subscription at the broker that runs its modulator."""

    subscription: Subscription
    version: HomeVersion
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)]
    positions: tuple[StreamPosition, ...]
    next_output: Count
    buffered: tuple[BufferedEventRecord, ...]
    recent_inputs: Annotated[tuple[EventId, ...], Meta(max_length=MAX_ENTRIES)] = ()


class RelocationRecord(msgspec.Struct, frozen=True, array_like=True):
    """All that moves: modulators, and together with its home broker a client, which may be a producer."""

    client: NodeId
    home: NodeId
    version: HomeVersion
    is_home: bool
    producers: Annotated[tuple[ProducerRecord, ...], Meta(max_length=64)]
    modulators: Annotated[tuple[ModulatorRecord, ...], Meta(max_length=MAX_ENTRIES)]


# Searches, and the topology of the brokers [002 §2.3].


class RingQuery(Message, frozen=True, gc=False, tag=1):
    """Asks which brokers are within so many hops of the origin."""

    origin: NodeId
    search: SequenceNumber
    hops_left: Annotated[int, Meta(ge=1, le=255)]
    hops: Annotated[int, Meta(ge=1, le=255)]


class RingAnswer(Message, frozen=True, gc=False, tag=2):
    """The sender is a broker, at this distance and with this load."""

    search: SequenceNumber
    hops: Annotated[int, Meta(ge=1, le=255)]
    load: Share


class Topology(Message, frozen=True, gc=False, tag=3):
    """Step 2: "those items in its topology table that have changed since the prior propagation period"."""

    items: Annotated[tuple[TopologyItem, ...], Meta(max_length=MAX_ENTRIES)]


# The channel, and the source routes beneath everything else.


class Packet(ChannelPacket, frozen=True, gc=False, kw_only=True, tag=4):
    """A numbered fragment of a message."""


class Ack(ChannelAck, frozen=True, gc=False, tag=5):
    """The fragments that have arrived."""


class Hop(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=6):
    """[002 §2.2] Source routing: a packet and the remaining brokers of its path; the last of `path` is its target."""

    origin: NodeId
    path: Path
    hops: Hops


# A client and its home broker [002 §2.4].


class Attach(Message, frozen=True, gc=False, tag=7):
    """A client asks the receiver to be its home broker."""

    version: HomeVersion


class HomeConfirmed(Message, frozen=True, gc=False, tag=8):
    """The sender is the client's home broker."""

    version: HomeVersion


class NotHome(Message, frozen=True, gc=False, tag=9):
    """The sender is not the client's home broker, or no longer."""

    version: HomeVersion


class HomeQuery(Message, frozen=True, gc=False, tag=31):
    """A client that lost its home broker asks all brokers which of them is its home broker now."""

    version: HomeVersion


class ClientAlive(Message, frozen=True, gc=False, tag=10):
    """The keepalive of a client."""

    version: HomeVersion


class NearerBroker(Message, frozen=True, gc=False, tag=11):
    """Step 1: a nearer broker, its distance, and its load if it is known."""

    version: HomeVersion
    broker: NodeId
    distance: Distance
    load: Share | None


class Subscribe(Message, frozen=True, gc=False, tag=12):
    """A client subscribes. The positions say what it has received, if this is not its first home broker."""

    version: HomeVersion
    subscription: Subscription
    positions: Annotated[tuple[StreamPosition, ...], Meta(max_length=MAX_ENTRIES)] = ()
    next_output: Count = 0


class ModulatorLost(Message, frozen=True, gc=False, tag=33):
    """A home broker asks its client to subscribe again: no broker runs this subscription any more."""

    subscription: SubscriptionId


class Unsubscribe(Message, frozen=True, gc=False, tag=13):
    """A subscription has ended."""

    subscription: SubscriptionId


# Streams: from a producer to its home broker, from there to modulators, from there to the client.


class Publish(EventMessage, frozen=True, gc=False, kw_only=True, tag=14):
    """An event from a producer to its home broker."""

    version: HomeVersion
    number: Count
    first: Count


class PublishAck(Message, frozen=True, gc=False, tag=15):
    """The home broker has all events before `number`."""

    version: HomeVersion
    number: Count


class ProducedEvent(EventMessage, frozen=True, gc=False, kw_only=True, tag=16):
    """An event from a producer's home broker to a broker of modulators, once for all modulators that run there."""

    producer: NodeId
    generation: HomeVersion
    slots: Annotated[tuple[StreamSlot, ...], Meta(max_length=MAX_ENTRIES)]


class StreamSkip(Message, frozen=True, gc=False, tag=17):
    """The events before `first` of each slot will not come: they have expired."""

    producer: NodeId
    generation: HomeVersion
    slots: Annotated[tuple[StreamSlot, ...], Meta(max_length=MAX_ENTRIES)]


class InputAck(Message, frozen=True, gc=False, tag=18):
    """For each subscription: the outputs of all inputs before these positions have reached the client."""

    positions: Annotated[tuple[tuple[SubscriptionId, StreamPosition], ...], Meta(max_length=MAX_ENTRIES)]


class Output(EventMessage, frozen=True, gc=False, kw_only=True, tag=19):
    """An output of a modulator, to its client."""

    slot: StreamSlot
    version: HomeVersion
    input: StreamPosition
    part: Count = 0
    """The index of the event among the outputs of that input."""
    ordered: bool = True


class OutputAck(Message, frozen=True, gc=False, tag=20):
    """The client has all outputs before a number, and this is its home broker."""

    subscription: SubscriptionId
    number: Count
    home: NodeId


# The subscription directory, which every broker has.


class DirectoryRequest(Message, frozen=True, gc=False, tag=30):
    """Requests the receiver's directory: the sender has just started and knows no subscription."""


class DirectoryReply(Message, frozen=True, gc=False, tag=32):
    """The directory of the sender, or a part of it; `complete` says whether the sender has finished its own request."""

    entries: Annotated[tuple[DirectoryEntry, ...], Meta(max_length=64)]
    more: bool
    complete: bool


class DirectoryUpdate(Message, frozen=True, gc=False, tag=21):
    """[002 §2.4 step 3] "asks all producers' home brokers to compute paths to the new home broker, and switches"."""

    entries: Annotated[tuple[DirectoryEntry, ...], Meta(max_length=64)]
    positions: Annotated[tuple[tuple[SubscriptionId, StreamPosition], ...], Meta(max_length=MAX_ENTRIES)] = ()


class SubscriptionEnded(Message, frozen=True, gc=False, tag=22):
    """A subscription has ended."""

    subscription: SubscriptionId
    version: HomeVersion


# Relocation [002 §2.4 step 3, §3.4].


class Prepare(Message, frozen=True, gc=False, tag=23):
    """Asks whether this client's modulators, and its home if `home`, may move to the receiver."""

    move: SequenceNumber
    client: NodeId
    processors: Annotated[tuple[Annotated[str, Meta(max_length=256)], ...], Meta(max_length=MAX_ENTRIES)]
    home: bool


class Ready(Message, frozen=True, gc=False, tag=24):
    """Answers `Prepare`: the modulators may move to the sender, or the reason why they may not."""

    move: SequenceNumber
    refused: Annotated[str, Meta(max_length=64)] = ""


class StateTransfer(Message, frozen=True, tag=25):
    """The whole state after the last event that was processed. The sender processes nothing from then on."""

    durations = ("valid_s",)

    move: SequenceNumber
    record: RelocationRecord
    valid_s: float
    begin: bool = False
    """Whether to begin at once: without order there is no release to wait for."""


class Installed(Message, frozen=True, gc=False, tag=26):
    """The state has arrived. The sender does nothing with it until it is released."""

    move: SequenceNumber


class Release(Message, frozen=True, gc=False, tag=27):
    """The sender has removed its copy: the receiver begins."""

    move: SequenceNumber


class Abort(Message, frozen=True, gc=False, tag=28):
    """The relocation has failed: the receiver removes the state."""

    move: SequenceNumber


class Resumed(Message, frozen=True, gc=False, tag=29):
    """The release has arrived: the receiver may forget the relocation."""

    move: SequenceNumber


CHANNEL_MESSAGES: tuple[type[Message], ...] = (
    *(Topology, Attach, HomeConfirmed, NotHome, ClientAlive, NearerBroker, Subscribe, ModulatorLost, Unsubscribe),
    *(Publish, ProducedEvent, StreamSkip, Output, DirectoryRequest, DirectoryReply, HomeQuery, DirectoryUpdate),
    *(SubscriptionEnded, Prepare, Ready, StateTransfer, Installed, Release, Abort, Resumed),
)
"""The messages that travel through the channel."""
MESSAGES: tuple[type[Message], ...] = (
    *(RingQuery, RingAnswer, Topology, Packet, Ack, Hop, Attach, HomeConfirmed, NotHome, ClientAlive, NearerBroker),
    *(Subscribe, Unsubscribe, Publish, ModulatorLost, PublishAck, ProducedEvent, StreamSkip, InputAck, Output),
    *(OutputAck, DirectoryRequest, DirectoryReply, HomeQuery, DirectoryUpdate, SubscriptionEnded),
    *(Prepare, Ready, StateTransfer, Installed, Release, Abort, Resumed),
)
