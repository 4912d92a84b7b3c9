"""The change degree of connectivity."""

from carrycast.protocols.adaptive.context.attribute import HostAttribute, Surroundings
from carrycast.protocols.adaptive.rules import change_degree


class ChangeDegree(HostAttribute):
    """[004 §3, eq. 6] How much the neighbors changed: a node that meets many others has more chances to forward."""

    name = "change_degree"
    summary = "the share of neighbors that came or went in the last period"

    def observe(self, around: Surroundings) -> float | None:
        return change_degree(around.neighbors_before, around.neighbors)
