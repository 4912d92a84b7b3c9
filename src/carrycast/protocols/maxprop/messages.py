"""The messages of MaxProp, besides those of the store-carry-forward exchange."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts import Filters, ProfileVersion
from carrycast.core.wire import Message

MAX_LIKELIHOODS = 50
"""The likelihoods that a node keeps and sends, the highest of all. As in the ONE (`probSetMaxSize`)."""
MAX_ENTRIES = 512
"""Entries in one message: at most about 10 kB. More travel in more messages."""
MAX_DESTINATIONS = 512
"""Destinations in one acknowledgement."""
FIXED_POINT_ONE = 65_535
"""Likelihoods travel as 16 bits: this is 1."""


class RecordVersion(NamedTuple):
    """The version of the record of a node that the sender knows."""

    node: NodeId
    version: ProfileVersion


class RecordVersions(Message, frozen=True, gc=False, tag=5):
    """The records that the sender knows; the receiver requests those that are newer than its own."""

    known: Annotated[tuple[RecordVersion, ...], Meta(max_length=MAX_ENTRIES)]


class RecordRequest(Message, frozen=True, gc=False, tag=6):
    """Requests the records of these nodes."""

    nodes: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)]


class MeetingLikelihood(NamedTuple):
    """The likelihood that the next meeting of a node is with another."""

    node: NodeId
    likelihood: Annotated[int, Meta(ge=0, le=FIXED_POINT_ONE)]


class NodeRecord(Message, frozen=True, gc=False, tag=7):
    """The meeting likelihoods of a node, and its filters."""

    node: NodeId
    version: ProfileVersion
    likelihoods: Annotated[tuple[MeetingLikelihood, ...], Meta(max_length=MAX_LIKELIHOODS)]
    filters: Filters


class DeliveryAck(NamedTuple):
    """An event was delivered to these destinations. `remaining_s` is the rest of its lease."""

    event: EventId
    remaining_s: Annotated[float, Meta(gt=0)]
    destinations: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_DESTINATIONS)]


class DeliveryAcks(Message, frozen=True, gc=False, tag=8):
    """Acknowledgements that the sender knows."""

    acks: Annotated[tuple[DeliveryAck, ...], Meta(max_length=MAX_ENTRIES)]
