"""What AODV says [RFC 5]. Sequence numbers have 63 bits: the node's incarnation, then a counter; 0 is "unknown"."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.wire import Message, ParcelMessage

COUNTER_BITS = 32
MAX_LOST = 64
"""Destinations in one RERR; who has lost more sends several."""

MAX_NUMBER = 2**63 - 1
MAX_OTHERS = 63
"""More targets in one packet; who has more sends several."""

Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
NumberIfKnown = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Hops = Annotated[int, Meta(ge=0, le=255)]


class RouteRequest(Message, frozen=True, gc=False, tag=1):
    """RREQ [RFC 5.1]. The `ttl` of the packet is a field, since the protocol interface has none."""

    origin: NodeId
    origin_sequence: Number
    search: Number
    """RREQ ID."""
    target: NodeId
    target_sequence: NumberIfKnown
    hops: Hops
    ttl: Hops
    gratuitous: bool = False
    destination_only: bool = False


class RouteReply(Message, frozen=True, gc=False, tag=2):
    """RREP [RFC 5.2]: how far `target` is from the sender; on its way to `origin`, who asked."""

    origin: NodeId
    target: NodeId
    target_sequence: Number
    hops: Hops
    lifetime_ms: Annotated[int, Meta(ge=0, le=2**32 - 1)]


class RouteError(Message, frozen=True, gc=False, tag=3):
    """RERR [RFC 5.3]: destinations that the sender can no longer reach.

    `repaired` is flag N: it can again, over a longer route; nobody shall drop theirs.
    """

    lost: Annotated[tuple[tuple[NodeId, NumberIfKnown], ...], Meta(max_length=MAX_LOST)]
    repaired: bool = False


class Hello(Message, frozen=True, gc=False, tag=4):
    """HELLO [RFC 6.9], there a RREP with a time to live of one."""

    sequence: Number


class Packet(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=5):
    """What the layer above wants brought. `hops` counts the transmissions behind it when it arrives."""

    origin: NodeId
    target: NodeId
    hops: Hops


class Bundle(Packet, frozen=True, gc=False, kw_only=True, tag=6):
    """A packet for several nodes whose routes have the same next hop; it splits where they part. Beyond the RFC."""

    others: Annotated[tuple[NodeId, ...], Meta(min_length=1, max_length=MAX_OTHERS)]
    """Besides `target`."""
