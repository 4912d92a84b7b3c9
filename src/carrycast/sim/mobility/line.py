"""Nodes in a row that stand still."""

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Trajectories


class Line(MobilityModel, frozen=True, kw_only=True):
    """Nodes from left to right at half the height of the area."""

    name: ClassVar[str] = "line"
    summary: ClassVar[str] = "stand in a row"

    # Without a spacing the row fills the width: the area alone then says how far apart the nodes are.
    spacing_m: (
        Annotated[float, Meta(gt=0, le=1e6, description="meters between neighbors; fills the width if absent")] | None
    ) = None

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Node 0 at the left border, or in the middle if it is alone."""
        spacing_m = self.spacing_m if self.spacing_m is not None else area.width_m / max(nodes - 1, 1)
        length_m = spacing_m * (nodes - 1)
        if self.spacing_m is not None and length_m > area.width_m:
            raise UserError(
                f"line: {nodes} nodes {spacing_m:g} m apart take {length_m:g} m, but the area is {area.width_m:g} m "
                f"wide; lower spacing_m or widen the area"
            )
        left_m = area.width_m / 2 if nodes == 1 and self.spacing_m is None else 0.0
        x_m = left_m + np.arange(nodes, dtype=np.float64) * spacing_m
        return Trajectories.standing(x_m, np.full(nodes, area.height_m / 2), duration_s)
