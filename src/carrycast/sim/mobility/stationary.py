"""Models in which nodes stand still: at given places, in a grid, in a line, or at random places."""

from math import ceil, sqrt
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Trajectories


class GivenPlaces(MobilityModel, frozen=True, kw_only=True):
    """One place (x, y) for each node, in meters."""

    name: ClassVar[str] = "given"
    summary: ClassVar[str] = "stand at the places listed"

    positions: Annotated[tuple[tuple[float, float], ...], Meta(description="[x, y] of each node, in meters")]

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Place the nodes as listed."""
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


class GridModel(MobilityModel, frozen=True, kw_only=True):
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
        """Place the nodes by row and column."""
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


class LineModel(MobilityModel, frozen=True, kw_only=True):
    """Nodes from left to right at half the height of the area."""

    name: ClassVar[str] = "line"
    summary: ClassVar[str] = "stand in a row"

    # Without a spacing the row fills the width of the area.
    spacing_m: (
        Annotated[float, Meta(gt=0, le=1e6, description="meters between neighbors; fills the width if absent")] | None
    ) = None

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Place node 0 at the left border, or in the middle if it is the only node."""
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


class RandomStatic(MobilityModel, frozen=True, kw_only=True):
    """Places uniform in the area, independent of each other."""

    name: ClassVar[str] = "random_static"
    summary: ClassVar[str] = "stand at random places"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Draw two numbers per node, so that adding nodes does not move the first ones."""
        place = rng.random((nodes, 2))
        return Trajectories.standing(place[:, 0] * area.width_m, place[:, 1] * area.height_m, duration_s)
