"""Floating car data (FCD) of SUMO: a streaming reader, and the movement model that plays a file."""

import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Self
from xml.parsers import expat

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.maps import read_map
from carrycast.core.model import RoadMap
from carrycast.errors import UserError
from carrycast.sim.mobility.compression import decompressed_file
from carrycast.sim.mobility.model import Area, Recording
from carrycast.sim.mobility.movement_file import (
    MAX_COORDINATE_M,
    MAX_TIME_S,
    MovementFormat,
    RecordedMovement,
    Waypoints,
    join_samples,
)
from carrycast.sim.mobility.trajectory import Trajectories

CHUNK_BYTES = 1 << 16
# A tag of this format has some hundred bytes. An endless tag would fill the memory.
MAX_TAG_BYTES = 1 << 20
MAX_SAMPLES = 50_000_000
MAX_NAME = 1000
ALL_KINDS = frozenset({"vehicle", "person", "container"})
_ROOT = "fcd-export"
# SUMO writes its configuration into a comment at the top.
_GEO = re.compile(r"""fcd-output\.geo\s+value=["'](\w+)["']""")
_TRUE = frozenset({"true", "1", "yes", "on", "t", "x"})
# The length of a step divided by speed times duration is about 1 in meters, and about 1/100,000 in degrees. Both bounds
# are far from either.
_METERS_FROM, _DEGREES_UP_TO = 0.01, 0.001
# A thousandth of a degree is about a hundred meters, so coordinates in degrees have more digits than three.
_DEGREE_DIGITS = 3
# Errors of the parser for a file that ends too early.
_ENDS = frozenset(
    {expat.errors.XML_ERROR_NO_ELEMENTS, expat.errors.XML_ERROR_UNCLOSED_TOKEN, expat.errors.XML_ERROR_PARTIAL_CHAR}
)


def read_fcd(path: Path, kinds: frozenset[str] = ALL_KINDS) -> "FcdSamples":
    """Read the samples of these kinds from a file."""
    samples = FcdSamples(path, kinds)
    samples.read()
    return samples


class FcdSamples:
    """The samples of a file, read as a stream."""

    def __init__(self, path: Path, kinds: frozenset[str]) -> None:
        self.path = path
        self.kinds = kinds
        self.time_s = array("d")
        """The time of each step."""
        self.node, self.step, self.x_m, self.y_m = array("q"), array("q"), array("d"), array("d")
        self.speed_mps = array("d")
        """The speed of each sample in the file; NaN where it is missing."""
        self.number: dict[str, int] = {}
        self.listed = dict.fromkeys(sorted(ALL_KINDS), 0)
        """The number of samples of each kind in the file, also of kinds that are not read."""
        self._geo: bool | None = None
        # The last step of each node, to detect a node that is listed twice in a step.
        self._last: list[int] = []
        self._depth = 0
        self._read_bytes = 0
        self._told_bytes = 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        # Called for everything but tags. It shows that the parser is not stuck in an endless tag.
        self._parser.DefaultHandler = self._on_other
        self._parser.CommentHandler = self._on_comment
        # Nested entities can expand some hundred bytes to gigabytes. FCD files have no DOCTYPE, so it is rejected.
        self._parser.StartDoctypeDeclHandler = self._on_doctype

    def read(self) -> None:
        """Read the whole file."""
        try:
            with decompressed_file(self.path) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    self._read_bytes += len(chunk)
                    self._parser.Parse(chunk, False)
                    if self._read_bytes - self._told_bytes > MAX_TAG_BYTES:
                        raise self._error(
                            f"a tag of more than {MAX_TAG_BYTES} bytes; expected the short tags of an FCD file"
                        )
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            text = expat.errors.messages[error.code]
            cut = " (a file cut in the middle?)" if text in _ENDS else ""
            raise UserError(f"{self.path}:{error.lineno}: {text}; expected an FCD file of SUMO{cut}") from None
        if not self.number:
            others = " and ".join(f"{count} samples of {kind}s" for kind, count in self.listed.items() if count)
            if others:
                raise UserError(f"{self.path}: has {others} and no vehicle: set persons = true to take them for nodes")
            kinds = " or ".join(sorted(self.kinds))
            raise UserError(
                f'{self.path}: no nodes; expected <timestep time="..."> with <{kinds} id="..." x="..." y="...">'
            )

    def recorded(self) -> RecordedMovement:
        """Return all nodes. A vehicle is named by its id, a person or container by its kind and id."""
        names = [name.removeprefix("vehicle ") for name in self.number]
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            raise UserError(f"{self.path}: a vehicle and another node would both be named {again[:40]!r}; rename one")
        moving = self.trajectories(len(names), self.time_s[-1] - self.time_s[0])
        return RecordedMovement(names, moving, sum(self.listed[kind] for kind in self.kinds), len(self.node))

    def waypoints(self) -> Waypoints:
        """Return every sample, also isolated ones. Samples of consecutive steps have the same track."""
        node, steps = np.array(self.node, dtype=np.int64), np.array(self.step, dtype=np.int64)
        order = np.lexsort((steps, node))
        apart = (np.diff(node[order]) != 0) | (np.diff(steps[order]) != 1)
        track = np.cumsum(np.append(0, apart))[: len(order)]
        time_s = (np.array(self.time_s) - self.time_s[0])[steps[order]]
        return Waypoints(node[order], track, time_s, np.array(self.x_m)[order], np.array(self.y_m)[order])

    def in_degrees(self) -> bool | None:
        """Whether x and y are degrees, by the file's `geo` attribute or by its speeds; None if neither decides."""
        x, y = np.array(self.x_m), np.array(self.y_m)
        if self._geo is not None:
            return self._geo
        if bool((np.abs(x) > 180).any()) or bool((np.abs(y) > 90).any()):
            return False
        node, steps, speed = np.array(self.node), np.array(self.step), np.array(self.speed_mps)
        order = np.lexsort((steps, node))
        follows = (np.diff(node[order]) == 0) & (np.diff(steps[order]) == 1)
        lasting_s = np.diff(np.array(self.time_s)[steps[order]])
        told_m = np.fmax(speed[order][1:], speed[order][:-1]) * lasting_s
        known = follows & np.isfinite(told_m)
        length = float(np.hypot(np.diff(x[order]), np.diff(y[order]))[known].sum())
        expected_m = float(told_m[known].sum())
        if expected_m > 0 and length >= _METERS_FROM * expected_m:
            return False
        if expected_m > 0 and length <= _DEGREES_UP_TO * expected_m:
            return True
        fine = any(bool((np.round(one, _DEGREE_DIGITS) != one).any()) for one in (x, y))
        return None if fine else False

    def trajectories(self, nodes: int, duration_s: float) -> Trajectories:
        """Return the movement of the first nodes, in straight lines from step to step."""
        node, steps = np.array(self.node, dtype=np.int64), np.array(self.step, dtype=np.int64)
        time_s = np.array(self.time_s)[steps] - self.time_s[0]
        return join_samples(nodes, duration_s, node, time_s, np.array(self.x_m), np.array(self.y_m), steps)

    def _error(self, what: str) -> UserError:
        return UserError(f"{self.path}:{self._parser.CurrentLineNumber}: {what}")

    def _on_doctype(self, *_: object) -> None:
        raise self._error("has a document type (DOCTYPE), which no FCD file has; expected <fcd-export>")

    def _on_other(self, _: str) -> None:
        self._told_bytes = self._read_bytes

    def _on_comment(self, text: str) -> None:
        self._told_bytes = self._read_bytes
        if found := _GEO.search(text):
            self._geo = found[1].lower() in _TRUE

    def _on_end(self, _: str) -> None:
        self._told_bytes = self._read_bytes
        self._depth -= 1

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        self._told_bytes = self._read_bytes
        self._depth += 1
        if self._depth > 8:
            raise self._error(f"<{tag[:40]}> within eight others; expected <timestep> and <vehicle>")
        if self._depth >= 3:
            # The element of a person in a vehicle may be nested in that of the vehicle.
            if tag in ALL_KINDS:
                self.listed[tag] += 1
            if tag in self.kinds:
                self._on_sample(tag, attributes)
        elif self._depth == 2:
            if tag != "timestep":
                raise self._error(f"<{tag[:40]}> in <{_ROOT}>; expected <timestep>")
            self._on_step(attributes)
        else:
            if tag != _ROOT:
                raise self._error(f"begins with <{tag[:40]}>; expected <{_ROOT}>, the floating car data of SUMO")
            if "geo" in attributes:
                self._geo = attributes["geo"].lower() in _TRUE

    def _on_step(self, attributes: dict[str, str]) -> None:
        time_s = self._parse_number("timestep", attributes, "time", -MAX_TIME_S, MAX_TIME_S)
        if self.time_s and time_s <= self.time_s[-1]:
            again = "comes twice" if time_s == self.time_s[-1] else f"comes after {self.time_s[-1]:g}"
            raise self._error(f"time {time_s:g} {again}; expected steps in the order of time")
        self.time_s.append(time_s)

    def _on_sample(self, tag: str, attributes: dict[str, str]) -> None:
        name = attributes.get("id", "")
        if not 0 < len(name) <= MAX_NAME:
            raise self._error(f"<{tag}> has no id of 1 to {MAX_NAME} letters; expected one")
        step = len(self.time_s) - 1
        # A vehicle and a person may have the same id.
        node = self.number.setdefault(f"{tag} {name}", len(self.number))
        if node == len(self._last):
            self._last.append(-1)
        if self._last[node] == step:
            raise self._error(
                f"{tag} {name[:40]!r} is listed twice in the step of {self.time_s[-1]:g} s; expected it once"
            )
        self._last[node] = step
        if len(self.node) >= MAX_SAMPLES:
            raise self._error(f"more than {MAX_SAMPLES} samples; expected a shorter file, so cut it in time")
        self.x_m.append(self._parse_number(tag, attributes, "x", -MAX_COORDINATE_M, MAX_COORDINATE_M))
        self.y_m.append(self._parse_number(tag, attributes, "y", -MAX_COORDINATE_M, MAX_COORDINATE_M))
        self.node.append(node)
        self.step.append(step)
        self.speed_mps.append(_parse_speed(attributes))

    def _parse_number(self, tag: str, attributes: dict[str, str], name: str, low: float, high: float) -> float:
        text = attributes.get(name)
        if text is None:
            raise self._error(f"<{tag}> has no {name}; expected a number there")
        try:
            value = float(text)
        except ValueError:
            raise self._error(f"{name}={text[:40]!r} of <{tag}> is not a number; expected one") from None
        # NaN fails this comparison too.
        if not low <= value <= high:
            raise self._error(f"{name}={text[:40]!r} of <{tag}> is out of bounds; expected {low:g} to {high:g}")
        return value


def _parse_speed(attributes: dict[str, str]) -> float:
    """Parse the speed of a sample; NaN if it has none."""
    try:
        return abs(float(attributes["speed"]))
    except (KeyError, ValueError):
        return float("nan")


class Sumo(MovementFormat, frozen=True, kw_only=True):
    """Each vehicle is a node, in the order in which they appear. Time counts from the first step in the file.

    A vehicle is present from its first sample to its last, and moves in a straight line from each step to the next. It
    is absent in a step that does not list it. A vehicle with a single sample is never present.
    """

    name: ClassVar[str] = "sumo"
    summary: ClassVar[str] = "play floating car data of SUMO (FCD, XML or gzip); vehicles come and go"

    persons: Annotated[bool, Meta(description="persons and containers are nodes too")] = False
    first: Annotated[
        bool, Meta(description="use the first vehicles of a file with more vehicles than nodes; else it is rejected")
    ] = False
    map: (
        Annotated[
            str, Meta(min_length=1, description="road map for protocols that need one: highway, city, or a .toml file")
        ]
        | None
    ) = None

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with the files of recording and map changed. A map that carrycast includes keeps its name."""
        named = super().with_files(change)
        if self.map is None or not self.map.endswith(".toml"):
            return named
        return msgspec.structs.replace(named, map=change(self.map))

    def on_roads(self) -> bool:
        """Whether the user gave a map: a recording has none."""
        return self.map is not None

    def road_map(self) -> RoadMap | None:
        """Read the map that the user gave."""
        return None if self.map is None else read_map(self.map)

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the file. Ignores `area` and `rng`."""
        samples = self._read()
        self.require_nodes(len(samples.number), nodes)
        if len(samples.number) > nodes and not self.first:
            raise UserError(
                f"{self.file}: the file has {len(samples.number)} vehicles for {nodes} nodes; raise the number of "
                f"nodes, or set first = true to take the first {nodes}"
            )
        return samples.trajectories(nodes, duration_s)

    def recording(self) -> Recording:
        """Return the extent of the file."""
        return super().recording()._replace(first_only=self.first)

    def recorded(self) -> RecordedMovement:
        """Return all nodes of the file. The name of a person or container begins with its kind."""
        return self._read().recorded()

    def extent(self) -> tuple[int, float]:
        """Return the number of nodes in the file, and the time from its first step to its last."""
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
