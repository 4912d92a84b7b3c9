"""The messages of state vector sync."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.wire import EventMessage, Message

Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]

MAX_ENTRIES = 1024
"""Entries in one message: at most about 20 kB, so that it fits in a datagram."""


class StateEntry(NamedTuple):
    """[SVS §3] The latest sequence number of a publisher that a node knows of."""

    source: NodeId
    sequence: Sequence


class SyncInterest(Message, frozen=True, gc=False, tag=1):
    """[SVS §2] The state vector of the sender, or a part of it."""

    vector: Annotated[tuple[StateEntry, ...], Meta(max_length=MAX_ENTRIES)]
    complete: bool = True


class SequenceRange(NamedTuple):
    """Sequence numbers of one publisher, from `low` to `high`."""

    source: NodeId
    low: Sequence
    high: Sequence


class DataInterest(Message, frozen=True, gc=False, tag=2):
    """[SVS §2] Requests the events with these numbers."""

    ranges: Annotated[tuple[SequenceRange, ...], Meta(max_length=MAX_ENTRIES)]


class SyncData(EventMessage, frozen=True, gc=False, tag=3):
    """A requested event."""


class DataNack(Message, frozen=True, gc=False, tag=4):
    """Requested numbers of events that the sender does not have: whose leases have expired, and that it had no room
    for."""

    expired: Annotated[tuple[SequenceRange, ...], Meta(max_length=MAX_ENTRIES)]
    absent: Annotated[tuple[SequenceRange, ...], Meta(max_length=MAX_ENTRIES)] = ()
