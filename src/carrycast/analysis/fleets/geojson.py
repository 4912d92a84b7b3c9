"""GeoJSON (RFC 7946): points with a time each, or lines with lists of times; a collection, or one feature per line."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from carrycast.analysis.fleets.columns import COLUMN_NAMES, plain_name, refuse_unnamed
from carrycast.analysis.fleets.points import PositionFormat, ReadOptions, TrackPoint
from carrycast.analysis.fleets.text import not_text_error
from carrycast.errors import UserError
from carrycast.sim.mobility import decompressed_file

# A collection is one JSON value, which is decoded in memory and takes about ten times its size.
MAX_COLLECTION_BYTES = 256 << 20
_TIMES = ("coordTimes", "times", "coordinateProperties")
_BOM = b"\xef\xbb\xbf"
_LEVELS = {"Point": 0, "MultiPoint": 1, "LineString": 1, "MultiLineString": 2}
"""How deeply the positions of a geometry are nested in lists."""
_MAX_DEPTH = 8
_SAMPLE = 1000


class GeoJsonFile(PositionFormat):
    """A GeoJSON file: the points of all its features. A feature without a position counts as one row."""

    name: ClassVar[str] = "geojson"
    summary: ClassVar[str] = "GeoJSON: a collection or a feature a line, points or lines with times"

    def __init__(self, path: Path, options: ReadOptions | None = None, name: str | None = None) -> None:
        super().__init__(path, options, name)
        self._chosen = self.options.columns
        self._time_unit = self.options.time_unit
        self._single = self.options.single
        self._stem = self.file_name.partition(".")[0]
        self._placed = False
        """Whether a feature with a point or a line was read."""
        self._unnamed: list[Mapping[str, Any]] = []
        """Properties of features that name no node."""

    @classmethod
    def recognizes(cls, start: str) -> bool:
        """Whether the text is a JSON object with a member `type`."""
        return start.lstrip("\ufeff \t\r\n").startswith("{") and '"type"' in start

    def points(self) -> Iterator[TrackPoint]:
        """Read the points of all features. A feature's node is its property `node`, `id`, `name` ..., or its own id."""
        for feature in _read_features(self.path):
            yield from self._read_feature(feature)
            if len(self._unnamed) == _SAMPLE:
                self._refuse_unnamed()
        self._refuse_unnamed()
        if not self._placed:
            raise UserError(
                f"{self.path}: no points; expected features of points or lines with times in their properties"
            )

    def _read_feature(self, feature: object) -> Iterator[TrackPoint]:
        """Read the points of a feature; a feature without any is one unreadable point."""
        made: list[TrackPoint] = []
        parts: list[tuple[str, Any]] = []
        try:
            whole: Any = feature
            # A geometry may stand without a feature around it.
            bare = whole.get("type") in (*_LEVELS, "GeometryCollection")
            properties = (None if bare else whole.get("properties")) or {}
            parts = list(_iterate_geometries(whole if bare else whole.get("geometry") or {}))
            self._placed |= any(kind in _LEVELS for kind, _ in parts)
            node = self._find_node(whole, properties)
            times = self._find_times(properties, parts)
            for (kind, places), part_times in zip(parts, times, strict=True):
                made += self._read_geometry(node, kind, places, part_times)
        except (AttributeError, TypeError, IndexError, KeyError, ValueError):
            count = sum(_count_positions(places, _LEVELS.get(kind, 0)) for kind, places in parts) or 1
            made = [TrackPoint.unreadable("", str(feature)[:200])] * count
        if not made:
            made = [TrackPoint.unreadable("", str(feature)[:200])]
        self.rows += sum(_count_positions(places, _LEVELS.get(kind, 0)) for kind, places in parts) or 1
        yield from made

    def _find_node(self, feature: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
        column = self._chosen.get("node")
        if column is not None:
            return str(properties[column])
        lower = {plain_name(str(name)): value for name, value in properties.items()}
        named = [lower[name] for name in COLUMN_NAMES["node"] if lower.get(name) is not None]
        if named or feature.get("id") is not None:
            return str(named[0] if named else feature["id"])
        if len(self._unnamed) < _SAMPLE:
            self._unnamed.append(properties)
        return self._stem

    def _refuse_unnamed(self) -> None:
        """Reject several features that name no node but have a property that may: they must not become one node."""
        found, self._unnamed = self._unnamed, []
        if self._single or len(found) < 2:
            return
        keys = dict.fromkeys(key for one in found for key in one)
        known = {
            name for meaning in ("time", "date") for name in (*COLUMN_NAMES[meaning], self._chosen.get(meaning, ""))
        }
        columns = {
            key: [one.get(key) for one in found] for key in keys if plain_name(key) not in known and key not in _TIMES
        }
        refuse_unnamed(columns, {}, str(self.path))

    def _find_times(self, properties: Mapping[str, Any], parts: Sequence[tuple[str, Any]]) -> list[Any]:
        """Find the time, or the times, of each geometry of a feature."""
        lower = {plain_name(str(name)): value for name, value in properties.items()}
        column = self._chosen.get("time")
        names = (plain_name(column),) if column is not None else COLUMN_NAMES["time"]
        time = next((lower[name] for name in names if lower.get(name) is not None), None)
        times = next((properties[name] for name in _TIMES if properties.get(name) is not None), None)
        if isinstance(times, dict):
            times = times.get("times")
        lists = [kind for kind, _ in parts if _LEVELS.get(kind, 0) > 0]
        if times is None:
            # Some programs write the times of a line into the property for a single time.
            times = time if isinstance(time, list) else None
        each = iter(times if len(lists) > 1 and isinstance(times, list) and len(times) == len(lists) else ())
        return [time if _LEVELS.get(kind, 0) == 0 else next(each, times) for kind, _ in parts]

    def _read_geometry(self, node: str, kind: str, places: Any, times: Any) -> list[TrackPoint]:
        level = _LEVELS.get(kind)
        if level is None:
            return [TrackPoint.unreadable(node, f"{kind}: no point or line with times: {str(places)[:150]}")]
        flat = list(_flatten(places, level))
        each_time: list[Any]
        if level == 0:
            each_time = [times]
        else:
            each_time = [None] * len(flat) if times is None else _flatten_times(times)
            if len(each_time) != len(flat):
                text = f"{kind} of {len(flat)} places with {len(each_time)} times"
                return [TrackPoint.unreadable(node, f"{text}: {place}"[:200]) for place in flat]
        return [
            TrackPoint.of(node, time, place[0], place[1], self._time_unit, self.options.time_zone)
            if isinstance(place, list) and len(place) >= 2
            else TrackPoint.unreadable(node, f"{time} {place}"[:200])
            for place, time in zip(flat, each_time, strict=True)
        ]


def _iterate_geometries(geometry: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The simple geometries in a geometry or a collection of geometries."""
    if geometry.get("type") == "GeometryCollection" and depth < _MAX_DEPTH:
        for one in geometry["geometries"]:
            yield from _iterate_geometries(one, depth + 1)
    elif geometry:
        yield str(geometry.get("type")), geometry.get("coordinates") or []


def _flatten(places: Any, level: int) -> Iterator[Any]:
    if level == 0:
        yield places
        return
    if not isinstance(places, list):
        raise TypeError("no list of places")
    for one in places:
        yield from _flatten(one, level - 1)


def _flatten_times(times: Any) -> list[Any]:
    """Flatten times that are one list, or a list for each line."""
    if not isinstance(times, list):
        return [times]
    return [time for one in times for time in (one if isinstance(one, list) else [one])]


def _count_positions(places: Any, level: int) -> int:
    """Count positions by the nesting of lists, without reading them."""
    if level == 0:
        return 1
    return sum(_count_positions(one, level - 1) for one in places) if isinstance(places, list) else 1


def _read_features(path: Path) -> Iterator[object]:
    """Read the features of a collection, or of a file with one feature per line."""
    number = 0
    try:
        with decompressed_file(path) as file:
            first = file.readline(MAX_COLLECTION_BYTES + 1)
            line: bytes = first.strip().removeprefix(_BOM)
            try:
                value = msgspec.json.decode(line)
                whole = value.get("type") == "FeatureCollection"
            except msgspec.DecodeError:
                # A JSON value of several lines is a collection.
                whole = True
            if whole:
                text = first + file.read(MAX_COLLECTION_BYTES + 1 - len(first))
                if len(text) > MAX_COLLECTION_BYTES:
                    raise UserError(f"{path}: a collection of more than 256 MB; write it with one feature a line")
                yield from _feature_list(msgspec.json.decode(text.removeprefix(_BOM)), path)
                return
            while line:
                number += 1
                if line.strip(b"\x1e \r\n"):
                    yield from _feature_list(msgspec.json.decode(line.strip(b"\x1e \r\n")), path)
                line = file.readline(MAX_COLLECTION_BYTES)
    except UnicodeDecodeError:
        raise UserError(not_text_error(path, "UTF-8")) from None
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
        where = f"{path}:{number}" if number else str(path)
        raise UserError(f"{where}: no GeoJSON, or cut off: {error}; expected a FeatureCollection") from None


def _feature_list(value: Any, path: Path) -> Iterator[object]:
    """The features of a collection; any other value is taken as one feature."""
    if value.get("type") != "FeatureCollection":
        yield value
        return
    crs = str(((value.get("crs") or {}).get("properties") or {}).get("name", "CRS84"))
    if not crs.endswith(("CRS84", ":4326")):
        raise UserError(
            f"{path}: its coordinates are on the map {crs}, but GeoJSON has degrees (RFC 7946): convert it, as with "
            "`ogr2ogr -t_srs EPSG:4326`"
        )
    yield from value["features"]
