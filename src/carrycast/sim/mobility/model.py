"""The abstract class of movement models, and the table of the built-in ones, chosen by `[mobility] model`."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import msgspec
import numpy as np

from carrycast.core.model import Area, RoadMap
from carrycast.core.plugins import find_plugin, plugin_names, unknown_plugin_error
from carrycast.core.settings import file_locator, map_files
from carrycast.sim.mobility.trajectory import Trajectories

__all__ = ["FILE_FORMATS", "MODELS", "Area", "MobilityModel", "Recording", "find_movement_model", "movement_models"]


class Recording(NamedTuple):
    """The extent of a recorded movement, counted from the start of the run."""

    file: str
    nodes: int
    lasts_s: float
    first_only: bool = False
    """Whether the user asked to take only the first nodes of a recording with more nodes."""


class MobilityModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A movement model. The fields of a subclass are its settings; the registry lists it by `name` and `summary`."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with `change` applied to every file name, also to those of models that it contains."""
        return map_files(self, change)

    def resolved(self, base: Path) -> Self:
        """Return a copy whose relative file names are resolved against `base`, the folder of the scenario."""
        return self.with_files(file_locator(base))

    def check(self, nodes: int) -> None:
        """Raise a UserError if the model cannot move this number of nodes."""

    def component_models(self) -> "tuple[MobilityModel, ...]":
        """The models that this one combines, if it combines any."""
        return ()

    def on_roads(self) -> bool:
        """Whether the model has a road map. Reads no file."""
        return False

    def road_map(self) -> RoadMap | None:
        """Return the roads that nodes move on; None if the model has no roads."""
        return None

    def recording(self) -> Recording | None:
        """Read the extent of the file or folder that the model plays; None if the model computes its movement."""
        return None

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement of all nodes from 0 to `duration_s`. All randomness comes from `rng`."""
        raise TypeError(f"{type(self).__name__} makes no trajectories")


MODELS = {
    "community": "carrycast.sim.mobility.community:Community",
    "csv": "carrycast.sim.mobility.csv_table:CsvTable",
    "excerpt": "carrycast.sim.mobility.composite:Excerpt",
    "fleet": "carrycast.sim.mobility.fleet:FleetMovement",
    "freeway": "carrycast.sim.mobility.freeway:Freeway",
    "given": "carrycast.sim.mobility.stationary:GivenPlaces",
    "grid": "carrycast.sim.mobility.stationary:GridModel",
    "line": "carrycast.sim.mobility.stationary:LineModel",
    "manhattan": "carrycast.sim.mobility.manhattan:Manhattan",
    "mixed": "carrycast.sim.mobility.composite:Mixed",
    "random_static": "carrycast.sim.mobility.stationary:RandomStatic",
    "random_waypoint": "carrycast.sim.mobility.random_waypoint:RandomWaypoint",
}
"""The built-in movement models."""

FILE_FORMATS = {
    "bonnmotion": "carrycast.sim.mobility.bonnmotion:BonnMotion",
    "ns2": "carrycast.sim.mobility.ns2:Ns2",
    "one": "carrycast.sim.mobility.one:One",
    "sumo": "carrycast.sim.mobility.sumo:Sumo",
}
"""The built-in formats of movement files. Each is a movement model as well: it plays such a file."""


def movement_models() -> dict[str, type[MobilityModel]]:
    """Return all movement models by name: those that compute a movement, and those that play a file."""
    formats = {name: find_plugin("file_formats", name) for name in plugin_names("file_formats")}
    played = {name: kind for name, kind in formats.items() if issubclass(kind, MobilityModel)}
    made = {name: find_plugin("movement_models", name) for name in plugin_names("movement_models")}
    return dict(sorted({**played, **made}.items()))


def find_movement_model(name: str) -> type[MobilityModel]:
    """Return the model with a name. For an unknown name, a UserError lists the known ones."""
    if name in MODELS:
        return find_plugin("movement_models", name)
    if name in FILE_FORMATS:
        return find_plugin("file_formats", name)
    if name in plugin_names("movement_models"):
        return find_plugin("movement_models", name)
    known = movement_models()
    if name not in known:
        raise unknown_plugin_error("movement model", name, list(known))
    return known[name]
