"""What a link costs: a setting, or measured as the time that a probe of 500 bytes takes to the neighbor.

Each beacon of a neighbor is answered with a probe, and the neighbor returns it: half of the time that this takes is one
observation. A probe that does not come back counts as the time after which a lost frame would be sent again, so losses
make a link expensive, as they do to those who use it.

Costs that change with every observation would move paths to and fro between links that are about equal. So observations
are smoothed, and a cost counts as changed only when it has left the last one by a factor.
"""

from carrycast.core.model import NodeId

GAIN = 1 / 8
"""The weight of a new observation; that of a new round trip in TCP (RFC 6298)."""
CHANGE = 1.5
"""By which factor a cost must have changed to be worth telling. Smoothed times of an idle link stay well within it."""


class LinkCosts:
    """The costs of the links over one interface, to neighbors that are linked."""

    def __init__(self, initial_s: float) -> None:
        self._initial_s = initial_s
        self._smoothed_s: dict[NodeId, float] = {}
        self._told_s: dict[NodeId, float] = {}

    def cost_s(self, neighbor: NodeId) -> float:
        """The cost as it was last told; the setting while nothing was measured."""
        return self._told_s.get(neighbor, self._initial_s)

    def observe(self, neighbor: NodeId, time_s: float) -> bool:
        """One observation; True if the cost is another by it."""
        before_s = self._smoothed_s.get(neighbor)
        now_s = time_s if before_s is None else before_s + GAIN * (time_s - before_s)
        self._smoothed_s[neighbor] = now_s
        told_s = self.cost_s(neighbor)
        if told_s / CHANGE <= now_s <= told_s * CHANGE:
            return False
        self._told_s[neighbor] = now_s
        return True

    def forget(self, neighbor: NodeId) -> None:
        """The link has gone; if it comes back, it may be another."""
        self._smoothed_s.pop(neighbor, None)
        self._told_s.pop(neighbor, None)
