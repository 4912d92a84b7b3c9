"""Models that contain another model: `mixed` adds stationary nodes, `excerpt` plays a later part of a movement."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.model import RoadMap
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel, Recording, find_movement_model
from carrycast.sim.mobility.stationary import GivenPlaces
from carrycast.sim.mobility.trajectory import Trajectories


class Mixed(MobilityModel, frozen=True, kw_only=True):
    """The first nodes are stations at `positions`; the rest move by the model in the table `rest`."""

    name: ClassVar[str] = "mixed"
    summary: ClassVar[str] = "the first nodes stand at the places listed, the rest move by another model"

    positions: Annotated[
        tuple[tuple[float, float], ...], Meta(min_length=1, description="[x, y] of each station, in meters")
    ]
    rest: Annotated[
        dict[str, object], Meta(description="movement of the other nodes: a table with `model` and its settings")
    ]

    def __post_init__(self) -> None:
        try:
            self._parse_rest()
        except UserError as error:
            raise ValueError(str(error)) from None

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with the files of the other model changed."""
        changed = self._parse_rest().with_files(change)
        return msgspec.structs.replace(self, rest={"model": changed.name, **msgspec.to_builtins(changed)})

    def component_models(self) -> tuple[MobilityModel, ...]:
        """Return the model of the rest."""
        return (self._parse_rest(),)

    def on_roads(self) -> bool:
        """Whether the other model has a road map."""
        return self._parse_rest().on_roads()

    def road_map(self) -> RoadMap | None:
        """Return the road map of the other model."""
        return self._parse_rest().road_map()

    def recording(self) -> Recording | None:
        """Return the extent of the other model's recording, with the stations added."""
        moving = self._parse_rest().recording()
        return None if moving is None else moving._replace(nodes=moving.nodes + len(self.positions))

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the stations, then the moving nodes. Stations draw nothing, so the others move as without them."""
        stations = len(self.positions)
        if stations >= nodes:
            raise UserError(f"mixed: {stations} positions for {nodes} nodes leave nobody to move; list fewer")
        standing = GivenPlaces(positions=self.positions).trajectories(stations, area, duration_s, rng)
        moving = self._parse_rest().trajectories(nodes - stations, area, duration_s, rng)
        columns = ("start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")
        return Trajectories(
            np.concatenate([standing.first, moving.first[1:] + standing.legs]),
            *(np.concatenate([getattr(standing, name), getattr(moving, name)]) for name in columns),
        )

    def _parse_rest(self) -> MobilityModel:
        table = dict(self.rest)
        return parse_settings(table, find_movement_model(str(table.pop("model", ""))), "rest")


class Excerpt(MobilityModel, frozen=True, kw_only=True):
    """The movement of the model in the table `of`, from `from_s` on."""

    name: ClassVar[str] = "excerpt"
    summary: ClassVar[str] = "play a later part of another movement"

    from_s: Annotated[float, Meta(ge=0, le=1e7, description="start of the part, in seconds of the other movement")]
    of: Annotated[dict[str, object], Meta(description="the other movement: a table with `model` and its settings")]

    def __post_init__(self) -> None:
        try:
            self._parse_whole()
        except UserError as error:
            raise ValueError(str(error)) from None

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with the files of the other model changed."""
        changed = self._parse_whole().with_files(change)
        return msgspec.structs.replace(self, of={"model": changed.name, **msgspec.to_builtins(changed)})

    def check(self, nodes: int) -> None:
        """Check the number of nodes as the other model does."""
        self._parse_whole().check(nodes)

    def component_models(self) -> tuple[MobilityModel, ...]:
        """Return the other model."""
        return (self._parse_whole(),)

    def on_roads(self) -> bool:
        """Whether the other model has a road map."""
        return self._parse_whole().on_roads()

    def road_map(self) -> RoadMap | None:
        """Return the road map of the other model."""
        return self._parse_whole().road_map()

    def recording(self) -> Recording | None:
        """Return the extent of the other model's recording from `from_s` on."""
        whole = self._parse_whole().recording()
        return None if whole is None else whole._replace(lasts_s=whole.lasts_s - self.from_s)

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Compute the whole movement up to the end of the part, and cut off its beginning."""
        whole = self._parse_whole().trajectories(nodes, area, self.from_s + duration_s, rng)
        node = np.repeat(np.arange(whole.nodes), np.diff(whole.first))
        start_s = np.maximum(whole.start_s, self.from_s)
        late_s = start_s - whole.start_s
        x_m, y_m = whole.x_m + whole.vx_mps * late_s, whole.y_m + whole.vy_mps * late_s
        kept = whole.end_s > start_s
        columns = (start_s - self.from_s, whole.end_s - self.from_s, x_m, y_m, whole.vx_mps, whole.vy_mps)
        return Trajectories.from_legs(whole.nodes, node[kept], *(column[kept] for column in columns))

    def _parse_whole(self) -> MobilityModel:
        table = dict(self.of)
        return parse_settings(table, find_movement_model(str(table.pop("model", ""))), "of")
