"""Formats are detected by content, and unreadable files give an error of one line; nothing here needs Spark."""

import gzip
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.analysis.fleets.columns import choose_columns, parse_columns, require_positions
from carrycast.analysis.fleets.formats import FILE_FORMATS, FORMATS, format_named, format_of
from carrycast.analysis.fleets.geojson import GeoJsonFile
from carrycast.analysis.fleets.gpx import GpxFile
from carrycast.analysis.fleets.inputs import FleetFile, RowCount
from carrycast.analysis.fleets.points import PositionFormat, ReadOptions, TrackPoint, parse_clock
from carrycast.analysis.fleets.staging import RowStager
from carrycast.analysis.fleets.tables import natural_order
from carrycast.errors import UserError
from tests.cli.movements import CONNECTIONS, NS2, ONE

GPX = """<?xml version="1.0"?><gpx xmlns="http://www.topografix.com/GPX/1/1"><metadata><name>all</name></metadata>
<trk><name>tram 3</name><trkseg><trkpt lat="47.1" lon="8.2"><ele>4</ele><time>2026-05-04T06:00:00Z</time></trkpt>
<trkpt lat="47.2" lon="8.3"><time>2026-05-04T06:00:10+00:00</time></trkpt></trkseg></trk>
<trk><trkseg><trkpt lat="x" lon="8"><time>2026-05-04T06:00:00Z</time></trkpt></trkseg></trk></gpx>"""
FCD = '<?xml version="1.0"?>\n<fcd-export><timestep time="0.0"><vehicle id="a" x="1" y="2"/></timestep></fcd-export>'
POINT = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [8.2, 47.1]}}
LINE = {"type": "LineString", "coordinates": [[8.2, 47.1], [8.3, 47.2]]}
FEATURES = [
    {**POINT, "properties": {"bus": 7, "timestamp": 1777874400000}},
    {"type": "Feature", "id": "ferry", "geometry": LINE, "properties": {"coordTimes": [5, "1970-01-01T00:00:06"]}},
    {**POINT, "properties": {"bus": 7}},
]
COLLECTION = json.dumps({"type": "FeatureCollection", "features": FEATURES}, indent=1)
LOOKS = {
    "sumo": FCD,
    "gpx": GPX,
    "geojson": COLLECTION,
    "ns2": NS2,
    "one-connections": CONNECTIONS,
    "one": ONE,
    "csv-contacts": "node1;node2;start;end\n1;2;3;4\n",
    "csv": "bus,time,lat,lon\n1,2,3,4\n",
    "bonnmotion": "0.0 1.0 2.0 10.0 3.0 4.0\n0.0 5.0 6.0\n",
    "haggle": "1 2 100 220 1 0\n1 3 150 150 1 0\n",
}


@pytest.mark.parametrize("name", list(LOOKS))
@pytest.mark.parametrize("packed", [False, True])
def test_a_format_is_known_by_its_look(tmp_path: Path, name: str, packed: bool) -> None:
    content = LOOKS[name].encode()
    (tmp_path / "file").write_bytes(gzip.compress(content) if packed else content)
    assert format_of(tmp_path / "file").name == name


def test_parquet_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "file")
    assert format_of(tmp_path / "file").name == "parquet"


@pytest.mark.parametrize("content", [b"hello\nworld\n", b"\x00\x01\x02,\x03\n", b"<html></html>", b"   \n"])
def test_a_file_of_no_known_format_is_refused_with_the_list(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError) as refused:
        format_of(tmp_path / "file")
    assert all(name in str(refused.value) for name in FORMATS)
    with pytest.raises(UserError, match="bonnmotion"):
        format_named("shapefile")


def test_tracks_of_gpx_are_nodes_and_keep_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "day.gpx").write_text(GPX)
    one, two, bad = GpxFile(tmp_path / "day.gpx").points()
    assert one == TrackPoint("tram 3", 1777874400.0, 8.2, 47.1)
    assert two.clock_s == 1777874410.0
    assert (bad.node, bad.text) == ("day-2", "2026-05-04T06:00:00Z 8 x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GPX[:-30], "is it cut off"),
        ("<gpx></gpx>", "no points"),
        ('<!DOCTYPE gpx [<!ENTITY a "b">]><gpx></gpx>', "document type"),
    ],
)
def test_bad_gpx_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "day.gpx").write_text(text)
    with pytest.raises(UserError, match=told):
        list(GpxFile(tmp_path / "day.gpx").points())


@pytest.mark.parametrize("lines", [False, True])
def test_geojson_is_read_as_a_collection_and_by_lines(tmp_path: Path, lines: bool) -> None:
    text = "\n".join(json.dumps(feature) for feature in FEATURES) if lines else COLLECTION
    (tmp_path / "ships.geojson").write_text(text + "\n")
    bus, *ferry, bad = GeoJsonFile(tmp_path / "ships.geojson").points()
    assert bus == TrackPoint("7", 1777874400.0, 8.2, 47.1)
    assert ferry == [TrackPoint("ferry", 5.0, 8.2, 47.1), TrackPoint("ferry", 6.0, 8.3, 47.2)]
    assert bad.text is not None


@pytest.mark.parametrize("text", [COLLECTION[:-20], "[1, 2]", '{"type": "FeatureCollection"}', '{"type": "Feature"}'])
def test_bad_geojson_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ships.geojson").write_text(text)
    with pytest.raises(UserError, match=r"ships.geojson"):
        list(GeoJsonFile(tmp_path / "ships.geojson").points())


def stage_file(path: Path, name: str, to: Path, **source: object) -> RowCount:
    return RowStager(msgspec.convert(source, ReadOptions)).stage(FleetFile(path, FORMATS[name], path), to)


def test_files_are_staged_as_raw_rows(tmp_path: Path) -> None:
    (tmp_path / "day.gpx").write_text(GPX)
    assert stage_file(tmp_path / "day.gpx", "gpx", tmp_path / "out.parquet") == RowCount(3, 3)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["node"], row["place"], row["text"] is None) for row in rows] == [
        ("tram 3", 0, True), ("tram 3", 1, True), ("day-2", 2, False)
    ]  # fmt: skip
    (tmp_path / "fleet.ns").write_text(NS2)
    assert stage_file(tmp_path / "fleet.ns", "ns2", tmp_path / "ns.parquet").records == 8
    rows = pq.read_table(tmp_path / "ns.parquet").to_pylist()
    assert [(row["node"], row["clock_s"], row["x_m"]) for row in rows if row["node"] == "0"] == [
        ("0", 0.0, 0.0), ("0", 20.0, 200.0), ("0", 40.0, 200.0)
    ]  # fmt: skip
    assert {row["stated"] for row in rows} == {0, 1, 2}


def test_columns_are_found_by_common_names_or_as_said() -> None:
    header = ["Vehicle ID", "at", "LON", "Lat"]
    found = choose_columns(header, {"time": "at"}, "a.csv")
    assert found == {"node": "Vehicle ID", "time": "at", "longitude": "LON", "latitude": "Lat"}
    with pytest.raises(UserError, match="has no column 'when'"):
        choose_columns(header, {"time": "when"}, "a.csv")
    with pytest.raises(UserError, match="needs columns for time"):
        require_positions(choose_columns(header, {}, "a.csv"), header, "a.csv")
    assert parse_columns("node=bus, time=at") == {"node": "bus", "time": "at"}
    with pytest.raises(UserError, match="node=bus"):
        parse_columns("bus")


def test_times_are_numbers_or_dates() -> None:
    assert (
        parse_clock("1777874400") == parse_clock(1777874400000) == parse_clock("2026-05-04T06:00:00Z") == 1777874400.0
    )
    assert parse_clock("2026-05-04 08:00:00+02:00") == 1777874400.0
    for bad in ("inf", "nan", "soon", None):
        with pytest.raises(ValueError, match=r".*"):
            parse_clock(bad)


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["bus 10", "bus 9", "bus", "9", "10", "0" + "1" * 5000]
    assert sorted(names, key=natural_order) == ["9", "10", "0" + "1" * 5000, "bus", "bus 9", "bus 10"]


class Beacons(PositionFormat):
    """A format as a plug-in would add it."""

    name = "beacons"
    summary = "beacons of buoys"

    @classmethod
    def recognizes(cls, start: str) -> bool:
        return start.startswith("BEACONS")

    def points(self) -> Iterator[TrackPoint]:
        for line in self.path.read_text().splitlines()[1:]:
            self.rows += 1
            yield TrackPoint.of(*line.split())


def test_a_format_of_an_installed_package_is_detected_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILE_FORMATS, "beacons", f"{__name__}:Beacons")
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or types.SimpleNamespace(Beacons=Beacons))
    (tmp_path / "log").write_text("BEACONS 1\nbuoy 1777874400 8.5 47.4\nbuoy soon 8.5 47.4\n")
    found = format_of(tmp_path / "log")
    assert (found.name, found.kind) == ("beacons", "positions")
    assert format_named("beacons").summary == "beacons of buoys"
    counted = RowStager(ReadOptions()).stage(FleetFile(tmp_path / "log", found, tmp_path / "log"), tmp_path / "rows")
    assert (counted.records, counted.rows) == (2, 2)
    assert [row["text"] is None for row in pq.read_table(tmp_path / "rows").to_pylist()] == [True, False]
