"""The message formats of AODV [RFC 5]. Sequence numbers have 63 bits: the node's incarnation, then a counter. 0 means
that the number is unknown."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.wire import Message, ParcelMessage

COUNTER_BITS = 32
MAX_UNREACHABLE = 64
"""Destinations in one RERR. A node that has lost more sends several RERRs."""

MAX_SEQUENCE = 2**63 - 1
MAX_OTHERS = 63
"""Further destinations of one packet. A node that has more sends several packets."""

SequenceNumber = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE)]
SequenceNumberIfKnown = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]
HopCount = Annotated[int, Meta(ge=0, le=255)]


class RouteRequest(Message, frozen=True, gc=False, tag=1):
    """RREQ [RFC 5.1]. The TTL of the IP header is a field, since the protocol interface has none."""

    originator: NodeId
    originator_sequence: SequenceNumber
    rreq_id: SequenceNumber
    destination: NodeId
    destination_sequence: SequenceNumberIfKnown
    hop_count: HopCount
    ttl: HopCount
    gratuitous: bool = False
    """Flag G."""
    destination_only: bool = False
    """Flag D."""


class RouteReply(Message, frozen=True, gc=False, tag=2):
    """RREP [RFC 5.2]: the distance from the sender to `destination`. It goes to `originator`, which sent the RREQ."""

    originator: NodeId
    destination: NodeId
    destination_sequence: SequenceNumber
    hop_count: HopCount
    lifetime_ms: Annotated[int, Meta(ge=0, le=2**32 - 1)]


class RouteError(Message, frozen=True, gc=False, tag=3):
    """RERR [RFC 5.3]: destinations that the sender can no longer reach, each with its sequence number.

    `no_delete` is flag N: a local repair has found a longer route, and the receivers keep theirs.
    """

    unreachable: Annotated[tuple[tuple[NodeId, SequenceNumberIfKnown], ...], Meta(max_length=MAX_UNREACHABLE)]
    no_delete: bool = False


class Hello(Message, frozen=True, gc=False, tag=4):
    """HELLO [RFC 6.9]; the RFC sends it as a RREP with a TTL of one."""

    sequence: SequenceNumber


class Packet(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=5):
    """A parcel of the layer above on its way. On arrival `hops` is the number of transmissions so far."""

    origin: NodeId
    destination: NodeId
    hops: HopCount


class Bundle(Packet, frozen=True, gc=False, kw_only=True, tag=6):
    """A packet for several nodes whose routes have the same next hop. It splits where they part. Beyond the RFC."""

    others: Annotated[tuple[NodeId, ...], Meta(min_length=1, max_length=MAX_OTHERS)]
    """The destinations besides `destination`."""
