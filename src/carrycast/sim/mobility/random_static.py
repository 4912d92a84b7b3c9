"""Nodes at random places that stand still."""

from typing import ClassVar

import numpy as np

from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Trajectories


class RandomStatic(MobilityModel, frozen=True, kw_only=True):
    """Places uniform in the area, independent of each other."""

    name: ClassVar[str] = "random_static"
    summary: ClassVar[str] = "stand at random places"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Two draws per node, so that more nodes leave the first ones where they were."""
        place = rng.random((nodes, 2))
        return Trajectories.standing(place[:, 0] * area.width_m, place[:, 1] * area.height_m, duration_s)
