"""The messages of adaptive nodes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import FilterText, NodeId
from carrycast.core.wire import EventMessage, Message

MAX_HORIZON = 16
"""Hops that utilities may travel; with a larger horizon flooding would be cheaper."""

MAX_REACH = 255
MAX_ENTRIES = 4096

Utility = Annotated[float, Meta(ge=0, le=1)]
Steps = Annotated[int, Meta(ge=1, le=MAX_REACH)]


class UtilityReport(Message, frozen=True, gc=True, dict=True, tag=1):
    """[004 §2.2] The utilities of a node as a receiver, by interest, sent to all nodes within the horizon.

    [004 §2.2.1, eq. 1] `subscribed` are the filters for which its utility is 1. `utilities` has its utilities as a
    carrier; the filter that matches everything stands for all interests without an entry. The report is valid for
    `valid_s`.

    [004 §4] `neighborhood` has the neighborhood utilities that exceed the node's own. For each entry, `via` is the
    neighbor over which it was learned, `steps` the number of neighborhoods that it passed through (empty: one for all),
    and `origins` the node whose utility it is (empty: the neighbors themselves).
    """

    durations: ClassVar[tuple[str, ...]] = ("valid_s",)

    node: NodeId
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    hops: Annotated[int, Meta(ge=1, le=MAX_HORIZON)]
    valid_s: Annotated[float, Meta(gt=0, le=86400)]
    subscribed: Annotated[tuple[FilterText, ...], Meta(max_length=MAX_ENTRIES)]
    utilities: Annotated[dict[FilterText, Utility], Meta(max_length=MAX_ENTRIES)]
    neighborhood: Annotated[dict[FilterText, Utility], Meta(max_length=MAX_ENTRIES)]
    via: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)] = ()
    steps: Annotated[tuple[Steps, ...], Meta(max_length=MAX_ENTRIES)] = ()
    origins: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)] = ()

    def __post_init__(self) -> None:
        entries = len(self.neighborhood)
        if len(self.via) != entries or len(self.steps) not in (0, entries) or len(self.origins) not in (0, entries):
            raise ValueError("via, steps and origins have an entry for each of neighborhood")

    # Computed once, although many neighbors may receive the same object.

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All interests in the report."""
        return frozenset((*self.subscribed, *self.utilities, *self.neighborhood))

    @cached_property
    def merged(self) -> Mapping[str, float]:
        """The utilities by interest, with the neighborhood utilities."""
        return {**self.utilities, **self.neighborhood} if self.neighborhood else self.utilities

    @cached_property
    def learned(self) -> Mapping[NodeId, list[str]]:
        """The interests of the neighborhood utilities that were learned from a node or are its own, by node."""
        found: dict[NodeId, list[str]] = {}
        for interest, via, origin in zip(self.neighborhood, self.via, self.origins or self.via, strict=True):
            found.setdefault(via, []).append(interest)
            if origin != via:
                found.setdefault(origin, []).append(interest)
        return found


class ForwardedEvent(EventMessage, frozen=True, gc=False, tag=2):
    """An event over one link."""
