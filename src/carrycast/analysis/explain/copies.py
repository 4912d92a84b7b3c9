"""The copies of an event at nodes over time: a fold over the facts of one event."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from carrycast.trace import CrashFact, DeliverFact, EvictFact, FrameFact, OrderedFold, PublishFact, StoreFact, TraceFact


@dataclass(slots=True)
class Copy:
    """The copy of an event at one node."""

    node: int
    got_s: float | None = None
    """When the node first received the event."""
    giver: int | None = None
    """The node that sent it; None if this node published the event, or if the trace does not say."""
    delivered_s: float | None = None
    stored_s: float | None = None
    let_go_s: float | None = None
    reason: str | None = None
    """The reason for removing the copy."""

    def holds(self, from_s: float, to_s: float) -> bool:
        """Whether the node stored the event at some time of a window."""
        if self.stored_s is None:
            return False
        return self.stored_s < to_s and (self.let_go_s is None or self.let_go_s > from_s)

    @property
    def until_s(self) -> float:
        """The end of storage; infinite if the trace has no end."""
        return inf if self.let_go_s is None else self.let_go_s


class CopyFold(OrderedFold[dict[int, Copy]]):
    """Collects the copies of one event by node, in the order of receipt, from the facts of that event and crashes."""

    reads = (PublishFact, FrameFact, DeliverFact, StoreFact, EvictFact, CrashFact)

    def __init__(self) -> None:
        self._copies: dict[int, Copy] = {}

    def on_fact(self, fact: TraceFact) -> None:
        node, time_s = fact.node, fact.time_s
        if isinstance(fact, CrashFact):
            lost = self._copies.get(node)
            if lost is not None and lost.holds(time_s, inf):
                lost.let_go_s, lost.reason = time_s, "crash"
        elif isinstance(fact, FrameFact):
            for receiver in fact.receivers:
                self._record_receipt(receiver, time_s, giver=node)
        elif isinstance(fact, EvictFact):
            copy = self._copies.setdefault(node, Copy(node))
            copy.let_go_s, copy.reason = time_s, fact.reason or None
        else:
            copy = self._record_receipt(node, time_s)
            if isinstance(fact, DeliverFact) and copy.delivered_s is None:
                copy.delivered_s = time_s
            elif isinstance(fact, StoreFact):
                copy.stored_s = time_s if copy.stored_s is None else copy.stored_s
                copy.let_go_s = copy.reason = None

    def result(self) -> dict[int, Copy]:
        return self._copies

    def _record_receipt(self, node: int, time_s: float, giver: int | None = None) -> Copy:
        copy = self._copies.setdefault(node, Copy(node))
        if copy.got_s is None:
            copy.got_s, copy.giver = time_s, giver
        return copy


def path_of_copies(node: int, copies: Mapping[int, Copy]) -> list[tuple[int, float]]:
    """Return the path of the event to a node, with the time of each receipt, as far back as the trace shows."""
    path: list[tuple[int, float]] = []
    at: int | None = node
    visited: set[int] = set()
    while at is not None and at in copies and at not in visited:
        visited.add(at)
        copy = copies[at]
        if copy.got_s is None:
            break
        path.append((at, copy.got_s))
        at = copy.giver
    return path[::-1]
