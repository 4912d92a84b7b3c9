"""What a movement model is: settings, and the trajectories that follow from them."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import msgspec
import numpy as np

from carrycast.core.model import Area, RoadMap
from carrycast.core.settings import file_locator, map_files
from carrycast.sim.mobility.trajectory import Trajectories

__all__ = ["Area", "MobilityModel", "Recording"]


class Recording(NamedTuple):
    """What a recorded movement holds, of the time from the run's beginning on."""

    file: str
    nodes: int
    lasts_s: float
    first_only: bool = False
    """Whether the user said that of more nodes the first are taken."""


class MobilityModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to move. A subclass's fields are its settings; `name` and `summary` make it known to the registry."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def with_files(self, change: Callable[[str], str]) -> Self:
        """A copy with every name of a file changed. A model whose settings hold those of another passes it on."""
        return map_files(self, change)

    def resolved(self, base: Path) -> Self:
        """A copy whose relative file names are taken from `base`, the folder of the scenario."""
        return self.with_files(file_locator(base))

    def check(self, nodes: int) -> None:
        """Refuse, with a UserError, to move so many nodes."""

    def component_models(self) -> "tuple[MobilityModel, ...]":
        """The models that this one combines, if it combines any."""
        return ()

    def on_roads(self) -> bool:
        """Whether there is a road map to ask for; told without reading any file."""
        return False

    def road_map(self) -> RoadMap | None:
        """The roads that nodes move on; None where a model knows of no roads."""
        return None

    def recording(self) -> Recording | None:
        """What the file or folder that the model plays holds, which is read for it; None where movement is made."""
        return None

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """The movement of all nodes from 0 to duration_s, drawn from `rng` alone."""
        raise TypeError(f"{type(self).__name__} makes no trajectories")
