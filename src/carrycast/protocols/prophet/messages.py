"""The messages of PRoPHET, besides those of the store-carry-forward exchange."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts import Filters, ProfileVersion
from carrycast.core.wire import Message

MAX_ENTRIES = 512
"""Entries in one message: at most about 15 kB. More travel in more messages."""
FIXED_POINT_ONE = 65_535
"""[RFC 6693 §4.3.2.3] A delivery predictability travels as 16 bits: this is 1."""


class RibEntry(NamedTuple):
    """The delivery predictability of a node, and the version of its subscriptions that the sender knows."""

    node: NodeId
    version: ProfileVersion
    predictability: Annotated[int, Meta(ge=0, le=FIXED_POINT_ONE)]


class RoutingInformation(Message, frozen=True, gc=False, tag=5):
    """The sender's routing information base (RIB) [RFC 6693 §3.2]: the delivery predictabilities of nodes with
    subscriptions; and the version of the sender's own subscriptions."""

    own: ProfileVersion
    entries: Annotated[tuple[RibEntry, ...], Meta(max_length=MAX_ENTRIES)]


class SubscriptionProfile(NamedTuple):
    """The filters of a node's subscriptions."""

    node: NodeId
    version: ProfileVersion
    filters: Filters


class ProfileRequest(Message, frozen=True, gc=False, tag=6):
    """Requests the profiles of these nodes."""

    nodes: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)]


class ProfileResponse(Message, frozen=True, gc=False, tag=7):
    """The profiles of some nodes."""

    profiles: Annotated[tuple[SubscriptionProfile, ...], Meta(max_length=MAX_ENTRIES)]
