"""The lanes of a road map: straight lines between consecutive nodes."""

from collections import Counter
from math import sqrt
from typing import NamedTuple

from carrycast.core.model import Position, Road, RoadMap, squared_m


class Lane(NamedTuple):
    """One lane of a road from a node to the next, a straight line. Traffic keeps to the right.

    Where roads meet, a lane ends before the crossing and the next one starts after it. Vehicles cross in a straight
    line from the one to the other.
    """

    road: Road
    piece: int
    """The index of the piece of the road, between its nodes `piece` and `piece` + 1."""
    back: bool
    """Whether traffic goes against the order of the road's nodes."""
    number: int
    """0 is next to the middle of the road."""
    origin: str
    target: str
    start: Position
    end: Position
    length_m: float

    def gap_m(self, onto: "Lane") -> float:
        """The distance from the end of this lane to the start of another."""
        return sqrt(squared_m(self.end, onto.start))


def half_width_m(road: Road, lane_m: float) -> float:
    """The distance from the middle of a road to its edge."""
    return road.lanes * lane_m / (2 if road.one_way else 1)


def lanes_of(map: RoadMap) -> list[Lane]:
    """All lanes, ordered by road, piece, direction (forward first) and distance from the middle."""
    inset_m = _compute_insets(map)
    lanes = []
    for road in map.roads:
        for piece in range(len(road.nodes) - 1):
            for back in (False,) if road.one_way else (False, True):
                lanes += [_make_lane(road, map.lane_m, inset_m, piece, back, number) for number in range(road.lanes)]
    return lanes


def _compute_insets(map: RoadMap) -> dict[str, float]:
    """The distance before each node at which lanes end: half the width of the widest road there, 0 at a dead end."""
    widest_m: dict[str, float] = {}
    joined: Counter[str] = Counter()
    for road in map.roads:
        for place, node in enumerate(road.nodes):
            widest_m[node] = max(widest_m.get(node, 0.0), half_width_m(road, map.lane_m))
            joined[node] += (place > 0) + (place < len(road.nodes) - 1)
    return {node: width_m if joined[node] > 1 else 0.0 for node, width_m in widest_m.items()}


def _make_lane(road: Road, lane_m: float, inset_m: dict[str, float], piece: int, back: bool, number: int) -> Lane:
    here, there = (piece + 1, piece) if back else (piece, piece + 1)
    start, end = road.places[here], road.places[there]
    origin, target = road.nodes[here], road.nodes[there]
    whole_m = sqrt(squared_m(start, end))
    x, y = (end[0] - start[0]) / whole_m, (end[1] - start[1]) / whole_m
    # The right of (x, y) is (y, -x). A one-way road has its lanes on both sides of the middle line.
    right_m = (number + 0.5 - (road.lanes / 2 if road.one_way else 0)) * lane_m
    first_m, last_m = inset_m[origin], whole_m - inset_m[target]
    return Lane(
        road,
        piece,
        back,
        number,
        origin,
        target,
        Position(start[0] + x * first_m + y * right_m, start[1] + y * first_m - x * right_m),
        Position(start[0] + x * last_m + y * right_m, start[1] + y * last_m - x * right_m),
        last_m - first_m,
    )
