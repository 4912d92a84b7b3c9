"""Nodes at given places that stand still."""

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Trajectories


class Given(MobilityModel, frozen=True, kw_only=True):
    """One place (x, y) for each node, in meters."""

    name: ClassVar[str] = "given"
    summary: ClassVar[str] = "stand at the places listed"

    positions: Annotated[tuple[tuple[float, float], ...], Meta(description="[x, y] of each node, in meters")]

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """The places as they are."""
        if len(self.positions) != nodes:
            raise UserError(f"given: {len(self.positions)} positions for {nodes} nodes; list one for each node")
        for index, (x_m, y_m) in enumerate(self.positions):
            if not (0 <= x_m <= area.width_m and 0 <= y_m <= area.height_m):
                raise UserError(
                    f"given: position {index} ({x_m:g}, {y_m:g}) lies outside the area of "
                    f"{area.width_m:g} m x {area.height_m:g} m"
                )
        place = np.array(self.positions, dtype=np.float64).reshape(nodes, 2)
        return Trajectories.standing(place[:, 0], place[:, 1], duration_s)
