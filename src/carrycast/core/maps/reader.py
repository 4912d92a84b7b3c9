"""Reads and validates a road map: a TOML file with nodes and roads."""

from importlib.resources import as_file, files
from math import sqrt
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.maps.lanes import lanes_of
from carrycast.core.model import Position, Road, RoadMap, foot, squared_m
from carrycast.core.settings import parse_settings, read_toml
from carrycast.errors import UserError

# A resource instead of a path, because workers of a cluster have carrycast in an archive.
SHIPPED = files("carrycast.core.maps") / "shipped"

# A larger map is that of a region, for which recorded traffic (`sumo`) is better than a model.
MAX_NODES = 5000
MAX_ROADS = 5000
# A node that is nearer than this to a road that does not name it is an error.
GAP_M = 1.0

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Meters = Annotated[float, Meta(gt=0, le=1e6)]
Coordinate = Annotated[float, Meta(ge=0, le=1e6)]


class _RoadEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Name
    nodes: Annotated[list[str], Meta(min_length=2, max_length=MAX_NODES)]
    lanes: Annotated[int, Meta(ge=1, le=16)] = 1
    one_way: bool = False
    speed_limit_mps: Annotated[float, Meta(gt=0, le=1e6)] | None = None


class _MapFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    description: str = ""
    width_m: Meters
    height_m: Meters
    # The usual width of lanes.
    lane_m: Annotated[float, Meta(gt=0, le=100)] = 3.5
    # A common setting of the Freeway and Manhattan models.
    safety_m: Annotated[float, Meta(ge=0, le=1e6)] = 50.0
    nodes: dict[str, tuple[Coordinate, Coordinate]]
    roads: Annotated[list[_RoadEntry], Meta(min_length=1, max_length=MAX_ROADS)]


def shipped_maps() -> list[str]:
    """The names of the maps that come with carrycast."""
    return sorted(Path(found.name).stem for found in SHIPPED.iterdir() if found.name.endswith(".toml"))


def read_map(source: str) -> RoadMap:
    """Read a map, given by the name of a shipped map or of a file that ends in .toml."""
    if source.endswith(".toml"):
        return _read_and_check(Path(source))
    if source not in shipped_maps():
        raise UserError(f"there is no map {source!r}; give a file that ends in .toml, or {', '.join(shipped_maps())}")
    with as_file(SHIPPED / f"{source}.toml") as path:
        return _read_and_check(path)


def _read_and_check(path: Path) -> RoadMap:
    file = parse_settings(read_toml(path), _MapFile, str(path))
    if len(file.nodes) > MAX_NODES:
        raise UserError(f"{path}: nodes: a map has at most {MAX_NODES}, not {len(file.nodes)}")
    found = RoadMap(
        name=file.name,
        width_m=file.width_m,
        height_m=file.height_m,
        lane_m=file.lane_m,
        safety_m=file.safety_m,
        roads=tuple(_make_road(entry, file, f"{path}: roads[{place}]") for place, entry in enumerate(file.roads)),
    )
    _check_ids(found, file, path)
    _check_gaps(found, file, path)
    _check_lanes(found, path)
    return found


def _make_road(entry: _RoadEntry, file: _MapFile, where: str) -> Road:
    for node in entry.nodes:
        if node not in file.nodes:
            raise UserError(f"{where}.nodes: there is no node {node!r}; give it a place in [nodes]")
    places = tuple(Position(*file.nodes[node]) for node in entry.nodes)
    for here, there, start, end in zip(entry.nodes, entry.nodes[1:], places, places[1:], strict=False):
        if squared_m(start, end) < GAP_M * GAP_M:
            raise UserError(f"{where}.nodes: from {here!r} to {there!r} it is no distance; leave one of them out")
    return Road(
        id=entry.id,
        nodes=tuple(entry.nodes),
        places=places,
        lanes=entry.lanes,
        one_way=entry.one_way,
        speed_limit_mps=entry.speed_limit_mps,
    )


def _check_ids(map: RoadMap, file: _MapFile, path: Path) -> None:
    """Check that road ids and pieces are unique, and that every node is on a road and in the rectangle."""
    taken: dict[str, int] = {}
    pieces: dict[tuple[str, str], str] = {}
    for place, road in enumerate(map.roads):
        if road.id in taken:
            raise UserError(f"{path}: roads[{place}].id: roads[{taken[road.id]}] is called {road.id!r} too")
        taken[road.id] = place
        for piece in zip(road.nodes, road.nodes[1:], strict=False):
            both_ways = (min(piece), max(piece))
            if both_ways in pieces:
                raise UserError(
                    f"{path}: roads[{place}].nodes: from {piece[0]!r} to {piece[1]!r} there is road "
                    f"{pieces[both_ways]!r} already; leave one out"
                )
            pieces[both_ways] = road.id
    used = {node for road in map.roads for node in road.nodes}
    for node, (x_m, y_m) in file.nodes.items():
        if node not in used:
            raise UserError(f"{path}: nodes.{node}: no road goes there; name it in a road or leave it out")
        if x_m > map.width_m or y_m > map.height_m:
            raise UserError(
                f"{path}: nodes.{node}: ({x_m:g}, {y_m:g}) is outside the map of {map.width_m:g} m x {map.height_m:g} m"
            )


def _check_gaps(map: RoadMap, file: _MapFile, path: Path) -> None:
    """Check that every node near a road is named by it; otherwise vehicles would pass the node and could not turn."""
    names = [(road, piece) for road in map.roads for piece in zip(road.nodes, road.nodes[1:], strict=False)]
    ends = np.array([(file.nodes[piece[0]], file.nodes[piece[1]]) for _, piece in names])
    low, high = ends.min(axis=1) - GAP_M, ends.max(axis=1) + GAP_M
    low_x, low_y, high_x, high_y = (np.ascontiguousarray(bound) for bound in (*low.T, *high.T))
    for node, (x_m, y_m) in file.nodes.items():
        close = (low_x < x_m) & (x_m < high_x) & (low_y < y_m) & (y_m < high_y)
        for index in np.flatnonzero(close).tolist():
            road, piece = names[index]
            start, end = (Position(*place) for place in ends[index].tolist())
            off_m = sqrt(squared_m(foot(Position(x_m, y_m), start, end), Position(x_m, y_m)))
            if off_m < GAP_M and node not in piece:
                raise UserError(
                    f"{path}: nodes.{node}: is {off_m:.2g} m from road {road.id!r} between {piece[0]!r} and "
                    f"{piece[1]!r}, a gap that nobody can cross; name it there in the road's nodes, or move it away"
                )


def _check_lanes(map: RoadMap, path: Path) -> None:
    """Check that every lane has a length and lies in the rectangle."""
    for lane in lanes_of(map):
        between = f"from {lane.origin!r} to {lane.target!r}"
        if lane.length_m < GAP_M:
            raise UserError(
                f"{path}: road {lane.road.id!r} is too short {between} for the width of the crossings there; "
                f"lower lane_m or move the nodes apart"
            )
        for x_m, y_m in (lane.start, lane.end):
            if not (0 <= x_m <= map.width_m and 0 <= y_m <= map.height_m):
                raise UserError(
                    f"{path}: road {lane.road.id!r} has lanes outside the map {between}, at ({x_m:.1f}, {y_m:.1f}); "
                    f"move it away from the border"
                )


# The number of raster points: enough for three digits of a share.
POINTS = 1_000_000


def share_beyond(map: RoadMap, distance_m: float) -> float:
    """The share of the rectangle that is farther than a distance from the middle of every road, on a raster."""
    step_m = sqrt(map.width_m * map.height_m / POINTS)
    columns, rows = max(1, round(map.width_m / step_m)), max(1, round(map.height_m / step_m))
    x_m = ((np.arange(columns) + 0.5) * map.width_m / columns)[:, None]
    y_m = ((np.arange(rows) + 0.5) * map.height_m / rows)[None, :]
    beyond = np.ones((columns, rows), dtype=np.bool_)
    for road in map.roads:
        for (start_x_m, start_y_m), end in road.pieces():
            dx_m, dy_m = end[0] - start_x_m, end[1] - start_y_m
            share = ((x_m - start_x_m) * dx_m + (y_m - start_y_m) * dy_m) / (dx_m * dx_m + dy_m * dy_m)
            share = np.clip(share, 0.0, 1.0)
            squared = (start_x_m + share * dx_m - x_m) ** 2 + (start_y_m + share * dy_m - y_m) ** 2
            beyond &= squared > distance_m * distance_m
    return float(beyond.mean())
