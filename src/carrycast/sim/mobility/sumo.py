"""Plays floating car data (FCD) of SUMO: where every vehicle was in each time step, while it was on the road."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.maps import read_map
from carrycast.core.model import RoadMap
from carrycast.errors import UserError
from carrycast.sim.mobility.fcd import ALL_KINDS, FcdSamples, read_fcd
from carrycast.sim.mobility.model import Area, Recording
from carrycast.sim.mobility.player import MovementFormat, Recorded
from carrycast.sim.mobility.trajectory import Trajectories


class Sumo(MovementFormat, frozen=True, kw_only=True):
    """Each vehicle is a node, in the order in which they appear. Time counts from the first step in the file.

    A vehicle is there from its first sample to its last, in a straight line from each step to the next; in a step that
    does not list it, it is absent. A vehicle of a single sample is never there.
    """

    name: ClassVar[str] = "sumo"
    summary: ClassVar[str] = "play floating car data of SUMO (FCD, XML or gzip); vehicles come and go"

    persons: Annotated[bool, Meta(description="people on foot and containers are nodes too")] = False
    first: Annotated[bool, Meta(description="of more vehicles than nodes, take the first instead of refusing")] = False
    map: (
        Annotated[str, Meta(min_length=1, description="the roads for protocols: highway, city, or a .toml file")] | None
    ) = None

    def with_files(self, change: Callable[[str], str]) -> Self:
        """The recording's and the map's; a map that comes with carrycast keeps its name."""
        named = super().with_files(change)
        if self.map is None or not self.map.endswith(".toml"):
            return named
        return msgspec.structs.replace(named, map=change(self.map))

    def on_roads(self) -> bool:
        """If a map was given: a recording has none."""
        return self.map is not None

    def road_map(self) -> RoadMap | None:
        """The map given, read from its file."""
        return None if self.map is None else read_map(self.map)

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """The movement in the file; `area` and `rng` play no part."""
        samples = self._read()
        self.require_nodes(len(samples.number), nodes)
        if len(samples.number) > nodes and not self.first:
            raise UserError(
                f"{self.file}: the file has {len(samples.number)} vehicles for {nodes} nodes; raise the number of "
                f"nodes, or set first = true to take the first {nodes}"
            )
        return samples.trajectories(nodes, duration_s)

    def recording(self) -> Recording:
        """The file's extent."""
        return super().recording()._replace(first_only=self.first)

    def recorded(self) -> Recorded:
        """All vehicles of the file; a person or container is told from a vehicle by the word before its id."""
        return self._read().recorded()

    def extent(self) -> tuple[int, float]:
        """The vehicles in the file, and the time from its first step to its last."""
        samples = self._read()
        return len(samples.number), samples.time_s[-1] - samples.time_s[0]

    def _read(self) -> FcdSamples:
        samples = read_fcd(Path(self.file), ALL_KINDS if self.persons else frozenset({"vehicle"}))
        if samples.in_degrees():
            raise UserError(
                f"{self.file}: x and y are degrees; `carrycast ingest` makes a fleet in meters of it, or export "
                "without --fcd-output.geo"
            )
        return samples
