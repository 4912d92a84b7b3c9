"""Movement that is read from a file: the abstract class of the formats of movement files."""

from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.file_formats import FileFormat
from carrycast.core.settings import InputFile
from carrycast.errors import UserError
from carrycast.sim.mobility.model import MobilityModel, Recording
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

    A plug-in derives from it, gives `name`, `summary`, and implements `extent`, `recorded` and `trajectories`.
    """

    content: ClassVar[str] = "movement"

    file: Annotated[InputFile, Meta(description="the trace file, relative to the scenario's folder")]

    def extent(self) -> tuple[int, float]:
        """How many nodes the file has and how long it lasts, in seconds."""
        raise TypeError(f"{type(self).__name__} does not say what its file holds")

    def recorded(self) -> Recorded:
        """All nodes of the file, and how they move."""
        raise TypeError(f"{type(self).__name__} does not say what its file holds")

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
