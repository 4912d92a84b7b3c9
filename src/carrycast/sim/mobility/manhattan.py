"""Manhattan: vehicles on the lanes of streets that turn at random where streets meet [IMPORTANT]."""

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.core.maps import Lane, lanes_of
from carrycast.core.model import Position
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.road_model import RoadModel, drive_legs, limit_speeds, merge_legs, place_vehicles
from carrycast.sim.mobility.trajectory import Trajectories

_Heading = tuple[float, float]


class Streets:
    """The lanes of a map and the turns between them. Rejects a map with roads that cannot be reached."""

    def __init__(self, name: str, lanes: list[Lane], straight: float, left: float, right: float) -> None:
        self.lanes = lanes
        self._weight = {"straight": straight, "left": left, "right": right}
        leaving: dict[str, list[int]] = {}
        for number, lane in enumerate(lanes):
            leaving.setdefault(lane.origin, []).append(number)
        # For each lane, the lanes it leads onto, and their cumulative weights.
        self.onto: list[list[int]] = []
        self._chances: list[list[float]] = []
        self.gap_m: list[dict[int, float]] = []
        for lane in lanes:
            ways = self._find_ways(lane, leaving.get(lane.target, []))
            if not ways:
                raise UserError(
                    f"manhattan: the map {name} has a gap: road {lane.road.id!r} leads to {lane.target!r} and nothing "
                    f"leads away from there; let a road go on, or not be one_way"
                )
            total = sum(ways.values())
            self.onto.append(list(ways))
            # If all possible turns have weight 0, they are equally likely.
            self._chances.append(list(accumulate(ways.values() if total > 0 else [1.0] * len(ways))))
            self.gap_m.append({onto: lane.gap_m(lanes[onto]) for onto in ways})
        self._check_gaps(name)

    def turn(self, lane: int, draw: float) -> int:
        """Return the lane that a vehicle turns onto; `draw` is a random number from 0 to 1."""
        chances = self._chances[lane]
        return self.onto[lane][min(bisect_right(chances, draw * chances[-1]), len(chances) - 1)]

    def at(self, lane: int, place_m: float) -> Position:
        """Return the position on a lane at `place_m` from its start."""
        start, end, share = self.lanes[lane].start, self.lanes[lane].end, place_m / self.lanes[lane].length_m
        return Position(start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)

    def _find_ways(self, lane: Lane, leaving: list[int]) -> dict[int, float]:
        """Return the lanes that a lane leads onto, with their weights. A vehicle turns back only at a dead end."""
        same = [onto for onto in leaving if self._is_lane_after(lane, self.lanes[onto])]
        onward = [onto for onto in same if not _goes_back(lane, self.lanes[onto])]
        if not onward:
            return dict.fromkeys(same, 1.0)
        sides = [turn_between(_heading(lane), _heading(self.lanes[onto])) for onto in onward]
        # Several streets on the same side share the weight of that side.
        return {onto: self._weight[side] / sides.count(side) for onto, side in zip(onward, sides, strict=True)}

    def _is_lane_after(self, lane: Lane, onto: Lane) -> bool:
        return onto.number == min(lane.number, onto.road.lanes - 1)

    def _check_gaps(self, name: str) -> None:
        """Check that every road can be reached from every other: from the first lane forward and backward."""
        backward: list[list[int]] = [[] for _ in self.lanes]
        for number, ways in enumerate(self.onto):
            for onto in ways:
                backward[onto].append(number)
        for graph, text in ((self.onto, "from {0} onto {1}"), (backward, "from {1} onto {0}")):
            reached = {0}
            todo = [0]
            while todo:
                new = [onto for onto in graph[todo.pop()] if onto not in reached]
                reached.update(new)
                todo += new
            for number, lane in enumerate(self.lanes):
                # Outer lanes may be unreachable if all other roads have fewer lanes.
                if lane.number == 0 and number not in reached:
                    pieces = (f"road {each.road.id!r} to {each.target!r}" for each in (self.lanes[0], lane))
                    raise UserError(
                        f"manhattan: the map {name} has a gap: no way {text.format(*pieces)}; let roads that meet "
                        f"share a node, and those that end be no one_way"
                    )


def _goes_back(lane: Lane, onto: Lane) -> bool:
    return onto.road is lane.road and onto.piece == lane.piece


def _heading(lane: Lane) -> _Heading:
    return lane.end[0] - lane.start[0], lane.end[1] - lane.start[1]


def turn_between(before: _Heading, after: _Heading) -> str:
    """Straight within 45 degrees, else left or right. Computed by products, so that all machines agree."""
    ahead = before[0] * after[0] + before[1] * after[1]
    leftward = before[0] * after[1] - before[1] * after[0]
    if ahead > abs(leftward):
        return "straight"
    return "left" if leftward > 0 else "right"


Weight = Annotated[float, Meta(ge=0, le=1)]


class Manhattan(RoadModel, frozen=True, kw_only=True):
    """At a crossing a vehicle goes straight, left or right by chance; where a street ends it turns back.

    Vehicles keep the number of their lane when they turn, or take the outermost lane of a road with fewer. Vehicles do
    not wait at crossings, so two that enter a lane from different streets may be closer than the safety distance. From
    then on the rear one is no faster.
    """

    name: ClassVar[str] = "manhattan"
    summary: ClassVar[str] = "drive on the streets of a city and turn at random at crossings"

    # [IMPORTANT] One half, one quarter, one quarter. Where not all three are possible, the others share by weight.
    straight: Annotated[Weight, Meta(description="probability to go straight at a crossing")] = 0.5
    left: Annotated[Weight, Meta(description="probability to turn left")] = 0.25
    right: Annotated[Weight, Meta(description="probability to turn right")] = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.straight + self.left + self.right - 1) > 1e-9:
            raise ValueError(
                f"straight, left and right must add up to 1, not {self.straight + self.left + self.right:g}"
            )

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Compute slot by slot: speeds change at random, vehicles too close behind others slow down, then all move."""
        map = self.start_map(nodes, area, duration_s)
        streets = Streets(map.name, lanes_of(map), self.straight, self.left, self.right)
        length_m = np.array([lane.length_m for lane in streets.lanes])
        self.require_room(length_m, map.safety_m, nodes)
        shortest = min(streets.lanes, key=lambda lane: lane.length_m)
        if shortest.length_m < self.speed_max_mps * self.slot_s:
            raise UserError(
                f"manhattan: road {shortest.road.id!r} has {shortest.length_m:.1f} m from {shortest.origin!r} to "
                f"{shortest.target!r}, less than a vehicle goes in a slot; lower slot_s or speed_max_mps"
            )
        traffic = _Traffic(self, streets, place_vehicles(length_m, map.safety_m, nodes, rng), map.safety_m, nodes, rng)
        slot_s = self.slots(duration_s)
        gone_m = np.zeros((len(slot_s), nodes))
        for slot, lasting_s in enumerate(np.diff(slot_s).tolist(), 1):
            traffic.advance(lasting_s)
            gone_m[slot] = gone_m[slot - 1] + np.array(traffic.speed_mps) * lasting_s
        ways = traffic.ways()
        return merge_legs(nodes, [drive_legs(node, ways[node], slot_s, gone_m[:, node]) for node in range(nodes)])


class _Traffic:
    """The lane, place, speed and next lane of each vehicle. A place below 0 is in the crossing before the lane."""

    def __init__(
        self,
        model: Manhattan,
        streets: Streets,
        placed: list[list[tuple[float, int]]],
        safety_m: float,
        nodes: int,
        rng: np.random.Generator,
    ) -> None:
        self.model = model
        self.streets = streets
        self.safety_m = safety_m
        self.rng = rng
        self.lane = [0] * nodes
        self.place_m = [0.0] * nodes
        for lane, there in enumerate(placed):
            for place_m, node in there:
                self.lane[node], self.place_m[node] = lane, place_m
        self.next = [streets.turn(lane, rng.random()) for lane in self.lane]
        # The path of a vehicle: its start, then the end of each lane left and the start of each lane entered.
        self._ways = [[streets.at(lane, place_m)] for lane, place_m in zip(self.lane, self.place_m, strict=True)]
        self.limit_mps = [min(model.speed_max_mps, lane.road.speed_limit_mps or np.inf) for lane in streets.lanes]
        most_mps = np.array([self.limit_mps[lane] for lane in self.lane])
        self.speed_mps: list[float] = rng.uniform(model.speed_min_mps, most_mps).tolist()

    def ways(self) -> list[list[Position]]:
        """Return the path of each vehicle, to the end of its current lane."""
        return [[*way, self.streets.lanes[lane].end] for way, lane in zip(self._ways, self.lane, strict=True)]

    def advance(self, lasting_s: float) -> None:
        """Advance by one slot of `lasting_s` seconds; the last slot of a run may be shorter."""
        reach_m = self.model.speed_max_mps * self.model.slot_s
        lanes = self.streets.lanes
        # For each lane, the vehicles that are on it or may enter it within the slot, by their place along the lane.
        along: dict[int, list[tuple[float, int]]] = {}
        most_mps = []
        for node, (lane, place_m) in enumerate(zip(self.lane, self.place_m, strict=True)):
            along.setdefault(lane, []).append((place_m, node))
            onto = self.next[node]
            left_m = lanes[lane].length_m - place_m
            limit_mps = self.limit_mps[lane]
            if left_m <= reach_m:
                along.setdefault(onto, []).append((-left_m - self.streets.gap_m[lane][onto], node))
                limit_mps = min(limit_mps, self.limit_mps[onto])
            most_mps.append(limit_mps)
        self._change_speeds(most_mps, along)
        for node, speed_mps in enumerate(self.speed_mps):
            self.place_m[node] += speed_mps * lasting_s
            if self.place_m[node] > lanes[self.lane[node]].length_m:
                self._turn(node)

    def _change_speeds(self, most_mps: list[float], along: dict[int, list[tuple[float, int]]]) -> None:
        model = self.model
        # [IMPORTANT] V(t + 1) = V(t) + random in [-1, 1] * a, within the lowest and the highest speed.
        change_mps = self.rng.uniform(-1.0, 1.0, len(most_mps)) * model.change_mps()
        wanted_mps = np.clip(np.array(self.speed_mps) + change_mps, model.speed_min_mps, np.array(most_mps)).tolist()
        pairs = [pair for there in along.values() if len(there) > 1 for pair in pairwise(sorted(there))]
        gap_m = np.array([ahead[0] - back[0] for back, ahead in pairs])
        behind: dict[int, list[tuple[int, float]]] = {}
        for (back, ahead), faster_mps in zip(pairs, model.faster_mps(gap_m, self.safety_m).tolist(), strict=True):
            if faster_mps < model.speed_max_mps - model.speed_min_mps:
                behind.setdefault(ahead[1], []).append((back[1], faster_mps))
        limit_speeds(wanted_mps, behind)
        self.speed_mps = wanted_mps

    def _turn(self, node: int) -> None:
        """Move a vehicle to its next lane, and draw the lane after that."""
        lane, onto = self.lane[node], self.next[node]
        self._ways[node] += [self.streets.lanes[lane].end, self.streets.lanes[onto].start]
        self.place_m[node] -= self.streets.lanes[lane].length_m + self.streets.gap_m[lane][onto]
        self.lane[node], self.next[node] = onto, self.streets.turn(onto, self.rng.random())
