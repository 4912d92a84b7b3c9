"""Road maps: roads, waypoints along them, and the distance of a position from them.

Pure Python, so that protocols can use a map. Distances are compared as sums of squares, which every machine rounds in
the same way, unlike `hypot` of a math library.
"""

from collections.abc import Iterator, Sequence
from math import ceil, isfinite, sqrt

import msgspec

from carrycast.core.model.identity import Position

# A spacing that needs more points than this is probably not in meters.
MAX_WAYPOINTS = 1_000_000


class Road(msgspec.Struct, frozen=True, kw_only=True):
    """A road: its middle line goes through the places of its nodes."""

    id: str
    nodes: tuple[str, ...]
    places: tuple[Position, ...]
    lanes: int
    """The number of lanes in each direction."""
    one_way: bool = False
    speed_limit_mps: float | None = None

    def pieces(self) -> Iterator[tuple[Position, Position]]:
        """The straight lines from each node to the next."""
        return zip(self.places, self.places[1:], strict=False)


class RoadMap(msgspec.Struct, frozen=True, kw_only=True):
    """The roads in a rectangle from (0, 0) to (width_m, height_m). Equal maps are equal values."""

    name: str
    width_m: float
    height_m: float
    lane_m: float
    """The width of a lane."""
    safety_m: float
    """The distance that vehicles in a lane keep."""
    roads: tuple[Road, ...]

    def waypoints(self, spacing_m: float = 10.0) -> tuple[Position, ...]:
        """Points along the middle of the roads, at most `spacing_m` apart; they include all nodes.

        Each point occurs once, in the order of the roads in the map and along each road. [003 §3.6] names "the waypoint
        track" and gives no distance; ten meters is far below any radio range.
        """
        if not (isfinite(spacing_m) and spacing_m > 0):
            raise ValueError(f"waypoints are some distance above 0 apart, not {spacing_m}")
        if self.length_m() / spacing_m > MAX_WAYPOINTS:
            raise ValueError(f"{spacing_m:g} m between waypoints make more than {MAX_WAYPOINTS} of them")
        points: dict[Position, None] = {}
        for road in self.roads:
            for start, end in road.pieces():
                parts = max(1, ceil(sqrt(squared_m(start, end)) / spacing_m))
                for part in range(parts):
                    points[_interpolate(start, end, part / parts)] = None
            points[road.places[-1]] = None
        return tuple(points)

    def distance_m(self, place: Position) -> float:
        """The distance of a place from the middle of the nearest road."""
        return sqrt(min(squared_m(place, foot(place, *piece)) for road in self.roads for piece in road.pieces()))

    def length_m(self) -> float:
        """The total length of all roads."""
        return sum(sqrt(squared_m(*piece)) for road in self.roads for piece in road.pieces())


def nearest(points: Sequence[Position], place: Position) -> Position:
    """The point nearest to a place; of several that are equally near, the first."""
    return min(points, key=lambda point: squared_m(point, place))


def squared_m(one: Position, other: Position) -> float:
    """The distance of two places, squared."""
    dx_m, dy_m = one[0] - other[0], one[1] - other[1]
    return dx_m * dx_m + dy_m * dy_m


def foot(place: Position, start: Position, end: Position) -> Position:
    """The point of a segment that is nearest to a place."""
    dx_m, dy_m = end[0] - start[0], end[1] - start[1]
    share = ((place[0] - start[0]) * dx_m + (place[1] - start[1]) * dy_m) / (dx_m * dx_m + dy_m * dy_m)
    return _interpolate(start, end, share)


def _interpolate(start: Position, end: Position, share: float) -> Position:
    """The point at a share of the way from start to end; the ends are exact."""
    if share <= 0:
        return start
    if share >= 1:
        return end
    return Position(start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
