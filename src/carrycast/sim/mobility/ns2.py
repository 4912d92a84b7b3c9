"""Plays movement files of ns-2, as its tool `setdest` writes them."""

import re
from array import array
from dataclasses import dataclass, field
from math import hypot, inf
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
)
from carrycast.sim.mobility.trajectory import Trajectories

_PLACE = re.compile(r"\$node_\((\d{1,8})\)\s+set\s+([XYZ])_\s+(\S+)")
_SETDEST = re.compile(r'\$ns_\s+at\s+(\S+)\s+"\$node_\((\d{1,8})\)\s+setdest\s+(\S+)\s+(\S+)\s+([^\s"]+)\s*"')
# Hop counts that setdest adds for ns-2's global view ("god"). They follow from the movement and are ignored.
_GOD = re.compile(r'\$god_\s+set-dist\s+\d+\s+\d+\s+\d+|\$ns_\s+at\s+\S+\s+"\$god_\s+set-dist\s+\d+\s+\d+\s+\d+\s*"')
_EXPECTED = (
    "expected $node_(i) set X_ x, $node_(i) set Y_ y, or "
    '$ns_ at time "$node_(i) setdest x y speed" (a file cut in the middle?)'
)


@dataclass(slots=True)
class _Node:
    """One node of a file: its start, and its commands (time, x, y, speed) in a flat array."""

    line_number: int
    x_m: float = inf
    y_m: float = inf
    commands: "array[float]" = field(default_factory=lambda: array("d"))
    records: int = 0
    """The number of lines about the node."""
    repeated: int = 0
    """The number of lines with its start that a later line replaces."""

    def count_superseded(self) -> int:
        """Count the lines that a later line replaces: of two commands at the same time the last wins."""
        times = self.commands[::4]
        return self.repeated + len(times) - len(set(times))


class Ns2(MovementFormat, frozen=True, kw_only=True):
    """A command moves a node at a time in a straight line to a place, at a given speed; the node stays there.

    A new command takes effect wherever the node is; speed 0 stops it. Commands may appear in any order, also before the
    initial places. Nodes are taken in the order of their numbers.
    """

    name: ClassVar[str] = "ns2"
    summary: ClassVar[str] = "play an ns-2 movement file (setdest)"

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the file. Ignores `area` and `rng`."""
        read = _read(self.trace_file())
        self.require_nodes(len(read), nodes)
        return self._make_trajectories(read, nodes, duration_s)

    def _make_trajectories(self, read: "dict[int, _Node]", nodes: int, duration_s: float) -> Trajectories:
        legs = _Legs(duration_s)
        for index, (number, node) in enumerate(sorted(read.items())[:nodes]):
            if inf in (node.x_m, node.y_m):
                missing = "X_" if node.x_m == inf else "Y_"
                raise UserError(
                    f"{self.file}:{node.line_number}: node {number} has no place; "
                    f"expected $node_({number}) set {missing}"
                )
            legs.add(index, node)
        return legs.trajectories(nodes)

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes in the file, and when the last of them has arrived."""
        read = _read(self.trace_file())
        return len(read), self._find_end_s(read)

    def recorded(self) -> RecordedMovement:
        """Return all nodes of the file, named by their numbers, until the last has arrived."""
        file = self.trace_file()
        read = _read(file)
        moving = self._make_trajectories(read, len(read), self._find_end_s(read))
        records = sum(node.records for node in read.values())
        superseded = sum(node.count_superseded() for node in read.values())
        return RecordedMovement(
            [str(number) for number in sorted(read)], moving, records, records - superseded, superseded
        )

    def _find_end_s(self, read: "dict[int, _Node]") -> float:
        legs = _Legs(MAX_TIME_S)
        for index, node in enumerate(read.values()):
            legs.add(index, node)
        start_s, end_s, _, _, vx_mps, vy_mps = legs.columns
        rows = zip(start_s, end_s, vx_mps, vy_mps, strict=True)
        # The last leg of a node stands still without end: the node has arrived when that leg starts.
        return max((end if vx or vy else start for start, end, vx, vy in rows), default=0.0)


def _read(file: TraceFile) -> dict[int, _Node]:
    """Read all nodes of a file, by number."""
    nodes: dict[int, _Node] = {}
    line = ""
    for line in file.lines():
        if match := _SETDEST.fullmatch(line):
            time_s = file.number(match[1], "a time in seconds", 0.0, MAX_TIME_S)
            x_m, y_m = (file.number(match[k], "meters", -MAX_COORDINATE_M, MAX_COORDINATE_M) for k in (3, 4))
            speed_mps = file.number(match[5], "a speed in m/s", 0.0, MAX_COORDINATE_M)
            node = nodes.setdefault(int(match[2]), _Node(file.line_number))
            node.records += 1
            node.commands.extend((time_s, x_m, y_m, speed_mps))
        elif match := _PLACE.fullmatch(line):
            value_m = file.number(match[3], "meters", -MAX_COORDINATE_M, MAX_COORDINATE_M)
            node = nodes.setdefault(int(match[1]), _Node(file.line_number))
            node.records += 1
            if match[2] == "X":
                node.repeated += node.x_m != inf
                node.x_m = value_m
            elif match[2] == "Y":
                node.repeated += node.y_m != inf
                node.y_m = value_m
        elif not _GOD.fullmatch(line):
            raise file.error(_EXPECTED)
    # A complete command ends with a quote. Any other line ends in a number that may have been cut.
    if not line.endswith('"'):
        file.require_line_end()
    if not nodes:
        raise UserError(f"{file.path}: no nodes; {_EXPECTED}")
    return nodes


class _Legs:
    """Converts commands into legs."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.node = array("q")
        self.columns = [array("d") for _ in range(6)]

    def add(self, index: int, node: _Node) -> None:
        """Add the legs of one node, from its place at time 0 through all its commands."""
        flat = node.commands
        # The sort is stable, so of commands at the same time the last one in the file wins.
        commands = sorted((tuple(flat[k : k + 4]) for k in range(0, len(flat), 4)), key=lambda command: command[0])
        now_s, x_m, y_m = 0.0, node.x_m, node.y_m
        goal_x_m, goal_y_m, speed_mps = x_m, y_m, 0.0
        for next_s, next_x_m, next_y_m, next_speed_mps in [*commands, (self.duration_s, 0.0, 0.0, 0.0)]:
            until_s = min(next_s, self.duration_s)
            left_m = hypot(goal_x_m - x_m, goal_y_m - y_m)
            if speed_mps > 0 and left_m > 0 and until_s > now_s:
                there_s = now_s + left_m / speed_mps
                vx_mps, vy_mps = (goal_x_m - x_m) / left_m * speed_mps, (goal_y_m - y_m) / left_m * speed_mps
                stop_s = min(there_s, until_s)
                self._add_leg(index, now_s, stop_s, x_m, y_m, vx_mps, vy_mps)
                if there_s <= until_s:
                    x_m, y_m = goal_x_m, goal_y_m
                else:
                    x_m, y_m = x_m + vx_mps * (stop_s - now_s), y_m + vy_mps * (stop_s - now_s)
                now_s = stop_s
            if until_s > now_s:
                self._add_leg(index, now_s, until_s, x_m, y_m, 0.0, 0.0)
                now_s = until_s
            goal_x_m, goal_y_m, speed_mps = next_x_m, next_y_m, next_speed_mps

    def _add_leg(self, index: int, *values: float) -> None:
        self.node.append(index)
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def trajectories(self, nodes: int) -> Trajectories:
        """Return all legs as trajectories."""
        node = np.array(self.node, dtype=np.int64)
        return Trajectories.from_legs(nodes, node, *(np.array(column) for column in self.columns))
