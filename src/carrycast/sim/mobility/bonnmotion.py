"""Plays movement files of BonnMotion: a line for each node, `time x y` for each of its waypoints."""

from codecs import BOM_UTF8
from pathlib import Path
from typing import ClassVar

import numpy as np

from carrycast.errors import UserError
from carrycast.sim.mobility.compression import decompressed_file
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.movement_file import (
    MAX_COORDINATE_M,
    MAX_TIME_S,
    MovementFormat,
    RecordedMovement,
    join_samples,
)
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

# A line holds all waypoints of a node. This suffices for five million of them, more than any model produces.
MAX_LINE_BYTES = 1 << 28
_EXPECTED = "expected a line for each node: time x y, again and again"


class BonnMotion(MovementFormat, frozen=True, kw_only=True):
    """Nodes go in straight lines from waypoint to waypoint, in the order of the lines.

    A node is absent before its first waypoint and stays at its last one.
    """

    name: ClassVar[str] = "bonnmotion"
    summary: ClassVar[str] = "play a movement file of BonnMotion (.movements, plain or gzip)"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the file. Ignores `area` and `rng`."""
        node, waypoints, _ = _read(Path(self.file))
        self.require_nodes(int(node[-1]) + 1, nodes)
        return _join_waypoints(nodes, duration_s, node, waypoints)

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes (lines) of the file, and its last time."""
        node, waypoints, _ = _read(Path(self.file))
        return int(node[-1]) + 1, float(waypoints[:, 0].max())

    def recorded(self) -> RecordedMovement:
        """Return all nodes, named by the numbers of their lines from 0 on."""
        node, waypoints, records = _read(Path(self.file))
        nodes, lasts_s = int(node[-1]) + 1, float(waypoints[:, 0].max())
        names = [str(number) for number in range(nodes)]
        return RecordedMovement(
            names, _join_waypoints(nodes, lasts_s, node, waypoints), records, len(waypoints), records - len(waypoints)
        )


def _join_waypoints(nodes: int, duration_s: float, node: Integers, waypoints: Floats) -> Trajectories:
    return join_samples(nodes, duration_s, node, waypoints[:, 0], waypoints[:, 1], waypoints[:, 2], steps=None)


def _read(path: Path) -> tuple[Integers, Floats, int]:
    """Read the node of each waypoint, a row (time, x, y) for each, and the number of waypoints in the file."""
    found: list[Floats] = []
    number = records = 0
    with decompressed_file(path) as file:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise UserError(f"{path}:{number}: longer than {MAX_LINE_BYTES} bytes; {_EXPECTED}")
            if number == 1:
                raw = raw.removeprefix(BOM_UTF8)
            if raw.strip() and not raw.lstrip().startswith(b"#"):
                waypoints, count = _parse_waypoints(raw, f"{path}:{number}")
                found.append(waypoints)
                records += count
    if not found:
        raise UserError(f"{path}: no nodes; {_EXPECTED}")
    starts_s = np.array([line[0, 0] for line in found])
    if len(found) > 2 and all(len(line) == 1 for line in found) and bool((np.diff(starts_s) > 0).all()):
        raise UserError(
            f"{path}: each line is one `time x y`, later than the line before: the track of one node, or contacts, but "
            f"no movement of BonnMotion; {_EXPECTED}"
        )
    whole = np.concatenate(found)
    return np.repeat(np.arange(len(found)), [len(line) for line in found]), whole, records


def _parse_waypoints(raw: bytes, where: str) -> tuple[Floats, int]:
    """Parse the waypoints of one line. Returns also their number with those that repeat a time, which are dropped."""
    if not raw.endswith(b"\n"):
        raise UserError(f"{where}: the file ends in the middle of a line; if it is whole, end it with a newline")
    try:
        values = np.array(raw.split(), dtype=np.float64)
    except ValueError:
        raise UserError(f"{where}: has a word that is no number; {_EXPECTED}") from None
    if len(values) % 3:
        raise UserError(
            f"{where}: {len(values)} numbers are no whole waypoints (a file cut in the middle?); {_EXPECTED}"
        )
    waypoints = values.reshape(-1, 3)
    time_s, place_m = waypoints[:, 0], waypoints[:, 1:]
    # Written so that NaN fails too.
    if not (bool((abs(place_m) <= MAX_COORDINATE_M).all()) and bool(((time_s >= 0) & (time_s <= MAX_TIME_S)).all())):
        raise UserError(f"{where}: a time or place is out of bounds; {_EXPECTED}")
    if bool((np.diff(time_s) < 0).any()):
        raise UserError(f"{where}: the time goes back; {_EXPECTED}, in the order of time")
    # BonnMotion repeats a waypoint where a pause of zero length begins. Of equal times the last waypoint wins.
    return waypoints[np.append(np.diff(time_s) > 0, True)], len(waypoints)
