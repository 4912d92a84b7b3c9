"""Movement read from files: lines of bounded length, trajectories from samples, and the base class of formats.

Errors name file and line.
"""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from carrycast.core.file_formats import FileFormat
from carrycast.core.settings import InputFile
from carrycast.errors import UserError
from carrycast.sim.mobility.compression import decompressed_file
from carrycast.sim.mobility.model import Area, MobilityModel, Recording
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

# Lines of all supported trace formats are much shorter; a longer line means another kind of file.
MAX_LINE_BYTES = 4096
# The arrays of more lines would not fit into the memory of a common machine.
MAX_LINES = 50_000_000
# Coordinates and speeds: a million kilometers, which a 64-bit float resolves far below a millimeter.
MAX_COORDINATE_M = 1e9
# Times: enough for seconds and milliseconds since 1970.
MAX_TIME_S = 1e13


class TraceFile:
    """A text file read as a stream. Its errors name the line that was read last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_number = 0
        self.complete = True

    def lines(self) -> Iterator[str]:
        """Yield the lines that are neither blank nor comments (#), stripped."""
        with decompressed_file(self.path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                self.line_number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise self.error(f"longer than {MAX_LINE_BYTES} bytes; expected a text file of short lines")
                if self.line_number > MAX_LINES:
                    raise self.error(f"more than {MAX_LINES} lines; expected a shorter file, so cut it in time")
                self.complete = raw.endswith(b"\n")
                try:
                    # The file may begin with a byte order mark.
                    line = raw.decode("utf-8-sig" if self.line_number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise self.error("not text in UTF-8; expected that, so convert the file first") from None
                if line and not line.startswith("#"):
                    yield line

    def error(self, what: str) -> UserError:
        """Return an error for the line that was read last."""
        return UserError(f"{self.path}:{self.line_number}: {what}")

    def require_line_end(self) -> None:
        """Reject a last line without a line end: its last number may have been cut."""
        if not self.complete:
            raise self.error("the file ends in the middle of a line; if it is whole, end its last line with a newline")

    def number(self, text: str, what: str, low: float, high: float) -> float:
        """Parse a number of the line that was read last, and check its bounds."""
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"{text[:40]!r} is not a number; expected {what}") from None
        if not isfinite(value) or not low <= value <= high:
            raise self.error(f"{text[:40]} is out of bounds; expected {what} from {low:g} to {high:g}")
        return value


def join_samples(
    nodes: int, duration_s: float, node: Integers, time_s: Floats, x_m: Floats, y_m: Floats, steps: Integers | None
) -> Trajectories:
    """Join the samples of the first nodes, given in any order, by straight lines.

    `steps` holds the number of the time step of each sample. With it, only samples of consecutive steps are joined: a
    node is absent between other samples and after its last one. Without it, a node moves to its next sample however
    late that is, and stays at its last one.
    """
    order = np.lexsort((time_s, node))
    order = order[node[order] < nodes]
    node, time_s, x_m, y_m = node[order], time_s[order], x_m[order], y_m[order]
    goes_on = np.diff(node) == 0
    if steps is not None:
        goes_on &= np.diff(steps[order]) == 1
    # Samples in the middle of a rest are dropped, so that the rest is one leg.
    same = goes_on & (np.diff(x_m) == 0) & (np.diff(y_m) == 0)
    needed = ~(np.append(False, same) & np.append(same, False))
    node, time_s, x_m, y_m = node[needed], time_s[needed], x_m[needed], y_m[needed]
    goes_on = np.append(goes_on, False)[needed]
    lasting_s = np.where(goes_on, np.append(np.diff(time_s), 1.0), 1.0)
    vx_mps = np.where(goes_on, np.append(np.diff(x_m), 0.0), 0.0) / lasting_s
    vy_mps = np.where(goes_on, np.append(np.diff(y_m), 0.0), 0.0) / lasting_s
    last_s = duration_s if steps is None else time_s
    end_s = np.minimum(np.where(goes_on, np.append(time_s[1:], 0.0), last_s), duration_s)
    return Trajectories.from_legs(nodes, node, time_s, end_s, x_m, y_m, vx_mps, vy_mps)


class Waypoints(NamedTuple):
    """Samples by node and time. Those of a node with the same track are joined by straight lines; in between it is
    absent."""

    node: Integers
    track: Integers
    time_s: Floats
    x_m: Floats
    y_m: Floats


# A leg that starts this close to the end of the one before continues it: rounding errors are far smaller.
_SAME_PLACE_M = 1e-6


def extract_waypoints(moving: Trajectories) -> Waypoints:
    """Return samples that reproduce a movement when joined: the start of each leg, and its end if nothing follows."""
    node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
    lasting_s = moving.end_s - moving.start_s
    end_x_m, end_y_m = moving.x_m + moving.vx_mps * lasting_s, moving.y_m + moving.vy_mps * lasting_s
    follows = (np.diff(node) == 0) & (moving.start_s[1:] == moving.end_s[:-1])
    follows &= np.hypot(moving.x_m[1:] - end_x_m[:-1], moving.y_m[1:] - end_y_m[:-1]) <= _SAME_PLACE_M
    last = np.flatnonzero(np.append(~follows, True)[: moving.legs])
    track = np.cumsum(np.append(0, ~follows))[: moving.legs]
    all_tracks, time_s = np.concatenate((track, track[last])), np.concatenate((moving.start_s, moving.end_s[last]))
    order = np.lexsort((time_s, all_tracks))
    return Waypoints(
        np.concatenate((node, node[last]))[order],
        all_tracks[order],
        time_s[order],
        np.concatenate((moving.x_m, end_x_m[last]))[order],
        np.concatenate((moving.y_m, end_y_m[last]))[order],
    )


class RecordedMovement(NamedTuple):
    """The content of a trace file. Each of its records (samples, waypoints, commands) is used or superseded."""

    names: list[str]
    """The names of all nodes, in their order."""
    moving: Trajectories
    """The movement from the start of the file to its end."""
    records: int
    used: int
    superseded: int = 0
    """Records that a later record of the same node and time replaces, by the rules of the format."""


class MovementFormat(MobilityModel, FileFormat, frozen=True, kw_only=True):
    """A format of movement files, which is also the movement model that plays such a file.

    A plug-in derives from it, gives `name` and `summary`, and implements `recorded`.
    """

    content: ClassVar[str] = "movement"

    file: Annotated[InputFile, Meta(description="movement file, relative to the scenario's folder; may be compressed")]

    def recorded(self) -> RecordedMovement:
        """Read all nodes of the file and their movement."""
        raise NotImplementedError(f"{type(self).__name__} does not read its file")

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes of the file and its duration in seconds."""
        recorded = self.recorded()
        return len(recorded.names), float(recorded.moving.end_s.max(initial=0.0))

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement of the first nodes of the file, up to the end of the run. Ignores `area` and `rng`."""
        recorded = self.recorded()
        self.require_nodes(len(recorded.names), nodes)
        moving = recorded.moving
        node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
        kept = (node < nodes) & (moving.start_s < duration_s)
        columns = (moving.start_s, np.minimum(moving.end_s, duration_s), moving.x_m, moving.y_m, moving.vx_mps)
        return Trajectories.from_legs(nodes, node[kept], *(column[kept] for column in (*columns, moving.vy_mps)))

    def recording(self) -> Recording:
        """Return the extent of the file."""
        return Recording(self.file, *self.extent())

    def trace_file(self) -> TraceFile:
        """Return the file, not yet opened."""
        return TraceFile(Path(self.file))

    def require_nodes(self, held: int, wanted: int) -> None:
        """Reject a file with too few nodes. Of a file with more, the first nodes are used."""
        if held < wanted:
            raise UserError(
                f"{self.file}: the file has {held} nodes, but {wanted} are wanted; lower the number of nodes to {held}"
            )
