"""Earliest arrivals: the times at which an event could have reached each node if every contact had been used at once.

This is Dijkstra's algorithm over a contact plan (Jain, Fall and Patra, "Routing in a delay tolerant network", SIGCOMM
2004), without transmission times, contention and limits of buffers. So it is a bound: no protocol delivers earlier, and
none delivers to a node that is not reached here.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from carrycast.sim.contacts import ContactPlan


@dataclass(frozen=True, slots=True)
class Arrival:
    """The earliest time at which a node could have an event, and the node it comes from (None for the source)."""

    time_s: float
    via: int | None


class ContactIndex:
    """The contacts of each node, for queries from many sources."""

    def __init__(self, contacts: Iterable[tuple[int, int, float, float]]) -> None:
        self._of: dict[int, list[tuple[float, float, int]]] = {}
        for a, b, start_s, end_s in contacts:
            self._of.setdefault(a, []).append((start_s, end_s, b))
            self._of.setdefault(b, []).append((start_s, end_s, a))
        for contacts_of_node in self._of.values():
            contacts_of_node.sort()

    @classmethod
    def of(cls, plan: ContactPlan, wires: Iterable[tuple[int, int]] = ()) -> "ContactIndex":
        """Return the index of a plan. Wired pairs are in contact all the time."""
        contacts = zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True)
        return cls([*contacts, *((a, b, 0.0, inf) for a, b in wires)])

    def contacts_of(self, node: int, from_s: float, to_s: float) -> list[tuple[float, float, int]]:
        """Return the contacts of a node in a window, as (start, end, peer), ordered by time."""
        return [one for one in self._of.get(node, ()) if one[0] < to_s and one[1] > from_s]

    def earliest_arrivals(self, source: int, time_s: float, until_s: float = inf) -> dict[int, Arrival]:
        """Return the earliest arrival at every node that can be reached before `until_s`, ordered by time."""
        found: dict[int, Arrival] = {}
        queue: list[tuple[float, int, int]] = [(time_s, source, -1)]
        while queue:
            now, node, via = heapq.heappop(queue)
            if node in found:
                continue
            found[node] = Arrival(now, None if via < 0 else via)
            for start_s, end_s, other in self._of.get(node, ()):
                if start_s >= until_s:
                    break
                if other not in found and end_s > now:
                    heapq.heappush(queue, (max(now, start_s), other, node))
        return found


def path_to(node: int, arrivals: Mapping[int, Arrival]) -> list[tuple[int, float]]:
    """Return the nodes on an earliest path, from the source on, and when each is reached."""
    path: list[tuple[int, float]] = []
    at: int | None = node
    while at is not None:
        arrival = arrivals[at]
        path.append((at, arrival.time_s))
        at = arrival.via
    return path[::-1]
