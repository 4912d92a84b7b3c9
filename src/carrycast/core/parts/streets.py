"""Shortest paths along the streets of a road map, for routers and protocols that know the map."""

import heapq
from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple, TypeAlias

from carrycast.core.model import Position, RoadMap, foot

Crossing: TypeAlias = str
"""The id of a road's node: a crossing, an end, or a bend."""
Segment: TypeAlias = tuple[Crossing, Crossing]
"""A straight piece of a road between two crossings, the smaller id first."""


class StreetPlace(NamedTuple):
    """The point of a street that is nearest to a place."""

    segment: Segment
    position: Position


class StreetGraph:
    """The crossings of a road map and the pieces of road between them. Radio waves know no one-way streets."""

    def __init__(self, roads: RoadMap) -> None:
        self.places: dict[Crossing, Position] = {}
        self._neighbors: dict[Crossing, dict[Crossing, float]] = {}
        self.segments: list[Segment] = []
        for road in roads.roads:
            self.places.update(zip(road.nodes, road.places, strict=True))
            for one, other in zip(road.nodes, road.nodes[1:], strict=False):
                if other not in self._neighbors.setdefault(one, {}):
                    length_m = distance_m(self.places[one], self.places[other])
                    self._neighbors[one][other] = length_m
                    self._neighbors.setdefault(other, {})[one] = length_m
                    self.segments.append(_segment(one, other))

    def piece_before(self, place: Position, crossing: Position) -> Segment | None:
        """The piece of road that ends at a crossing and is nearest to a place; None if there is no such crossing."""
        found = [one for one in self.segments if crossing in (self.places[one[0]], self.places[one[1]])]
        return min(
            found,
            key=lambda one: distance_m(place, foot(place, self.places[one[0]], self.places[one[1]])),
            default=None,
        )

    def locate(self, place: Position) -> StreetPlace:
        """The point of the nearest street; of several that are equally near, on the first."""
        best: tuple[float, StreetPlace] | None = None
        for one, other in self.segments:
            point = foot(place, self.places[one], self.places[other])
            distance = distance_m(place, point)
            if best is None or distance < best[0]:
                best = (distance, StreetPlace((one, other), point))
        assert best is not None, "a map has roads"
        return best[1]

    def shortest_path(
        self,
        start: Position,
        end: Position,
        closed: frozenset[Segment] = frozenset(),
        blocked: Position | None = None,
    ) -> tuple[Position, ...] | None:
        """The crossings on the shortest way along streets between two places, in order; None if there is no way.

        `closed` are pieces of road that cannot be used, except to leave the start toward a crossing that is not
        `blocked`.
        """
        here, there = self.locate(start), self.locate(end)
        if here.segment == there.segment and here.segment not in closed:
            return ()
        lengths: dict[Crossing, float] = {}
        previous: dict[Crossing, Crossing] = {}
        queue: list[tuple[float, Crossing, Crossing]] = [
            (distance_m(here.position, self.places[crossing]), crossing, "")
            for crossing in here.segment
            if here.segment not in closed or self.places[crossing] != blocked
        ]
        heapq.heapify(queue)
        goals = (
            {}
            if there.segment in closed
            else {crossing: distance_m(self.places[crossing], there.position) for crossing in there.segment}
        )
        best: tuple[float, Crossing] | None = None
        while queue:
            length_m, crossing, before = heapq.heappop(queue)
            if crossing in lengths:
                continue
            if best is not None and length_m >= best[0]:
                break
            lengths[crossing], previous[crossing] = length_m, before
            if crossing in goals and (best is None or length_m + goals[crossing] < best[0]):
                best = (length_m + goals[crossing], crossing)
            for other, further_m in self._neighbors[crossing].items():
                if other not in lengths and _segment(crossing, other) not in closed:
                    heapq.heappush(queue, (length_m + further_m, other, crossing))
        return None if best is None else self._trace(best[1], previous)

    def _trace(self, last: Crossing, previous: Mapping[Crossing, Crossing]) -> tuple[Position, ...]:
        found: list[Position] = []
        crossing = last
        while crossing:
            found.append(self.places[crossing])
            crossing = previous[crossing]
        return tuple(reversed(found))


def distance_m(one: Position, other: Position) -> float:
    """The distance of two places."""
    dx_m, dy_m = one[0] - other[0], one[1] - other[1]
    return sqrt(dx_m * dx_m + dy_m * dy_m)


def _segment(one: Crossing, other: Crossing) -> Segment:
    return (one, other) if one < other else (other, one)
