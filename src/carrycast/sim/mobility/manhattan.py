"""Manhattan: vehicles on the lanes of streets that turn by chance where streets meet [IMPORTANT]."""

from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.core.maps import lanes_of
from carrycast.core.model import Position
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.road_model import RoadModel
from carrycast.sim.mobility.streets import Streets
from carrycast.sim.mobility.trajectory import Trajectories
from carrycast.sim.mobility.vehicles import driven, held, spread, together

Weight = Annotated[float, Meta(ge=0, le=1)]


class Manhattan(RoadModel, frozen=True, kw_only=True):
    """At a crossing a vehicle goes straight, left or right by chance; where a street ends it turns back.

    Vehicles keep the number of their lane when they turn, or take the outermost if there are fewer. Two that come into
    a lane from different streets may be closer than the safety distance, since nobody waits at a crossing; from then on
    the one behind is no faster.
    """

    name: ClassVar[str] = "manhattan"
    summary: ClassVar[str] = "drive on a city's streets and turn at crossings by chance"

    # [IMPORTANT] One half, one quarter, one quarter. Where not all three are possible, the others share by weight.
    straight: Annotated[Weight, Meta(description="chance to go straight at a crossing")] = 0.5
    left: Annotated[Weight, Meta(description="chance to turn left")] = 0.25
    right: Annotated[Weight, Meta(description="chance to turn right")] = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.straight + self.left + self.right - 1) > 1e-9:
            raise ValueError(
                f"straight, left and right must add up to 1, not {self.straight + self.left + self.right:g}"
            )

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Slot by slot: speeds change at random, those too close behind others are held back, then all drive on."""
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
        traffic = _Traffic(self, streets, spread(length_m, map.safety_m, nodes, rng), map.safety_m, nodes, rng)
        slot_s = self.slots(duration_s)
        gone_m = np.zeros((len(slot_s), nodes))
        for slot, lasting_s in enumerate(np.diff(slot_s).tolist(), 1):
            traffic.advance(lasting_s)
            gone_m[slot] = gone_m[slot - 1] + np.array(traffic.speed_mps) * lasting_s
        ways = traffic.ways()
        return together(nodes, [driven(node, ways[node], slot_s, gone_m[:, node]) for node in range(nodes)])


class _Traffic:
    """Where everybody is on its lane, how fast, and onto which lane it will go. A place below 0 is in the crossing."""

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
        # A way starts where the vehicle does and grows by the end of each lane left and the start of each entered.
        self._ways = [[streets.at(lane, place_m)] for lane, place_m in zip(self.lane, self.place_m, strict=True)]
        self.limit_mps = [min(model.speed_max_mps, lane.road.speed_limit_mps or np.inf) for lane in streets.lanes]
        most_mps = np.array([self.limit_mps[lane] for lane in self.lane])
        self.speed_mps: list[float] = rng.uniform(model.speed_min_mps, most_mps).tolist()

    def ways(self) -> list[list[Position]]:
        """The way of each vehicle, to the end of the lane that it is on."""
        return [[*way, self.streets.lanes[lane].end] for way, lane in zip(self._ways, self.lane, strict=True)]

    def advance(self, lasting_s: float) -> None:
        """One slot, the last of which may be cut."""
        reach_m = self.model.speed_max_mps * self.model.slot_s
        lanes = self.streets.lanes
        # For each lane, who is there or may come onto it within the slot, by how far it is along the lane.
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
        held(wanted_mps, behind)
        self.speed_mps = wanted_mps

    def _turn(self, node: int) -> None:
        """Leave a lane for the next one, and decide where to go from there."""
        lane, onto = self.lane[node], self.next[node]
        self._ways[node] += [self.streets.lanes[lane].end, self.streets.lanes[onto].start]
        self.place_m[node] -= self.streets.lanes[lane].length_m + self.streets.gap_m[lane][onto]
        self.lane[node], self.next[node] = onto, self.streets.turn(onto, self.rng.random())
