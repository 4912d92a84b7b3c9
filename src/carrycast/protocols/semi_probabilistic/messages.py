"""What semi-probabilistic nodes say to each other."""

from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import FilterText, NodeId
from carrycast.core.wire import EventMessage, Message

MAX_HORIZON = 16
"""Hops that a report may travel; beyond this a horizon is the whole network and flooding is cheaper."""

MAX_FILTERS = 1024


class Interested(Message, frozen=True, gc=False, tag=1):
    """[004 §2.1] What a node subscribes to, on its way to all within the horizon; good for `valid_s`."""

    durations: ClassVar[tuple[str, ...]] = ("valid_s",)

    node: NodeId
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    hops: Annotated[int, Meta(ge=1, le=MAX_HORIZON)]
    valid_s: Annotated[float, Meta(gt=0, le=86400)]
    filters: Annotated[tuple[FilterText, ...], Meta(max_length=MAX_FILTERS)]


class Forwarded(EventMessage, frozen=True, gc=False, tag=2):
    """An event over one link."""
