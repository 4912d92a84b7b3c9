"""GeoJSON: points with a time each, or lines with a list of times; a collection, or one feature a line."""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from driftcast.errors import UserError
from driftcast.mobility.trace_file import open_plain
from driftcast.pipeline.fleets.columns import MEANT
from driftcast.pipeline.fleets.points import Point

# A collection is one JSON value and must be in memory as a whole, at about ten times its size.
MAX_COLLECTION_BYTES = 256 << 20
_TIMES = ("coordTimes", "times", "coordinateProperties")


def features(path: Path) -> Iterator[Point]:
    """The points of all features. A feature's node is its property `node`, `id`, `name` ..., or its own id."""
    found = 0
    for feature in _features(path):
        for point in _points(feature, path):
            found += 1
            yield point
    if not found:
        raise UserError(f"{path}: no points; expected features of Point or LineString with times in their properties")


def _features(path: Path) -> Iterator[Mapping[str, Any]]:
    """Each feature of a collection, or of the lines of a file."""
    number = 0
    try:
        with open_plain(path) as file:
            first = file.readline(MAX_COLLECTION_BYTES + 1)
            line: bytes = first.strip().removeprefix(b"\xef\xbb\xbf")
            try:
                value = msgspec.json.decode(line)
                whole = value.get("type") == "FeatureCollection"
            except msgspec.DecodeError:
                # A value that goes on over lines is a collection.
                whole = True
            if whole:
                text = first + file.read(MAX_COLLECTION_BYTES + 1 - len(first))
                if len(text) > MAX_COLLECTION_BYTES:
                    raise UserError(f"{path}: a collection of more than 256 MB; write it with one feature a line")
                value = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
                yield from value["features"] if value.get("type") == "FeatureCollection" else [value]
                return
            while line:
                number += 1
                if line.strip(b"\x1e \r\n"):
                    yield msgspec.json.decode(line.strip(b"\x1e \r\n"))
                line = file.readline(MAX_COLLECTION_BYTES)
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
        where = f"{path}:{number}" if number else str(path)
        raise UserError(f"{where}: no GeoJSON, or cut off: {error}; expected a FeatureCollection") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: the gzip file is cut or broken; compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _points(feature: Mapping[str, Any], path: Path) -> Iterator[Point]:
    try:
        properties, geometry = feature.get("properties") or {}, feature.get("geometry") or {}
        kind, places = geometry.get("type"), geometry.get("coordinates") or []
        times: Any
        lower = {str(name).lower(): value for name, value in properties.items()}
        named = [lower[name] for name in MEANT["node"] if lower.get(name) is not None]
        node = str(named[0] if named else feature.get("id", path.name.partition(".")[0]))
        if kind == "Point":
            times = [next((lower[name] for name in MEANT["time"] if lower.get(name) is not None), None)]
            places = [places]
        elif kind == "LineString":
            times = next((properties[name] for name in _TIMES if name in properties), None)
            if isinstance(times, dict):
                times = times.get("times")
        else:
            return
        for place, time in zip(places, times or [None] * len(places), strict=True):
            yield Point.of(node, time, place[0], place[1])
    except (AttributeError, TypeError, IndexError, KeyError, ValueError):
        yield Point.of("", None, None, str(feature)[:200])
