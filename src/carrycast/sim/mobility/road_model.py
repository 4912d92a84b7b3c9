"""What the models on road maps have in common: a map, speeds that change a little in each slot, a safety distance.

The Freeway and Manhattan models of the IMPORTANT framework (Bai, Sadagopan, Helmy 2003) share their rules of speed.
"""

from collections.abc import Callable
from math import ceil
from typing import Annotated, Literal, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.maps import lanes_of, read_map
from carrycast.core.model.roads import RoadMap
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Floats
from carrycast.sim.mobility.vehicles import holds

# As for random waypoint: beyond this they take gigabytes.
MAX_LEGS = 20_000_000


class RoadModel(MobilityModel, frozen=True, kw_only=True):
    """Vehicles on the roads of a map. It has no name, so it is not itself a model to choose."""

    map: Annotated[
        str, Meta(min_length=1, description="highway, city, or a .toml file, relative to the scenario's folder")
    ]
    speed_min_mps: Annotated[float, Meta(ge=0, le=1e6, description="the lowest speed")]
    speed_max_mps: Annotated[
        float, Meta(gt=0, le=1e6, description="the highest speed, where no limit of a road is lower")
    ]
    # The framework names no value. A tenth of the highest speed per second takes a vehicle through the whole range
    # within a minute, whatever the range.
    acceleration_mps2: (
        Annotated[float, Meta(ge=0, le=1e6, description="at most; a tenth of speed_max_mps per second if absent")]
        | None
    ) = None
    safety_m: (
        Annotated[float, Meta(ge=0, le=1e6, description="the distance kept in a lane; the map's if absent")] | None
    ) = None
    # The framework's rule is "for all t". Between slots it only holds if vehicles slow down in time.
    safety_rule: Annotated[
        Literal["continuous", "sampled"],
        Meta(description="safety distance kept at all times, or only looked at when a slot begins"),
    ] = "continuous"
    # [IMPORTANT] Speeds change in steps of one second.
    slot_s: Annotated[float, Meta(gt=0, le=1e6, description="how long a speed lasts")] = 1.0

    def __post_init__(self) -> None:
        if self.speed_min_mps > self.speed_max_mps:
            raise ValueError(
                f"speed_min_mps ({self.speed_min_mps:g}) must not exceed speed_max_mps ({self.speed_max_mps:g})"
            )

    def with_files(self, change: Callable[[str], str]) -> Self:
        """The map's; one that comes with carrycast keeps its name."""
        return msgspec.structs.replace(self, map=change(self.map)) if self.map.endswith(".toml") else self

    def on_roads(self) -> bool:
        """Always."""
        return True

    def road_map(self) -> RoadMap:
        """The map, read from its file, with this model's safety distance if it has one."""
        found = read_map(self.map)
        return found if self.safety_m is None else msgspec.structs.replace(found, safety_m=self.safety_m)

    def start_map(self, nodes: int, area: Area, duration_s: float) -> RoadMap:
        """The map, if it fits the area, the speeds and the length of the run."""
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
        # A leg ends with a slot and with a lane.
        shortest_m = min(lane.length_m for lane in lanes_of(found))
        if nodes * duration_s * (1 / self.slot_s + self.speed_max_mps / shortest_m) > MAX_LEGS:
            raise UserError(
                f"{self.name} might make more than {MAX_LEGS} legs; use a longer slot_s, lower speeds, fewer nodes or "
                f"a shorter run"
            )
        return found

    def require_room(self, length_m: Floats, safety_m: float, nodes: int) -> None:
        """Refuse more vehicles than the lanes hold."""
        held = holds(length_m, safety_m)
        if nodes > held:
            raise UserError(
                f"{self.name}: the lanes hold {held} vehicles {safety_m:g} m apart, not {nodes}; "
                f"lower the number of nodes or safety_m"
            )

    def slots(self, duration_s: float) -> Floats:
        """When slots begin and end; the run may end in the midst of the last one."""
        start_s = np.arange(ceil(duration_s / self.slot_s) + 1, dtype=np.float64) * self.slot_s
        # By the last digit of a quotient there may be one too many.
        return np.append(start_s[start_s < duration_s], duration_s)

    def change_mps(self) -> float:
        """The most that a speed changes from one slot to the next."""
        if self.acceleration_mps2 is None:
            return 0.1 * self.speed_max_mps * self.slot_s
        return self.acceleration_mps2 * self.slot_s

    def faster_mps(self, gap_m: Floats, safety_m: float) -> Floats:
        """By how much a vehicle may be faster than the one so far ahead of it, for one slot.

        [IMPORTANT] Within the safety distance a vehicle is no faster than the one ahead. `continuous`: nor does it come
        within the distance. `sampled`: what is farther at the start of the slot may, but nobody overtakes.
        """
        if self.safety_rule == "continuous":
            closing_m = np.where(gap_m > safety_m, gap_m - safety_m, 0.0)
        else:
            closing_m = np.where(gap_m > safety_m, gap_m, 0.0)
        return closing_m / self.slot_s
