"""What adaptive nodes say to each other."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from driftcast.model import FilterText, NodeId
from driftcast.wire import EventMessage, Message

MAX_HORIZON = 16
"""Hops that utilities may travel; beyond this a horizon is the whole network and flooding is cheaper."""

MAX_REACH = 255
MAX_ENTRIES = 4096

Utility = Annotated[float, Meta(ge=0, le=1)]


class Beyond(NamedTuple):
    """[004 §4] A neighborhood utility: what can be reached through a node.

    `steps` counts the neighborhoods that it was passed on through, and `via` is the neighbor over which the node that says
    it has learned it.
    """

    utility: Utility
    steps: Annotated[int, Meta(ge=1, le=MAX_REACH)]
    via: NodeId


class Utilities(Message, frozen=True, gc=False, tag=1):
    """[004 §2.2] What a node is worth as a receiver, by interest, on its way to all within the horizon.

    `subscribed` are the filters for which its utility is 1. `worth` has its utilities as a carrier; the filter that
    matches everything stands for all interests without an entry. `beyond` has the neighborhood utilities that exceed the
    node's own. All of it is good for `valid_s`.
    """

    node: NodeId
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    hops: Annotated[int, Meta(ge=1, le=MAX_HORIZON)]
    valid_s: Annotated[float, Meta(gt=0, le=86400)]
    subscribed: Annotated[tuple[FilterText, ...], Meta(max_length=MAX_ENTRIES)]
    worth: Annotated[dict[FilterText, Utility], Meta(max_length=MAX_ENTRIES)]
    beyond: Annotated[dict[FilterText, Beyond], Meta(max_length=MAX_ENTRIES)]


class Carried(EventMessage, frozen=True, gc=False, tag=2):
    """An event over one link."""
