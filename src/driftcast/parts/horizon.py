"""What a node knows of the nodes within a few hops: soft state that each of them spreads over that many hops.

A report is passed on hop by hop while it has hops left. Of copies that come over several links the first one counts and the
others are discarded by their sequence number, so each node is known over exactly one link.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from driftcast.model import NodeId

Report = TypeVar("Report")

MAX_NODES = 100_000
"""More nodes than any horizon holds; forged reports cannot fill the memory."""

COPY_LIFE_S = 60.0
"""For that long after a report has run out, copies of it are still known to be copies."""

COUNTER_BITS = 32


def next_sequence(incarnation: int, counter: int) -> int:
    """A sequence number that grows over restarts of a node too: after a crash its counter begins anew."""
    return (incarnation << COUNTER_BITS) + counter


class Known(Generic[Report]):
    """The last report of a node: over which neighbor it came, over how many hops, and until when it is good."""

    __slots__ = ("hops", "report", "sequence", "until", "via")

    def __init__(self, via: NodeId, hops: int, sequence: int, until: float, report: Report) -> None:
        self.via = via
        self.hops = hops
        self.sequence = sequence
        self.until = until
        self.report = report


class Horizon(Generic[Report]):
    """The nodes that have reported, in all and by the neighbor over which they are reached."""

    __slots__ = ("_ended", "_links", "_nodes", "_self")

    def __init__(self, self_id: NodeId) -> None:
        self._self = self_id
        self._nodes: dict[NodeId, Known[Report]] = {}
        self._links: dict[NodeId, dict[NodeId, Known[Report]]] = {}
        self._ended: dict[NodeId, tuple[int, float]] = {}
        """The last sequence numbers of nodes that are no longer known, so that old copies stay duplicates."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[tuple[NodeId, Known[Report]]]:
        return iter(self._nodes.items())

    def get(self, node: NodeId) -> Known[Report] | None:
        """What is known of a node."""
        return self._nodes.get(node)

    def via(self, neighbor: NodeId) -> dict[NodeId, Known[Report]] | None:
        """The nodes reached over a neighbor, or None."""
        return self._links.get(neighbor)

    def accept(self, node: NodeId, via: NodeId, hops: int, sequence: int, until: float, report: Report) -> bool:
        """Take a report in. False for an old one, a copy of one that came before, or one of this node's own."""
        old = self._nodes.get(node)
        if old is not None:
            if sequence <= old.sequence:
                return False
            if old.via == via:
                # The usual case: the next report over the same link.
                old.hops, old.sequence, old.until, old.report = hops, sequence, until, report
                return True
            self._unlink(node, old.via)
        elif node == self._self or len(self._nodes) >= MAX_NODES:
            return False
        else:
            ended = self._ended.pop(node, None)
            if ended is not None and sequence <= ended[0]:
                self._ended[node] = ended
                return False
        known = self._nodes[node] = Known(via, hops, sequence, until, report)
        self._links.setdefault(via, {})[node] = known
        return True

    def lose(self, neighbor: NodeId) -> None:
        """A link is gone, and with it all that is known only over it."""
        for node, known in self._links.pop(neighbor, {}).items():
            del self._nodes[node]
            self._ended[node] = (known.sequence, known.until + COPY_LIFE_S)

    def expire(self, now: float) -> None:
        """Forget what is no longer good. To be called now and then: reports are not watched one by one."""
        for node in [node for node, known in self._nodes.items() if known.until <= now]:
            known = self._nodes.pop(node)
            self._unlink(node, known.via)
            self._ended[node] = (known.sequence, now + COPY_LIFE_S)
        for node in [node for node, (_, until) in self._ended.items() if until <= now]:
            del self._ended[node]

    def _unlink(self, node: NodeId, via: NodeId) -> None:
        reached = self._links[via]
        del reached[node]
        if not reached:
            del self._links[via]
