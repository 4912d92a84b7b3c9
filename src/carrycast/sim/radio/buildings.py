"""Reads building polygons from GeoJSON (RFC 7946) or an extract of OpenStreetMap (XML)."""

import gzip
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast
from xml.etree import ElementTree

from carrycast.errors import UserError
from carrycast.sim.radio.obstacles import Building, Place, Ring

# The polygons of a large city; a country would fill the memory before the run begins.
MAX_CORNERS = 10_000_000
MAX_FILE_BYTES = 1 << 30
# [WGS 84] The lengths of the axes of the ellipsoid.
EQUATOR_M = 6_378_137.0
ECCENTRICITY_2 = 0.00669437999014


def read_buildings(path: Path, origin: Place | None, meters: bool) -> list[Building]:
    """Read the buildings of a file, in meters.

    Coordinates are longitude and latitude, and `origin` is the place of (0, 0); without it, the south-west corner of
    all buildings is there. With `meters` the coordinates of a GeoJSON file are meters already.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: a file of buildings has at most {MAX_FILE_BYTES:,} bytes; extract a smaller area")
        with _open(path) as file:
            head = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n")
        is_xml = head.startswith(b"<")
        with _open(path) as file:
            buildings = _read_osm(file, path) if is_xml else _read_geojson(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file of buildings") from None
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    if not buildings:
        what = "ways with a tag building" if is_xml else "polygons"
        raise UserError(f"{path}: has no buildings; expected {what}")
    if meters:
        if is_xml:
            raise UserError(f"{path}: OpenStreetMap has degrees; leave obstacle_units out")
        return buildings
    return _project(buildings, origin, path)


def _open(path: Path) -> BinaryIO:
    # Decompressed data are bytes, whatever gzip calls its file.
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _read_geojson(file: BinaryIO, path: Path) -> list[Building]:
    try:
        root = json.load(file)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is neither GeoJSON nor XML of OpenStreetMap: {error}") from None
    buildings: list[Building] = []
    corners = 0
    for polygon in _polygons(root):
        building = []
        for ring in polygon if isinstance(polygon, list) else []:
            place = len(buildings)
            building.append(_make_ring(ring, f"{path}: polygon {place}"))
            corners += len(building[-1])
        if corners > MAX_CORNERS:
            raise UserError(f"{path}: has more than {MAX_CORNERS:,} corners; extract a smaller area")
        if building:
            buildings.append(building)
    return buildings


def _polygons(value: object) -> Iterator[object]:
    """The coordinates of all polygons in a GeoJSON object."""
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if kind == "FeatureCollection":
        for feature in _list(value.get("features")):
            yield from _polygons(feature)
    elif kind == "Feature":
        yield from _polygons(value.get("geometry"))
    elif kind == "GeometryCollection":
        for geometry in _list(value.get("geometries")):
            yield from _polygons(geometry)
    elif kind == "Polygon":
        yield value.get("coordinates")
    elif kind == "MultiPolygon":
        yield from _list(value.get("coordinates"))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _make_ring(ring: object, where: str) -> Ring:
    corners: list[Place] = []
    for corner in _list(ring):
        pair = _list(corner)[:2]
        if len(pair) != 2 or not all(isinstance(one, int | float) and math.isfinite(one) for one in pair):
            raise UserError(f"{where}: a corner is two numbers, not {str(corner)[:40]}")
        x, y = (float(one) for one in pair if isinstance(one, int | float))
        corners.append((x, y))
    if len(corners) > 1 and corners[0] == corners[-1]:
        corners.pop()
    if len(corners) < 3:
        raise UserError(f"{where}: a ring has at least three different corners")
    return corners


def _read_osm(file: BinaryIO, path: Path) -> list[Building]:
    """The closed ways with a tag `building`, and the outer and inner ways of relations with one."""
    nodes: dict[str, Place] = {}
    ways: dict[str, list[str]] = {}
    tagged: list[str] = []
    relations: list[tuple[list[str], list[str]]] = []
    try:
        # Nodes come before ways and ways before relations, as every extract has them.
        for _, element in ElementTree.iterparse(file):
            if element.tag == "node":
                nodes[element.get("id", "")] = (float(element.get("lon", "nan")), float(element.get("lat", "nan")))
            elif element.tag == "way":
                ways[element.get("id", "")] = [one.get("ref", "") for one in element.iter("nd")]
                if _is_building(element):
                    tagged.append(element.get("id", ""))
            elif element.tag == "relation" and _is_building(element):
                members = [one for one in element.iter("member") if one.get("type") == "way"]
                outer = [one.get("ref", "") for one in members if one.get("role") != "inner"]
                relations.append((outer, [one.get("ref", "") for one in members if one.get("role") == "inner"]))
            if element.tag in ("node", "way", "relation"):
                element.clear()
            if len(nodes) > MAX_CORNERS:
                raise UserError(f"{path}: has more than {MAX_CORNERS:,} nodes; extract a smaller area")
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(f"{path}: is not OpenStreetMap XML: {error}") from None

    def rings(ids: list[str]) -> Iterator[Ring]:
        for id in ids:
            # A way that the edge of the extract cuts is not closed, or has corners outside.
            corners = [nodes[node] for node in ways.get(id, []) if node in nodes]
            if len(corners) > 3 and corners[0] == corners[-1] and all(map(math.isfinite, sum(corners, ()))):
                yield corners[:-1]

    buildings: list[Building] = [[ring] for ring in rings(tagged)]
    for outer, inner in relations:
        courtyards = list(rings(inner))
        for place, ring in enumerate(rings(outer)):
            buildings.append([ring, *courtyards] if place == 0 else [ring])
    return buildings


def _is_building(element: ElementTree.Element) -> bool:
    return any(tag.get("k") == "building" and tag.get("v") != "no" for tag in element.iter("tag"))


def _project(buildings: list[Building], origin: Place | None, path: Path) -> list[Building]:
    """Degrees to meters, by the plane that touches the ellipsoid at the origin.

    Within 20 km of the origin the error is below 20 m at a latitude of 60 degrees, and much less nearer to it.
    """
    corners = [corner for building in buildings for ring in building for corner in ring]
    wrong = next((one for one in corners if not (-180 <= one[0] <= 180 and -90 < one[1] < 90)), None)
    if wrong is not None:
        raise UserError(
            f"{path}: {wrong[0]:g}, {wrong[1]:g} is no longitude and latitude; for meters set obstacle_units = 'meters'"
        )
    west, south = origin or (min(one[0] for one in corners), min(one[1] for one in corners))
    to_meters = projection(west, south)
    return [[[to_meters(corner) for corner in ring] for ring in building] for building in buildings]


def projection(longitude: float, latitude: float) -> Callable[[Place], Place]:
    """The plane with (0, 0) at a place: x to the east and y to the north, in meters."""
    sine = math.sin(math.radians(latitude))
    normal = 1 - ECCENTRICITY_2 * sine * sine
    # The radii of curvature along the meridian and along the parallel.
    north_m = math.radians(EQUATOR_M * (1 - ECCENTRICITY_2) / normal**1.5)
    east_m = math.radians(EQUATOR_M / math.sqrt(normal)) * math.cos(math.radians(latitude))
    return lambda place: ((place[0] - longitude) * east_m, (place[1] - latitude) * north_m)
