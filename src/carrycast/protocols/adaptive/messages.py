"""What adaptive nodes say to each other."""

from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import FilterText, NodeId
from carrycast.core.wire import EventMessage, Message

MAX_HORIZON = 16
"""Hops that utilities may travel; beyond this a horizon is the whole network and flooding is cheaper."""

MAX_REACH = 255
MAX_ENTRIES = 4096

Utility = Annotated[float, Meta(ge=0, le=1)]
Steps = Annotated[int, Meta(ge=1, le=MAX_REACH)]


class Utilities(Message, frozen=True, gc=False, tag=1):
    """[004 §2.2] What a node is worth as a receiver, by interest, on its way to all within the horizon.

    `subscribed` are the filters for which its utility is 1. `worth` has its utilities as a carrier; the filter that
    matches everything stands for all interests without an entry. All of it is good for `valid_s`.

    [004 §4] `beyond` has the neighborhood utilities that exceed the node's own. Entry by entry, `via` says over which
    neighbor it was learned, `steps` through how many neighborhoods (without `steps` it is one for all), and `origins`
    whose utility it is (without `origins` the neighbors' own).
    """

    durations: ClassVar[tuple[str, ...]] = ("valid_s",)

    node: NodeId
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    hops: Annotated[int, Meta(ge=1, le=MAX_HORIZON)]
    valid_s: Annotated[float, Meta(gt=0, le=86400)]
    subscribed: Annotated[tuple[FilterText, ...], Meta(max_length=MAX_ENTRIES)]
    worth: Annotated[dict[FilterText, Utility], Meta(max_length=MAX_ENTRIES)]
    beyond: Annotated[dict[FilterText, Utility], Meta(max_length=MAX_ENTRIES)]
    via: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)] = ()
    steps: Annotated[tuple[Steps, ...], Meta(max_length=MAX_ENTRIES)] = ()
    origins: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)] = ()

    def __post_init__(self) -> None:
        entries = len(self.beyond)
        if len(self.via) != entries or len(self.steps) not in (0, entries) or len(self.origins) not in (0, entries):
            raise ValueError("via, steps and origins have an entry for each of beyond")


class Carried(EventMessage, frozen=True, gc=False, tag=2):
    """An event over one link."""
