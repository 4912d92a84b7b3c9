"""Freeway: vehicles bound to their lanes on freeways with traffic in both directions [IMPORTANT]."""

from math import ceil
from typing import ClassVar

import numpy as np

from carrycast.core.maps import Lane, lanes_of
from carrycast.core.model import Position, RoadMap
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.road_model import RoadModel, drive_legs, limit_speeds, merge_legs, place_vehicles
from carrycast.sim.mobility.trajectory import Floats, Trajectories


class Freeway(RoadModel, frozen=True, kw_only=True):
    """No vehicle changes lanes or roads. At the end of a road a vehicle turns back on the opposite lane.

    The framework does not say what happens at the end of a lane. A jump to the other end would break every
    link, so a lane and its opposite form one circuit. A road that ends where it began has one circuit per lane.
    """

    name: ClassVar[str] = "freeway"
    summary: ClassVar[str] = "drive on a freeway's lanes at changing speeds, never closer than the safety distance"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Compute slot by slot: all speeds change at random, then vehicles too close behind others slow down."""
        map = self.start_map(nodes, area, duration_s)
        circuits = _find_circuits(map)
        length_m = np.array([_length_m(circuit) for circuit in circuits])
        self.require_room(length_m, map.safety_m, nodes)
        traffic = _Traffic(self, nodes, map.safety_m, circuits, length_m, rng)
        slot_s = self.slots(duration_s)
        gone_m = np.empty((len(slot_s), nodes))
        gone_m[0] = traffic.gone_m
        for slot, lasting_s in enumerate(np.diff(slot_s).tolist(), 1):
            traffic.advance(lasting_s)
            gone_m[slot] = traffic.gone_m
        legs = []
        for node, circuit in enumerate(traffic.circuit):
            rounds = ceil(gone_m[-1, node] / length_m[circuit]) + 1
            way = circuits[circuit][1][:-1] * rounds + circuits[circuit][1][:1]
            legs.append(drive_legs(node, way, slot_s, gone_m[:, node]))
        return merge_legs(nodes, legs)


_Circuit = tuple[Lane, list[Position]]
"""The first lane of a closed path, and the path, which ends where it starts."""


def _find_circuits(map: RoadMap) -> list[_Circuit]:
    lanes: dict[tuple[str, bool, int], list[Lane]] = {}
    for lane in lanes_of(map):
        lanes.setdefault((lane.road.id, lane.back, lane.number), []).append(lane)
    circuits = []
    for (road_id, back, index), forth in lanes.items():
        road, loops = forth[0].road, forth[0].road.nodes[0] == forth[0].road.nodes[-1]
        if road.one_way and not loops:
            raise UserError(
                f"freeway: road {road_id!r} of the map {map.name} leads nowhere: vehicles at its end can neither turn "
                f"back nor go round; let it end at its first node, or not be one_way"
            )
        if loops:
            # The pieces of a backward lane are listed in the order of the road's nodes.
            circuits.append(_close_circuit(forth[::-1] if back else forth))
        elif not back:
            circuits.append(_close_circuit(forth + lanes[road_id, True, index][::-1]))
    return circuits


def _close_circuit(lanes: list[Lane]) -> _Circuit:
    way = [place for lane in lanes for place in (lane.start, lane.end)]
    return lanes[0], [*way, way[0]]


def _length_m(circuit: _Circuit) -> float:
    return float(np.sqrt((np.diff(np.array(circuit[1]), axis=0) ** 2).sum(axis=1)).sum())


class _Traffic:
    """The distance that each vehicle has gone along its circuit, its speed, and its leader."""

    def __init__(
        self,
        model: Freeway,
        nodes: int,
        safety_m: float,
        circuits: list[_Circuit],
        length_m: Floats,
        rng: np.random.Generator,
    ) -> None:
        self.model = model
        self.safety_m = safety_m
        self.rng = rng
        self.circuit = [0] * nodes
        self.gone_m: Floats = np.zeros(nodes)
        # A vehicle alone on its circuit follows itself at an infinite distance.
        self.leader = np.arange(nodes)
        self.lap_m = np.full(nodes, np.inf)
        for circuit, placed in enumerate(place_vehicles(length_m, safety_m, nodes, rng)):
            for place, (place_m, node) in enumerate(placed):
                self.circuit[node] = circuit
                self.gone_m[node] = place_m
                if len(placed) > 1:
                    self.leader[node] = placed[(place + 1) % len(placed)][1]
                    # The first vehicle of a circuit follows the last one, one lap ahead.
                    self.lap_m[node] = 0.0 if place + 1 < len(placed) else length_m[circuit]
        limits = [circuits[circuit][0].road.speed_limit_mps for circuit in self.circuit]
        self.most_mps = np.array([min(model.speed_max_mps, limit or np.inf) for limit in limits])
        self.speed_mps: Floats = rng.uniform(model.speed_min_mps, self.most_mps)

    def advance(self, lasting_s: float) -> None:
        """Advance by one slot of `lasting_s` seconds; the last slot of a run may be shorter."""
        model = self.model
        # [IMPORTANT] V(t + 1) = V(t) + random in [-1, 1] * a, within the lowest and the highest speed.
        change_mps = self.rng.uniform(-1.0, 1.0, len(self.gone_m)) * model.change_mps()
        wanted_mps = np.clip(self.speed_mps + change_mps, model.speed_min_mps, self.most_mps)
        gap_m = self.gone_m[self.leader] + self.lap_m - self.gone_m
        faster_mps = model.faster_mps(gap_m, self.safety_m)
        behind: dict[int, list[tuple[int, float]]] = {}
        for node in np.flatnonzero(faster_mps < model.speed_max_mps - model.speed_min_mps).tolist():
            behind.setdefault(int(self.leader[node]), []).append((node, float(faster_mps[node])))
        if behind:
            speeds = wanted_mps.tolist()
            limit_speeds(speeds, behind)
            wanted_mps = np.array(speeds)
        self.speed_mps = wanted_mps
        self.gone_m = self.gone_m + wanted_mps * lasting_s
