"""The earliest arrival: when an event could have reached each node, had every contact been used at once.

No protocol delivers earlier, and none delivers what does not arrive here: nothing takes time, no air is full, no buffer
ends. So it is a bound, and says what the contacts allow.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from carrycast.sim.contacts import ContactPlan


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a node could have had an event first, and from whom; the source from nobody."""

    time_s: float
    via: int | None


class ContactIndex:
    """Contacts by node, ready to be asked from many sources."""

    def __init__(self, nodes: Iterable[tuple[int, int, float, float]]) -> None:
        self._of: dict[int, list[tuple[float, float, int]]] = {}
        for a, b, start_s, end_s in nodes:
            self._of.setdefault(a, []).append((start_s, end_s, b))
            self._of.setdefault(b, []).append((start_s, end_s, a))
        for met in self._of.values():
            met.sort()

    @classmethod
    def of(cls, plan: ContactPlan, wires: Iterable[tuple[int, int]] = ()) -> "ContactIndex":
        """Those of a plan; wired pairs meet all the time."""
        contacts = zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True)
        return cls([*contacts, *((a, b, 0.0, inf) for a, b in wires)])

    def contacts_of(self, node: int, from_s: float, to_s: float) -> list[tuple[float, float, int]]:
        """The contacts of a node in a window: from when, to when, with whom; in the order of time."""
        return [one for one in self._of.get(node, ()) if one[0] < to_s and one[1] > from_s]

    def earliest_arrivals(self, source: int, time_s: float, until_s: float = inf) -> dict[int, Arrival]:
        """The earliest arrival at every node that can be reached before a time, in the order of arrival."""
        found: dict[int, Arrival] = {}
        waiting: list[tuple[float, int, int]] = [(time_s, source, -1)]
        while waiting:
            now, node, via = heapq.heappop(waiting)
            if node in found:
                continue
            found[node] = Arrival(now, None if via < 0 else via)
            for start_s, end_s, other in self._of.get(node, ()):
                if start_s >= until_s:
                    break
                if other not in found and end_s > now:
                    heapq.heappush(waiting, (max(now, start_s), other, node))
        return found


def path_to(node: int, arrivals: Mapping[int, Arrival]) -> list[tuple[int, float]]:
    """The nodes of an earliest way and when each is reached, from the source on."""
    path: list[tuple[int, float]] = []
    at: int | None = node
    while at is not None:
        arrival = arrivals[at]
        path.append((at, arrival.time_s))
        at = arrival.via
    return path[::-1]
