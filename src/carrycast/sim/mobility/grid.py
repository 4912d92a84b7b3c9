"""Nodes in rows and columns that stand still."""

from math import ceil, sqrt
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Trajectories


class Grid(MobilityModel, frozen=True, kw_only=True):
    """Nodes row by row from (0, 0); the last row may be shorter."""

    name: ClassVar[str] = "grid"
    summary: ClassVar[str] = "stand in rows and columns"

    # Without a number of columns the grid is as square as the number of nodes allows.
    columns: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="nodes per row; as square as possible if absent")] | None
    ) = None
    # Without a spacing each node stands in the middle of its own cell, and the cells fill the area.
    spacing_m: (
        Annotated[float, Meta(gt=0, le=1e6, description="meters between neighbors; fills the area if absent")] | None
    ) = None

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Places by row and column."""
        columns = self.columns if self.columns is not None else max(ceil(sqrt(nodes)), 1)
        rows = max(ceil(nodes / columns), 1)
        row, column = np.divmod(np.arange(nodes), columns)
        if self.spacing_m is None:
            x_m, y_m = (column + 0.5) * (area.width_m / columns), (row + 0.5) * (area.height_m / rows)
            return Trajectories.standing(x_m, y_m, duration_s)
        width_m, height_m = (min(columns, nodes) - 1) * self.spacing_m, (rows - 1) * self.spacing_m
        if width_m > area.width_m or height_m > area.height_m:
            raise UserError(
                f"grid: {nodes} nodes in {columns} columns {self.spacing_m:g} m apart take {width_m:g} m x "
                f"{height_m:g} m, but the area is {area.width_m:g} m x {area.height_m:g} m; lower spacing_m"
            )
        return Trajectories.standing(column * self.spacing_m, row * self.spacing_m, duration_s)
