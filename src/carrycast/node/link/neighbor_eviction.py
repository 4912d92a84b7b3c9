"""Which neighbor is evicted when an interface has as many neighbors as it may, and a beacon of another is received.

In a network without keys any node may announce itself, and announce that its next beacon comes late. So a neighbor
keeps its place by sending: a neighbor that has sent nothing but its first beacon is evicted, if it has been silent for
longer than this node would be before others give it up. Before that it is evicted only for a node of another address
prefix that has fewer such places. A neighbor that has sent its next beacon when it was due, or has acknowledged
something, keeps its place until discovery gives it up, however many unknown nodes come: these only evict each other.
"""

from collections import Counter
from dataclasses import dataclass

from carrycast.core.model import NodeId

PROVEN_PERIODS = 0.5
"""Beacon periods for which a neighbor has to have been heard. Two beacons are not closer than that, unless one lies."""


@dataclass(slots=True)
class _NeighborActivity:
    prefix: str
    period_s: float
    since_s: float
    heard_s: float
    acknowledged: bool = False

    @property
    def is_proven(self) -> bool:
        return self.acknowledged or self.heard_s - self.since_s >= PROVEN_PERIODS * self.period_s


class NeighborEviction:
    """What is known of each neighbor of one interface. Time is an argument."""

    def __init__(self) -> None:
        self._neighbors: dict[NodeId, _NeighborActivity] = {}

    def on_beacon(self, neighbor: NodeId, prefix: str, period_s: float, now_s: float) -> None:
        """A neighbor at an address of this prefix announces when its next beacon comes, as far as that is believed."""
        activity = self._neighbors.get(neighbor)
        if activity is None:
            self._neighbors[neighbor] = _NeighborActivity(prefix, period_s, now_s, now_s)
        else:
            activity.period_s, activity.heard_s = period_s, now_s

    def on_ack(self, neighbor: NodeId) -> None:
        """A neighbor has acknowledged something."""
        activity = self._neighbors.get(neighbor)
        if activity is not None:
            activity.acknowledged = True

    def forget(self, neighbor: NodeId) -> None:
        """It is no neighbor any more."""
        self._neighbors.pop(neighbor, None)

    def choose(self, prefix: str, now_s: float, period_s: float, missed: float) -> NodeId | None:
        """The neighbor to evict for a node of this prefix, at a node with this period that gives others up after so
        many missed beacons; None if all of them send, or have only just begun to."""
        unproven = {neighbor: one for neighbor, one in self._neighbors.items() if not one.is_proven}
        # Of the prefix that has the most of them, for one attacker may have many addresses and ids.
        crowd = Counter(one.prefix for one in unproven.values())
        order = sorted(unproven, key=lambda node: (-crowd[unproven[node].prefix], unproven[node].heard_s))
        for neighbor in order:
            activity = unproven[neighbor]
            if now_s - activity.heard_s > missed * min(activity.period_s, period_s):
                return neighbor
        # Not for one more of the same, else a crowd of honest nodes would evict each other before they are is_proven.
        if order and crowd[unproven[order[0]].prefix] > crowd[prefix] + 1:
            return order[0]
        return None
