"""Plays movement from a CSV table of samples: time, node and place, as a spreadsheet or a script writes it."""

import csv
from array import array
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.movement_file import MAX_COORDINATE_M, MAX_TIME_S, MovementFormat, TraceFile, join_samples
from carrycast.sim.mobility.trajectory import Integers, Trajectories

COLUMNS = ("time_s", "node", "x_m", "y_m")
_EXPECTED = "a first line with the columns " + ",".join(COLUMNS)
_DEGREES = ("lat", "lon", "lng", "latitude", "longitude")


class CsvTable(MovementFormat, frozen=True, kw_only=True):
    """Samples in any order, joined by straight lines. Time counts from the earliest sample.

    Nodes are taken in the order in which their names appear. A node is absent before its first sample and stays at its
    last one.
    """

    name: ClassVar[str] = "csv"
    summary: ClassVar[str] = "play a table with the columns time_s, node, x_m, y_m"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the file. Ignores `area` and `rng`."""
        samples = _Samples(self.trace_file())
        self.require_nodes(len(samples.number), nodes)
        time_s, x_m, y_m = np.array(samples.time_s), np.array(samples.x_m), np.array(samples.y_m)
        return join_samples(nodes, duration_s, samples.nodes(), time_s - time_s.min(), x_m, y_m, steps=None)

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes in the file, and the time from its first sample to its last."""
        samples = _Samples(self.trace_file())
        return len(samples.number), max(samples.time_s) - min(samples.time_s)


class _Samples:
    """The samples of a file, one array per column."""

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.line, self.node = array("q"), array("q")
        self.time_s, self.x_m, self.y_m = array("d"), array("d"), array("d")
        self.number: dict[str, int] = {}
        self._read()
        self._refuse_duplicates()

    def nodes(self) -> Integers:
        """The node of each sample."""
        return np.array(self.node, dtype=np.int64)

    def _read(self) -> None:
        rows = self._read_rows()
        header = next(rows, None)
        if header is None:
            raise UserError(f"{self.file.path}: empty; expected {_EXPECTED} and then a line for each sample")
        places = self._find_columns([column.strip() for column in header])
        for row in rows:
            if len(row) != len(header):
                raise self.file.error(f"{len(row)} fields; expected {len(header)}, as in the first line")
            self._add_sample(*(row[place].strip() for place in places))
        self.file.require_line_end()
        if not self.number:
            raise UserError(f"{self.file.path}: no nodes; expected a line for each sample after the first line")

    def _read_rows(self) -> Iterator[list[str]]:
        try:
            yield from csv.reader(self.file.lines(), strict=True)
        except csv.Error as error:
            raise self.file.error(f"{error}; expected fields separated by commas") from None

    def _find_columns(self, header: list[str]) -> list[int]:
        missing = [column for column in COLUMNS if column not in header]
        if not missing:
            return [header.index(column) for column in COLUMNS]
        hint = ""
        if any(column.lower() in _DEGREES for column in header):
            hint = "; turn degrees into meters first, as docs/mobility.md shows"
        elif len(header) == 1:
            hint = ", separated by commas"
        raise self.file.error(f"there is no column {' or '.join(missing)}; expected {_EXPECTED}{hint}")

    def _add_sample(self, time: str, name: str, x: str, y: str) -> None:
        if not name:
            raise self.file.error("a sample of nobody; expected the name of a node")
        self.time_s.append(self.file.number(time, "seconds", -MAX_TIME_S, MAX_TIME_S))
        self.x_m.append(self.file.number(x, "meters", -MAX_COORDINATE_M, MAX_COORDINATE_M))
        self.y_m.append(self.file.number(y, "meters", -MAX_COORDINATE_M, MAX_COORDINATE_M))
        self.node.append(self.number.setdefault(name, len(self.number)))
        self.line.append(self.file.line_number)

    def _refuse_duplicates(self) -> None:
        """Reject two samples of one node at the same time."""
        node, time_s = self.nodes(), np.array(self.time_s)
        order = np.lexsort((time_s, node))
        again = np.flatnonzero((np.diff(node[order]) == 0) & (np.diff(time_s[order]) == 0))
        if again.size:
            first, second = (self.line[order[again[0] + step]] for step in (0, 1))
            name = list(self.number)[int(node[order[again[0]]])]
            raise UserError(
                f"{self.file.path}:{second}: node {name} has another sample at the same time, in line {first}; "
                "expected one"
            )
