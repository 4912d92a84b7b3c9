"""Neighbor eviction: chooses the neighbor to evict when the neighbor table is full and another node sends a beacon.

In a network without keys any node can send beacons, and can announce a long beacon period. So a neighbor is *proven*
only when it has sent another beacon after its first one, or has acknowledged a frame. Proven neighbors are never
evicted here: they stay until discovery loses them, and unknown nodes can only evict each other. An unproven neighbor is
evicted when it has been silent for as many beacon periods as discovery tolerates. Before that, it is evicted only for a
node of another address prefix that has fewer unproven neighbors.
"""

from collections import Counter
from dataclasses import dataclass

from carrycast.core.model import NodeId

PROVEN_PERIODS = 0.5
"""The beacon periods between the first and the latest beacon of a proven neighbor. Honest beacons are further apart."""


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
    """The activity of each neighbor of one interface. Time is an argument."""

    def __init__(self) -> None:
        self._neighbors: dict[NodeId, _NeighborActivity] = {}

    def on_beacon(self, neighbor: NodeId, prefix: str, period_s: float, now_s: float) -> None:
        """A neighbor has sent a beacon from this address prefix. `period_s` is its beacon period, as far as it is
        believed."""
        activity = self._neighbors.get(neighbor)
        if activity is None:
            self._neighbors[neighbor] = _NeighborActivity(prefix, period_s, now_s, now_s)
        else:
            activity.period_s, activity.heard_s = period_s, now_s

    def on_ack(self, neighbor: NodeId) -> None:
        """A neighbor has acknowledged a frame."""
        activity = self._neighbors.get(neighbor)
        if activity is not None:
            activity.acknowledged = True

    def forget(self, neighbor: NodeId) -> None:
        """Forget a node that is no neighbor any more."""
        self._neighbors.pop(neighbor, None)

    def choose(self, prefix: str, now_s: float, period_s: float, missed: float) -> NodeId | None:
        """Choose the neighbor to evict for a node of this prefix; None if there is none. `period_s` and `missed` are
        the beacon period of this node, and the missed beacons after which a neighbor is lost."""
        unproven = {neighbor: one for neighbor, one in self._neighbors.items() if not one.is_proven}
        # First those of the prefix that has the most, because one attacker may have many addresses and ids.
        crowd = Counter(one.prefix for one in unproven.values())
        order = sorted(unproven, key=lambda node: (-crowd[unproven[node].prefix], unproven[node].heard_s))
        for neighbor in order:
            activity = unproven[neighbor]
            if now_s - activity.heard_s > missed * min(activity.period_s, period_s):
                return neighbor
        # Not for a node of the same prefix: many honest nodes would evict each other before they are proven.
        if order and crowd[unproven[order[0]].prefix] > crowd[prefix] + 1:
            return order[0]
        return None
