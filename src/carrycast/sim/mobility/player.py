"""Movement that is read from a file: the abstract class of the formats of movement files."""

from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from carrycast.core.file_formats import FileFormat
from carrycast.core.settings import InputFile
from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel, Recording
from carrycast.sim.mobility.trace_file import TraceFile
from carrycast.sim.mobility.trajectory import Trajectories


class Recorded(NamedTuple):
    """All that a trace file says. Each of its records (samples, waypoints, commands) is used or superseded."""

    names: list[str]
    """Of all nodes, in their order."""
    moving: Trajectories
    """From the start of the file to its end."""
    records: int
    used: int
    superseded: int = 0
    """Records that a later one of the same node and time replaces, as the format has it."""


class MovementFormat(MobilityModel, FileFormat, frozen=True, kw_only=True):
    """A format of movement files, which is also the movement model that plays such a file.

    A plug-in derives from it, gives `name` and `summary`, and implements `recorded`.
    """

    content: ClassVar[str] = "movement"

    file: Annotated[InputFile, Meta(description="the trace file, relative to the scenario's folder")]

    def recorded(self) -> Recorded:
        """All nodes of the file, and how they move."""
        raise NotImplementedError(f"{type(self).__name__} does not read its file")

    def extent(self) -> tuple[int, float]:
        """How many nodes the file has and how long it lasts, in seconds."""
        recorded = self.recorded()
        return len(recorded.names), float(recorded.moving.end_s.max(initial=0.0))

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """The movement of the first nodes of the file, up to the end of the run; `area` and `rng` play no part."""
        recorded = self.recorded()
        self.require_nodes(len(recorded.names), nodes)
        moving = recorded.moving
        node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
        kept = (node < nodes) & (moving.start_s < duration_s)
        columns = (moving.start_s, np.minimum(moving.end_s, duration_s), moving.x_m, moving.y_m, moving.vx_mps)
        return Trajectories.from_legs(nodes, node[kept], *(column[kept] for column in (*columns, moving.vy_mps)))

    def recording(self) -> Recording:
        """The file's extent."""
        return Recording(self.file, *self.extent())

    def trace_file(self) -> TraceFile:
        """The file, not yet opened."""
        return TraceFile(Path(self.file))

    def require_nodes(self, held: int, wanted: int) -> None:
        """Refuse a file that holds too few nodes. More than wanted are fine: the first are taken."""
        if held < wanted:
            raise UserError(
                f"{self.file}: the file has {held} nodes, but {wanted} are wanted; lower the number of nodes to {held}"
            )
