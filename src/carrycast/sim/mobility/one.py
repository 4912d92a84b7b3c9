"""Plays external movement files of the ONE simulator."""

from array import array
from typing import ClassVar

import numpy as np

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.movement_file import (
    MAX_COORDINATE_M,
    MAX_TIME_S,
    MovementFormat,
    RecordedMovement,
    TraceFile,
    join_samples,
)
from carrycast.sim.mobility.trajectory import Trajectories

_HEADER = "minTime maxTime minX maxX minY maxY [minZ maxZ]"
_SAMPLE = "time id x y"


class One(MovementFormat, frozen=True, kw_only=True):
    """Samples joined by straight lines. Times and places are relative to the minima in the file's first line.

    Nodes are taken in the order in which their names appear. A node is absent before its first sample and stays at its
    last one.
    """

    name: ClassVar[str] = "one"
    summary: ClassVar[str] = "play an external movement file of the ONE"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the file. Ignores `area` and `rng`."""
        samples = _Samples(self.trace_file())
        samples.read()
        self.require_nodes(len(samples.last_s), nodes)
        return samples.trajectories(nodes, duration_s)

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes in the file, and the time of its last sample."""
        samples = _Samples(self.trace_file())
        samples.read()
        return len(samples.last_s), max(samples.last_s.values())

    def recorded(self) -> RecordedMovement:
        """Return all nodes of the file, until its last sample."""
        samples = _Samples(self.trace_file())
        samples.read()
        moving = samples.trajectories(len(samples.number), max(samples.last_s.values()))
        return RecordedMovement(list(samples.number), moving, samples.records, len(samples.node))


class _Samples:
    """The samples of a file, one array per column."""

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.node, self.time_s, self.x_m, self.y_m = array("q"), array("d"), array("d"), array("d")
        # The number and the last time of each name.
        self.number: dict[str, int] = {}
        self.last_s: dict[str, float] = {}
        self.records = 0
        """The number of lines after the first."""

    def read(self) -> None:
        """Read the whole file: the header, then samples in the order of time."""
        lines = self.file.lines()
        header = next(lines, None)
        if header is None:
            raise UserError(f"{self.file.path}: empty; expected the line {_HEADER} and then lines {_SAMPLE}")
        bounds = self._parse_header(header)
        now_s, at_now, before = -1.0, 0, 0
        for line in lines:
            self.records += 1
            time_s = self._add_sample(line, bounds)
            if time_s < now_s:
                raise self.file.error("the time goes back; expected samples sorted by time")
            if time_s > now_s:
                now_s, at_now, before = time_s, 0, at_now
            at_now += 1
        self.file.require_line_end()
        if not self.number:
            raise UserError(f"{self.file.path}: no nodes; expected lines {_SAMPLE} after the first line")
        if at_now < before and now_s < bounds[1] - bounds[0]:
            raise self.file.error(
                f"the file ends before its maxTime with {at_now} samples where {before} are expected; is it cut?"
            )

    def _parse_header(self, line: str) -> list[float]:
        fields = line.split()
        if len(fields) not in (6, 8):
            raise self.file.error(f"expected {_HEADER}")
        bounds = [self.file.number(text, f"a number in {_HEADER}", -MAX_TIME_S, MAX_TIME_S) for text in fields]
        if any(low > high for low, high in zip(bounds[::2], bounds[1::2], strict=True)):
            raise self.file.error(f"a minimum exceeds its maximum; expected {_HEADER}")
        return bounds

    def _add_sample(self, line: str, bounds: list[float]) -> float:
        """Add one sample and return its time."""
        fields = line.split()
        if len(fields) != 4:
            raise self.file.error(f"expected {_SAMPLE} (a file cut in the middle?)")
        time_s = self.file.number(fields[0], "a time not before minTime", bounds[0], MAX_TIME_S) - bounds[0]
        x_m, y_m = (self.file.number(text, "meters", -MAX_COORDINATE_M, MAX_COORDINATE_M) for text in fields[2:])
        name = fields[1]
        if self.last_s.get(name) == time_s:
            raise self.file.error(f"node {name} has two samples at the same time; expected one")
        self.last_s[name] = time_s
        self.node.append(self.number.setdefault(name, len(self.number)))
        self.time_s.append(time_s)
        self.x_m.append(x_m - bounds[2])
        self.y_m.append(y_m - bounds[4])
        return time_s

    def trajectories(self, nodes: int, duration_s: float) -> Trajectories:
        """Return a leg from each sample to the next of its node, and a rest at the last one to the end of the run."""
        node = np.array(self.node, dtype=np.int64)
        columns = (np.array(self.time_s), np.array(self.x_m), np.array(self.y_m))
        return join_samples(nodes, duration_s, node, *columns, steps=None)
