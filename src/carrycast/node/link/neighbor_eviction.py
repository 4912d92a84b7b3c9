"""Who makes room among an interface's neighbors when all places are taken and one more is heard.

In a network without keys anybody may announce itself, and announce that it will be silent for long. So a place is kept
by those who speak: a neighbor of which nothing but its first beacon was heard makes room, if it was silent for longer
than this node would be before it is given up itself. Before that it makes room only for somebody of another prefix that
has fewer such places. Who has spoken again when it was to, or has acknowledged something, keeps its place until
discovery gives it up, however many strangers come: these only take each other's.
"""

from collections import Counter
from dataclasses import dataclass

from carrycast.core.model import NodeId
from carrycast.node.link.rate_limit import prefixes

AGAIN = 0.5
"""Of a period: for so long a neighbor has to have been heard. Two beacons are not closer than that, unless one lies."""


@dataclass(slots=True)
class _Place:
    prefix: str
    period_s: float
    since_s: float
    heard_s: float
    answered: bool = False


class NeighborPlaces:
    """What is known of each neighbor of one interface. Time is an argument."""

    def __init__(self) -> None:
        self._places: dict[NodeId, _Place] = {}

    def on_beacon(self, neighbor: NodeId, host: str, period_s: float, now_s: float) -> None:
        """A neighbor has said when it will speak again, as far as that is believed."""
        place = self._places.get(neighbor)
        if place is None:
            self._places[neighbor] = _Place(prefixes(host)[0], period_s, now_s, now_s)
        else:
            place.period_s, place.heard_s = period_s, now_s

    def on_answer(self, neighbor: NodeId) -> None:
        """A neighbor has acknowledged something."""
        place = self._places.get(neighbor)
        if place is not None:
            place.answered = True

    def forget(self, neighbor: NodeId) -> None:
        """It is no neighbor any more."""
        self._places.pop(neighbor, None)

    def replaceable(self, host: str, now_s: float, period_s: float, missed: float) -> NodeId | None:
        """Who makes room for somebody at a host, at a node of this period that gives others up after so many; None if
        all of them speak, or have only just begun to."""
        unproven = {neighbor: place for neighbor, place in self._places.items() if not _is_proven(place)}
        # Of the prefix that has the most of them, for one stranger may have many addresses and names.
        crowd = Counter(place.prefix for place in unproven.values())
        order = sorted(unproven, key=lambda one: (-crowd[unproven[one].prefix], unproven[one].heard_s))
        for neighbor in order:
            place = unproven[neighbor]
            if now_s - place.heard_s > missed * min(place.period_s, period_s):
                return neighbor
        # Not for one more of the same, else a crowd of honest nodes would push each other out before they are proven.
        if order and crowd[unproven[order[0]].prefix] > crowd[prefixes(host)[0]] + 1:
            return order[0]
        return None


def _is_proven(place: _Place) -> bool:
    return place.answered or place.heard_s - place.since_s >= AGAIN * place.period_s
