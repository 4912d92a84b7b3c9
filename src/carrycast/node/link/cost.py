"""The cost of a link: a setting, or measured as the time that a probe of 500 bytes takes to the neighbor.

Each beacon of a neighbor is answered with a probe, and the neighbor returns it: half of the round-trip time is one
sample. A probe that does not come back counts as the time after which a lost frame would be sent again, so losses make
a link expensive, as they do to protocols that use it.

Costs that change with every sample would move paths to and fro between links that are about equal. So samples are
smoothed (an exponentially weighted moving average), and the cost changes only when the average has left it by a factor
(hysteresis).
"""

from carrycast.core.model import NodeId

GAIN = 1 / 8
"""The weight of a new sample; that of a new round trip in TCP (RFC 6298)."""
CHANGE = 1.5
"""The factor of the hysteresis. Smoothed times of an idle link stay well within it."""


class LinkCosts:
    """The costs of the links over one interface, to neighbors that are linked."""

    def __init__(self, initial_s: float) -> None:
        self._initial_s = initial_s
        self._smoothed_s: dict[NodeId, float] = {}
        self._cost_s: dict[NodeId, float] = {}

    def cost_s(self, neighbor: NodeId) -> float:
        """The cost of a link; the setting while nothing was measured."""
        return self._cost_s.get(neighbor, self._initial_s)

    def observe(self, neighbor: NodeId, time_s: float) -> bool:
        """Add a sample; True if the cost has changed."""
        before_s = self._smoothed_s.get(neighbor)
        now_s = time_s if before_s is None else before_s + GAIN * (time_s - before_s)
        self._smoothed_s[neighbor] = now_s
        cost_s = self.cost_s(neighbor)
        if cost_s / CHANGE <= now_s <= cost_s * CHANGE:
            return False
        self._cost_s[neighbor] = now_s
        return True

    def forget(self, neighbor: NodeId) -> None:
        """The link is gone; when it comes back, it may be another."""
        self._smoothed_s.pop(neighbor, None)
        self._cost_s.pop(neighbor, None)
