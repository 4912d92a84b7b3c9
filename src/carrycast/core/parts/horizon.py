"""The horizon: soft state about the nodes within a few hops, which report their state over that many hops.

A report is forwarded hop by hop until its hop limit. If copies arrive over several links, only the first is used; the
others are discarded by their sequence number. So each node is known over exactly one link.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from carrycast.core.model import NodeId

Report = TypeVar("Report")

MAX_NODES = 100_000
"""More nodes than any horizon holds; bounds the memory against forged reports."""

COPY_LIFE_S = 60.0
"""The time for which the sequence number of an expired report is remembered, to discard late copies."""

COUNTER_BITS = 32


def next_sequence(incarnation: int, counter: int) -> int:
    """A sequence number that increases over restarts: the incarnation, then the counter, which restarts at zero."""
    return (incarnation << COUNTER_BITS) + counter


class KnownNode(Generic[Report]):
    """The last report of a node: over which neighbor and how many hops it came, and when it expires."""

    __slots__ = ("hops", "report", "sequence", "until", "via")

    def __init__(self, via: NodeId, hops: int, sequence: int, until: float, report: Report) -> None:
        self.via = via
        self.hops = hops
        self.sequence = sequence
        self.until = until
        self.report = report


class Horizon(Generic[Report]):
    """The nodes that have reported, indexed by the neighbor over which they are reached and by their filters.

    `wanted` gives the filters in a report to which its node subscribes.
    """

    __slots__ = ("_ended", "_nodes", "_self", "_subscribers", "_wanted", "links")

    def __init__(self, self_id: NodeId, wanted: Callable[[Report], tuple[str, ...]]) -> None:
        self._self = self_id
        self._wanted = wanted
        self._nodes: dict[NodeId, KnownNode[Report]] = {}
        self._subscribers: dict[str, dict[NodeId, KnownNode[Report]]] = {}
        self._ended: dict[NodeId, tuple[int, float]] = {}
        """The last sequence numbers of forgotten nodes, to recognize late copies of their reports."""
        self.links: dict[NodeId, dict[NodeId, KnownNode[Report]]] = {}
        """The nodes reached over each neighbor; read-only."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[tuple[NodeId, KnownNode[Report]]]:
        return iter(self._nodes.items())

    def get(self, node: NodeId) -> KnownNode[Report] | None:
        """The last report of a node, or None."""
        return self._nodes.get(node)

    def is_new(self, node: NodeId, sequence: int) -> bool:
        """Whether a report is neither a duplicate nor this node's own."""
        known = self._nodes.get(node)
        if known is not None:
            return sequence > known.sequence
        ended = self._ended.get(node)
        return node != self._self and len(self._nodes) < MAX_NODES and (ended is None or sequence > ended[0])

    def accept(self, node: NodeId, via: NodeId, hops: int, sequence: int, until: float, report: Report) -> None:
        """Store a new report."""
        old = self._nodes.get(node)
        if old is not None:
            if old.via == via and self._wanted(old.report) == self._wanted(report):
                # The usual case: the next report over the same link.
                old.hops, old.sequence, old.until, old.report = hops, sequence, until, report
                return
            self._drop(node)
        else:
            self._ended.pop(node, None)
        known = self._nodes[node] = KnownNode(via, hops, sequence, until, report)
        self.links.setdefault(via, {})[node] = known
        for text in self._wanted(report):
            self._subscribers.setdefault(text, {})[node] = known

    def nearest(self, texts: Iterable[str]) -> dict[NodeId, int]:
        """The links that lead to subscribers to any of these filters, with the hops to the nearest one."""
        found: dict[NodeId, int] = {}
        for text in texts:
            subscribers = self._subscribers.get(text)
            if subscribers is not None:
                for known in subscribers.values():
                    hops = found.get(known.via)
                    if hops is None or known.hops < hops:
                        found[known.via] = known.hops
        return found

    def lose(self, neighbor: NodeId) -> None:
        """A link is down: forget the nodes reached over it."""
        for node in list(self.links.get(neighbor, ())):
            known = self._drop(node)
            self._ended[node] = (known.sequence, known.until + COPY_LIFE_S)

    def expire(self, now: float) -> bool:
        """Remove expired reports; True if there was any. To be called periodically."""
        over = [node for node, known in self._nodes.items() if known.until <= now]
        for node in over:
            known = self._drop(node)
            self._ended[node] = (known.sequence, now + COPY_LIFE_S)
        for node in [node for node, (_, until) in self._ended.items() if until <= now]:
            del self._ended[node]
        return bool(over)

    def _drop(self, node: NodeId) -> KnownNode[Report]:
        known = self._nodes.pop(node)
        _remove(self.links, known.via, node)
        for text in self._wanted(known.report):
            _remove(self._subscribers, text, node)
        return known


Key = TypeVar("Key", NodeId, str)


def _remove(groups: dict[Key, dict[NodeId, KnownNode[Report]]], key: Key, node: NodeId) -> None:
    """Remove a node from its group, and a group that is then empty."""
    group = groups[key]
    del group[node]
    if not group:
        del groups[key]
