"""Movement models on road maps: a map, speeds that change a little in each slot, a safety distance.

The Freeway and Manhattan models of the IMPORTANT framework (Bai, Sadagopan, Helmy 2003) share their rules of speed.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Annotated, Literal, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.maps import lanes_of, read_map
from carrycast.core.model import Position, RoadMap
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories


def place_vehicles(
    length_m: Floats, safety_m: float, nodes: int, rng: np.random.Generator
) -> list[list[tuple[float, int]]]:
    """Draw where vehicles start: for each lane its (place, node) from back to front, a safety distance apart.

    A node takes a lane with a probability proportional to the room left there. On a lane, the room beyond the safety
    distances is divided at uniformly drawn places, so that all arrangements that keep the distances are equally likely.
    """
    room_m = length_m.astype(np.float64)
    members: list[list[int]] = [[] for _ in length_m]
    for node in range(nodes):
        open_m = np.where(room_m >= safety_m, room_m, 0.0)
        lane = int(np.searchsorted(np.cumsum(open_m), rng.random() * open_m.sum(), side="right"))
        members[lane].append(node)
        room_m[lane] -= safety_m
    placed = []
    for lane, there in enumerate(members):
        order = rng.permutation(len(there)).tolist()
        apart_m = np.sort(rng.random(len(there))) * room_m[lane] + np.arange(len(there)) * safety_m
        # All places are shifted along the lane, taken as a ring, so that no part of it is emptier than another.
        place_m = np.sort((apart_m + rng.random() * length_m[lane]) % length_m[lane])
        placed.append([(place, there[member]) for place, member in zip(place_m.tolist(), order, strict=True)])
    return placed


def road_capacity(length_m: Floats, safety_m: float) -> int:
    """The number of vehicles that `place_vehicles` can place."""
    return int(np.floor(length_m / safety_m).sum()) if safety_m > 0 else 1 << 62


def limit_speeds(wanted_mps: list[float], behind: Mapping[int, Sequence[tuple[int, float]]]) -> None:
    """Lower the speeds in `wanted_mps` so that no vehicle is faster than its leader by more than allowed.

    `behind` maps a leader to its followers and by how much each may be faster, never less than 0. No leader slows down
    the slowest vehicle. So visiting vehicles from the slowest to the fastest gives each its highest possible speed, as
    in Dijkstra's algorithm, even where vehicles follow each other in a circle.
    """
    open_: list[tuple[float, int]] = [(wanted_mps[leader], leader) for leader in behind]
    heapq.heapify(open_)
    while open_:
        speed_mps, leader = heapq.heappop(open_)
        if speed_mps > wanted_mps[leader]:
            continue
        for follower, faster_mps in behind.get(leader, ()):
            if speed_mps + faster_mps < wanted_mps[follower]:
                wanted_mps[follower] = speed_mps + faster_mps
                heapq.heappush(open_, (speed_mps + faster_mps, follower))


class _Legs(NamedTuple):
    node: Integers
    start_s: Floats
    end_s: Floats
    x_m: Floats
    y_m: Floats
    vx_mps: Floats
    vy_mps: Floats


def drive_legs(node: int, way: Sequence[Position], slot_s: Floats, gone_m: Floats) -> _Legs:
    """Compute the legs of one vehicle along a path of straight pieces.

    At the times `slot_s` the vehicle is `gone_m` from the start of the path; its speed is constant in between. A leg
    ends where a slot or a piece of the path ends.
    """
    points = np.array(way, dtype=np.float64)
    pieces = np.diff(points, axis=0)
    length_m = np.sqrt((pieces**2).sum(axis=1))
    pieces, points = pieces[length_m > 0], points[:-1][length_m > 0]
    length_m = length_m[length_m > 0]
    until_m = np.cumsum(length_m)
    speed_mps = np.diff(gone_m) / np.diff(slot_s)
    corner_m = until_m[(until_m > gone_m[0]) & (until_m < gone_m[-1])]
    slot = np.searchsorted(gone_m, corner_m, side="left") - 1
    corner_s = slot_s[slot] + (corner_m - gone_m[slot]) / speed_mps[slot]
    cut_s = np.concatenate([slot_s, np.clip(corner_s, slot_s[slot], slot_s[slot + 1])])
    cut_m = np.concatenate([gone_m, corner_m])
    order = np.lexsort((cut_m, cut_s))
    cut_s, cut_m = cut_s[order], cut_m[order]
    start_s, start_m = cut_s[:-1], cut_m[:-1]
    # The middle of a leg decides to which piece and slot it belongs: rounding errors only matter at its ends.
    piece = np.searchsorted(until_m, (cut_m[:-1] + cut_m[1:]) / 2, side="left").clip(0, len(length_m) - 1)
    slot = np.searchsorted(slot_s, (cut_s[:-1] + cut_s[1:]) / 2, side="right").clip(1, len(speed_mps)) - 1
    ahead = pieces[piece] / length_m[piece, None]
    place = points[piece] + ahead * (start_m - (until_m - length_m)[piece])[:, None]
    velocity = ahead * speed_mps[slot, None]
    return _Legs(
        np.full(len(start_s), node), start_s, cut_s[1:], place[:, 0], place[:, 1], velocity[:, 0], velocity[:, 1]
    )


def merge_legs(nodes: int, legs: Sequence[_Legs]) -> Trajectories:
    """Merge the legs of all vehicles into trajectories."""
    node, *columns = (np.concatenate(column) for column in zip(*legs, strict=True))
    return Trajectories.from_legs(nodes, node.astype(np.int64), *columns)


# More legs would take gigabytes of memory.
MAX_LEGS = 20_000_000


class RoadModel(MobilityModel, frozen=True, kw_only=True):
    """Base class of models whose vehicles drive on the roads of a map. It has no name, so users cannot choose it."""

    map: Annotated[
        str,
        Meta(min_length=1, description="road map: highway, city, or a .toml file, relative to the scenario's folder"),
    ]
    speed_min_mps: Annotated[float, Meta(ge=0, le=1e6, description="lowest speed")]
    speed_max_mps: Annotated[float, Meta(gt=0, le=1e6, description="highest speed; the limit of a road may be lower")]
    # The framework names no value. With a tenth of the highest speed per second, a vehicle covers the whole range of
    # speeds within a minute, whatever the range.
    acceleration_mps2: (
        Annotated[
            float,
            Meta(ge=0, le=1e6, description="largest change of speed in a second; a tenth of speed_max_mps if absent"),
        ]
        | None
    ) = None
    safety_m: (
        Annotated[
            float,
            Meta(ge=0, le=1e6, description="distance to the vehicle ahead in the lane; that of the map if absent"),
        ]
        | None
    ) = None
    # The framework's rule is "for all t". Between slots it only holds if vehicles slow down in time.
    safety_rule: Annotated[
        Literal["continuous", "sampled"],
        Meta(description="continuous: the distance is kept at all times; sampled: checked at the start of a slot"),
    ] = "continuous"
    # [IMPORTANT] Speeds change in steps of one second.
    slot_s: Annotated[float, Meta(gt=0, le=1e6, description="time between two changes of speed")] = 1.0

    def __post_init__(self) -> None:
        if self.speed_min_mps > self.speed_max_mps:
            raise ValueError(
                f"speed_min_mps ({self.speed_min_mps:g}) must not exceed speed_max_mps ({self.speed_max_mps:g})"
            )

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with the file of the map changed. A map that carrycast includes keeps its name."""
        return msgspec.structs.replace(self, map=change(self.map)) if self.map.endswith(".toml") else self

    def on_roads(self) -> bool:
        """Return True: every such model has a map."""
        return True

    def road_map(self) -> RoadMap:
        """Read the map. The safety distance of the model, if set, replaces that of the map."""
        found = read_map(self.map)
        return found if self.safety_m is None else msgspec.structs.replace(found, safety_m=self.safety_m)

    def start_map(self, nodes: int, area: Area, duration_s: float) -> RoadMap:
        """Read the map, and reject it if it does not fit the area, the speeds or the length of the run."""
        found = self.road_map()
        if found.width_m > area.width_m or found.height_m > area.height_m:
            raise UserError(
                f"{self.name}: the map {found.name} of {found.width_m:g} m x {found.height_m:g} m does not fit the "
                f"area of {area.width_m:g} m x {area.height_m:g} m; make the area as large as the map"
            )
        for road in found.roads:
            if road.speed_limit_mps is not None and road.speed_limit_mps < self.speed_min_mps:
                raise UserError(
                    f"{self.name}: the limit of road {road.id!r} ({road.speed_limit_mps:g} m/s) is below speed_min_mps "
                    f"({self.speed_min_mps:g}); lower speed_min_mps"
                )
        # A leg ends where a slot or a lane ends.
        shortest_m = min(lane.length_m for lane in lanes_of(found))
        if nodes * duration_s * (1 / self.slot_s + self.speed_max_mps / shortest_m) > MAX_LEGS:
            raise UserError(
                f"{self.name} might make more than {MAX_LEGS} legs; use a longer slot_s, lower speeds, fewer nodes or "
                f"a shorter run"
            )
        return found

    def require_room(self, length_m: Floats, safety_m: float, nodes: int) -> None:
        """Reject more vehicles than fit on the lanes."""
        capacity = road_capacity(length_m, safety_m)
        if nodes > capacity:
            raise UserError(
                f"{self.name}: the lanes hold {capacity} vehicles {safety_m:g} m apart, not {nodes}; "
                f"lower the number of nodes or safety_m"
            )

    def slots(self, duration_s: float) -> Floats:
        """Return the times at which slots begin and end. The run may end in the middle of the last slot."""
        start_s = np.arange(ceil(duration_s / self.slot_s) + 1, dtype=np.float64) * self.slot_s
        # Rounding of the quotient may add one slot too many.
        return np.append(start_s[start_s < duration_s], duration_s)

    def change_mps(self) -> float:
        """The largest change of a speed from one slot to the next."""
        if self.acceleration_mps2 is None:
            return 0.1 * self.speed_max_mps * self.slot_s
        return self.acceleration_mps2 * self.slot_s

    def faster_mps(self, gap_m: Floats, safety_m: float) -> Floats:
        """By how much a vehicle may be faster than the vehicle `gap_m` ahead of it, for one slot.

        [IMPORTANT] Within the safety distance a vehicle is no faster than the one ahead. `continuous`: a vehicle never
        comes within the distance. `sampled`: a vehicle that is farther away at the start of a slot may come closer in
        it, but never overtakes.
        """
        if self.safety_rule == "continuous":
            closing_m = np.where(gap_m > safety_m, gap_m - safety_m, 0.0)
        else:
            closing_m = np.where(gap_m > safety_m, gap_m, 0.0)
        return closing_m / self.slot_s
