"""Reading buildings from GeoJSON and OpenStreetMap."""

import gzip
import json
from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.radio.buildings import projection, read_buildings

SQUARE = [[[10.0, 50.0], [10.001, 50.0], [10.001, 50.001], [10.0, 50.001], [10.0, 50.0]]]
OSM = """<?xml version="1.0"?>
<osm version="0.6">
  <node id="1" lat="50.0" lon="10.0"/><node id="2" lat="50.0" lon="10.001"/>
  <node id="3" lat="50.001" lon="10.001"/><node id="4" lat="50.001" lon="10.0"/>
  <node id="5" lat="50.0004" lon="10.0004"/><node id="6" lat="50.0004" lon="10.0006"/>
  <node id="7" lat="50.0006" lon="10.0005"/>
  <way id="1"><nd ref="1"/><nd ref="2"/><nd ref="3"/><nd ref="4"/><nd ref="1"/><tag k="building" v="yes"/></way>
  <way id="2"><nd ref="1"/><nd ref="2"/><nd ref="3"/><nd ref="1"/><tag k="landuse" v="grass"/></way>
  <way id="3"><nd ref="5"/><nd ref="6"/><nd ref="7"/><nd ref="5"/></way>
  <way id="4"><nd ref="1"/><nd ref="2"/><nd ref="99"/><nd ref="1"/><tag k="building" v="no"/></way>
  <relation id="1"><member type="way" ref="2" role="outer"/><member type="way" ref="3" role="inner"/>
    <tag k="building" v="yes"/></relation>
</osm>
"""


def write(folder: Path, value: object) -> Path:
    path = folder / "some.geojson"
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def test_degrees_become_meters_from_the_south_west_corner(tmp_path: Path) -> None:
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": SQUARE}}
    ((ring,),) = read_buildings(write(tmp_path, {"type": "FeatureCollection", "features": [feature]}), None, False)
    assert ring[0] == (0.0, 0.0)
    # At 50 degrees a thousandth of a degree is 71.70 m along the parallel and 111.23 m along the meridian.
    assert ring[2] == pytest.approx((71.70, 111.23), abs=0.01)


def test_the_origin_moves_all_buildings() -> None:
    here = projection(10.0, 50.0)
    assert here((10.0, 50.0)) == (0.0, 0.0)
    assert here((9.99, 50.0))[0] == pytest.approx(-717.0, abs=0.1)


def test_meters_are_taken_as_they_are(tmp_path: Path) -> None:
    polygons = {"type": "MultiPolygon", "coordinates": [[[[0, 0], [5, 0], [5, 5]]], [[[9, 9], [12, 9], [12, 12]]]]}
    found = read_buildings(write(tmp_path, polygons), None, True)
    assert [building[0][0] for building in found] == [(0.0, 0.0), (9.0, 9.0)]


def test_buildings_of_openstreetmap_with_courtyards(tmp_path: Path) -> None:
    path = tmp_path / "town.osm.gz"
    path.write_bytes(gzip.compress(OSM.encode()))
    found = read_buildings(path, (10.0, 50.0), False)
    # The tagged way, and the relation with its courtyard; grass and a way that is no building do not count.
    assert [len(building) for building in found] == [1, 2]
    assert [len(building[0]) for building in found] == [4, 3]


@pytest.mark.parametrize(
    ("content", "meters", "says"),
    [
        ("no json", False, "is neither GeoJSON nor XML"),
        ({"type": "FeatureCollection", "features": []}, False, "has no buildings"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}, True, "at least three different corners"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, "a"], [2, 0]]]}, True, "a corner is two numbers"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [0, 500]]]}, False, "obstacle_units = 'meters'"),
        ("<osm><way", False, "is not OpenStreetMap XML"),
        ("<osm></osm>", False, "ways with a tag building"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: object, meters: bool, says: str) -> None:
    with pytest.raises(UserError) as raised:
        read_buildings(write(tmp_path, content), None, meters)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file of buildings"):
        read_buildings(tmp_path / "none.geojson", None, False)
