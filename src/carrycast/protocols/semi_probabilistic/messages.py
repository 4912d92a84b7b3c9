"""The messages of semi-probabilistic nodes."""

from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import FilterText, NodeId
from carrycast.core.wire import EventMessage, Message

MAX_HORIZON = 16
"""Hops that a report may travel; with a larger horizon flooding would be cheaper."""

MAX_FILTERS = 1024


class SubscriptionReport(Message, frozen=True, gc=False, tag=1):
    """[004 §2.1] The subscriptions of a node, sent to all nodes within the horizon; valid for `valid_s`."""

    durations: ClassVar[tuple[str, ...]] = ("valid_s",)

    node: NodeId
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    hops: Annotated[int, Meta(ge=1, le=MAX_HORIZON)]
    valid_s: Annotated[float, Meta(gt=0, le=86400)]
    filters: Annotated[tuple[FilterText, ...], Meta(max_length=MAX_FILTERS)]


class ForwardedEvent(EventMessage, frozen=True, gc=False, tag=2):
    """An event over one link."""
