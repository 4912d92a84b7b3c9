"""The cost of a link: a setting, or measured as the time that a probe of 500 bytes takes to the neighbor.

For each beacon of a neighbor a probe is sent, which the neighbor returns. Half of the round-trip time is one sample. A
probe that does not return counts as the retransmission timeout, so losses make a link expensive.

If the cost changed with every sample, paths would flap between links of about the same cost. So samples are smoothed
(exponentially weighted moving average), and the cost changes only when the average differs from it by a factor
(hysteresis).
"""

from carrycast.core.model import NodeId

GAIN = 1 / 8
"""The weight of a new sample, as of a round-trip time in TCP (RFC 6298, 2.3)."""
CHANGE = 1.5
"""The factor of the hysteresis. The averages of an idle link stay well within it."""


class LinkCosts:
    """The costs of the links over one interface."""

    def __init__(self, initial_s: float) -> None:
        self._initial_s = initial_s
        self._smoothed_s: dict[NodeId, float] = {}
        self._cost_s: dict[NodeId, float] = {}

    def cost_s(self, neighbor: NodeId) -> float:
        """Return the cost of a link; the setting until something is measured."""
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
        """Forget the cost of a lost link; a later link to the neighbor may differ."""
        self._smoothed_s.pop(neighbor, None)
        self._cost_s.pop(neighbor, None)
