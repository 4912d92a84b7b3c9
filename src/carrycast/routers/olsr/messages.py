"""The message formats of OLSR [RFC 3.3, 6.1, 9.1]. Sequence numbers have 63 bits: the node's incarnation, then a
counter. So they need no circular comparison, and a node that restarts continues above its earlier ones."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts import MAX_LISTED, NeighborHello, RoutedPacket
from carrycast.core.wire import Message

COUNTER_BITS = 32
MAX_SEQUENCE = 2**63 - 1
MAX_MESSAGES = 64
"""Messages in one packet, as in ns-3. A node that has more sends several packets."""

SequenceNumber = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE)]
HopCount = Annotated[int, Meta(ge=0, le=255)]


class Hello(NeighborHello, frozen=True, gc=False, tag=1):
    """HELLO [RFC 6.1]. It is never forwarded."""


class TopologyControl(Message, frozen=True, gc=False, tag=2):
    """TC [RFC 9.1], with the header of messages that are forwarded [RFC 3.3.2]."""

    originator: NodeId
    number: SequenceNumber
    """The message sequence number."""
    ansn: SequenceNumber
    """The advertised neighbor sequence number: it grows when `advertised` changes."""
    validity_s: Annotated[float, Meta(gt=0, le=86_400)]
    """Vtime."""
    ttl: HopCount
    hop_count: HopCount
    advertised: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_LISTED)]


class ControlPacket(Message, frozen=True, gc=False, tag=3):
    """A packet of OLSR [RFC 3.3]: several messages, which share a frame."""

    messages: Annotated[tuple[Hello | TopologyControl, ...], Meta(max_length=MAX_MESSAGES)]


class DataPacket(RoutedPacket, frozen=True, gc=False, kw_only=True, tag=4):
    """A parcel of the layer above on its way."""
