"""Some nodes stand at given places, all others move as another model says."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.model.roads import RoadMap
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.mobility.given import Given
from carrycast.sim.mobility.model import Area, MobilityModel, Recording
from carrycast.sim.mobility.trajectory import Trajectories


class Mixed(MobilityModel, frozen=True, kw_only=True):
    """The first nodes are stations at `positions`; the rest move by the model in the table `rest`."""

    name: ClassVar[str] = "mixed"
    summary: ClassVar[str] = "the first nodes stand at the places listed, the rest move by another model"

    positions: Annotated[
        tuple[tuple[float, float], ...], Meta(min_length=1, description="[x, y] of each station, in meters")
    ]
    rest: Annotated[dict[str, object], Meta(description="how the others move: a table with `model` and its settings")]

    def __post_init__(self) -> None:
        try:
            self._moving()
        except UserError as error:
            raise ValueError(str(error)) from None

    def with_files(self, change: Callable[[str], str]) -> Self:
        """The other model's files."""
        changed = self._moving().with_files(change)
        return msgspec.structs.replace(self, rest={"model": changed.name, **msgspec.to_builtins(changed)})

    def component_models(self) -> tuple[MobilityModel, ...]:
        """The model of the rest."""
        return (self._moving(),)

    def on_roads(self) -> bool:
        """As the other model is."""
        return self._moving().on_roads()

    def road_map(self) -> RoadMap | None:
        """The other model's."""
        return self._moving().road_map()

    def recording(self) -> Recording | None:
        """The other model's, and the stations."""
        moving = self._moving().recording()
        return None if moving is None else moving._replace(nodes=moving.nodes + len(self.positions))

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Stations first, then the others. Stations draw nothing, so they do not change how the others move."""
        stations = len(self.positions)
        if stations >= nodes:
            raise UserError(f"mixed: {stations} positions for {nodes} nodes leave nobody to move; list fewer")
        standing = Given(positions=self.positions).trajectories(stations, area, duration_s, rng)
        moving = self._moving().trajectories(nodes - stations, area, duration_s, rng)
        columns = ("start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")
        return Trajectories(
            np.concatenate([standing.first, moving.first[1:] + standing.legs]),
            *(np.concatenate([getattr(standing, name), getattr(moving, name)]) for name in columns),
        )

    def _moving(self) -> MobilityModel:
        # The registry finds models by importing their files, this one among them.
        from carrycast.sim.mobility.registry import lookup

        table = dict(self.rest)
        return parse_settings(table, lookup(str(table.pop("model", ""))), "rest")
