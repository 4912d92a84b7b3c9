"""Ambiguous files are rejected with the options that decide; nothing here needs Spark."""

import bz2
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.analysis.fleets.columns import refuse_ambiguous, refuse_times, refuse_unnamed
from carrycast.analysis.fleets.formats import FORMATS, format_of
from carrycast.analysis.fleets.geojson import GeoJsonFile
from carrycast.analysis.fleets.gpx import GpxFile
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.inputs import FleetFile, RowCount
from carrycast.analysis.fleets.points import ReadOptions, TrackPoint, parse_clock
from carrycast.analysis.fleets.staging import RowStager
from carrycast.analysis.fleets.text import SNIFFED_BYTES, copy_text
from carrycast.errors import UserError
from carrycast.sim.mobility.bonnmotion import BonnMotion
from carrycast.sim.mobility.compression import open_decompressed
from carrycast.sim.mobility.sumo import Sumo, read_fcd
from carrycast.sim.scenario.movement import read_contact_plan


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def stage(path: Path, name: str, **source: object) -> tuple[RowCount, list[dict[str, object]]]:
    to = path.with_name("staged.parquet")
    counted = RowStager(msgspec.convert(source, ReadOptions)).stage(FleetFile(path, FORMATS[name], path), to)
    rows: list[dict[str, object]] = pq.read_table(to).to_pylist()
    return counted, rows


WALKER = "".join(f"{second}.0 {1.2 * second:.2f} 5.00\n" for second in range(120))
BADGES = "31220\t1558\t1567\n31220\t1560\t1570\n31240\t1558\t1567\n31300\t1632\t1673\n"


@pytest.mark.parametrize("text", [WALKER, BADGES, BADGES.replace("\t", " "), "0 10 20\n0 30 40\n"])
def test_three_columns_of_numbers_may_be_anything(tmp_path: Path, text: str) -> None:
    path = write_file(tmp_path / "what.txt", text)
    with pytest.raises(UserError, match=r"--format bonnmotion.*--header time,x,y") as refused:
        format_of(path)
    assert ("--format sociopatterns" in str(refused.value)) == (text != WALKER)
    assert format_of(path, header=("time", "x", "y")).name == "csv"
    # A file with the mark of another format is not a table, even with --header.
    assert format_of(write_file(tmp_path / "day.gpx", "<gpx></gpx>"), header=("time", "x", "y")).name == "gpx"


def test_rows_of_an_id_a_time_and_a_place_are_not_taken_for_contacts(tmp_path: Path) -> None:
    gps = "".join(f"7 {1777896000 + 10 * k} 8.5{k} 47.4{k}\n" for k in range(5))
    meters = "".join(f"7 {10 * k} {100 + k} {900 + k}\n" for k in range(5))
    for text in (gps, meters):
        with pytest.raises(UserError, match=r"--format haggle.*--header id,time,lon,lat"):
            format_of(write_file(tmp_path / "what.txt", text))
    # Two rows with the same pair are contacts.
    assert format_of(write_file(tmp_path / "list.txt", "1 2 100 220\n1 3 300 400\n1 2 500 600\n")).name == "haggle"


def test_six_whole_numbers_may_be_contacts_or_waypoints(tmp_path: Path) -> None:
    path = write_file(tmp_path / "what.txt", "0 1 2 10 3 4\n0 5 6 20 7 8\n")
    with pytest.raises(UserError, match=r"--format haggle.*--format bonnmotion"):
        format_of(path)
    # Lines of different lengths are waypoints, and so are decimal positions that begin at time 0.
    assert format_of(write_file(path, "0 1 2 10 3 4\n0 5 6\n")).name == "bonnmotion"
    assert format_of(write_file(path, "0.0 1.5 2.0 10.0 3.0 4.0\n0.0 5.5 6.0 20.0 7.0 8.0\n")).name == "bonnmotion"


def test_a_node_with_a_very_long_line_is_known_too(tmp_path: Path) -> None:
    line = " ".join(f"{float(k)} {k}.25 {k}.5" for k in range(20_000))
    assert format_of(write_file(tmp_path / "long.movements", f"{line}\n{line}\n")).name == "bonnmotion"


def test_the_track_of_one_node_is_no_movement_of_bonnmotion(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the track of one node, or contacts"):
        BonnMotion(file=str(write_file(tmp_path / "walker.txt", WALKER))).extent()
    # Static nodes with a line each are movement of BonnMotion.
    assert BonnMotion(file=str(write_file(tmp_path / "a", "0 1 2\n0 3 4\n0 5 6\n"))).extent() == (3, 0.0)


def test_badges_of_sociopatterns_are_contacts(tmp_path: Path) -> None:
    path = write_file(tmp_path / "tij.dat", BADGES + "31320\t9\n")
    facts = ingest([path], tmp_path / "out", ReadOptions(format="sociopatterns"))
    assert (facts["rows"], facts["contacts"], facts["joined"]) == (5, 3, 1)
    assert (facts["rejected"], facts["status"]) == ({"unreadable": 1}, "doubtful")
    assert (facts["start_s"], facts["duration_s"], facts["nodes"]) == (31200.0, 100.0, 6)


def geo(samples: str, head: str = "<fcd-export>") -> str:
    return f"<?xml version='1.0'?>{head}{samples}</fcd-export>"


DEGREES = "".join(
    f'<timestep time="{t}.00"><vehicle id="a" x="8.54{t}123" y="47.371234" speed="{{speed}}"/></timestep>'
    for t in range(4)
)


def test_floating_car_data_in_degrees_are_degrees(tmp_path: Path) -> None:
    # SUMO writes its configuration into the file; speeds also decide.
    comment = '<!-- <configuration><output><fcd-output.geo value="true"/></output></configuration> -->'
    said = geo(DEGREES.replace('speed="{speed}"', ""), f"{comment}<fcd-export>")
    for text in (said, geo(DEGREES.format(speed="75.2")), geo(DEGREES.format(speed="0"), '<fcd-export geo="true">')):
        path = write_file(tmp_path / "fcd.xml", text)
        assert read_fcd(path).in_degrees()
        counted, rows = stage(path, "sumo")
        assert counted == RowCount(4, 4)
        assert (rows[0]["longitude"], rows[0]["latitude"], rows[0]["x_m"]) == (8.540123, 47.371234, None)
        assert stage(path, "sumo", swap=True)[1][0]["longitude"] == 47.371234
        for refused in (Sumo(file=str(path)).extent, lambda: read_contact_plan(tmp_path / "fcd.xml", 100.0, None, 1)):
            with pytest.raises(UserError, match="x and y are degrees; `carrycast ingest`"):
                refused()


def test_floating_car_data_that_may_be_either_are_asked_about(tmp_path: Path) -> None:
    path = write_file(tmp_path / "fcd.xml", geo(DEGREES.format(speed="0.00")))
    with pytest.raises(UserError, match=r"say --columns x=x,y=y for meters, or --columns longitude=x,latitude=y"):
        stage(path, "sumo")
    assert stage(path, "sumo", columns={"x": "x", "y": "y"})[1][0]["x_m"] == 8.540123
    assert stage(path, "sumo", columns={"longitude": "x", "latitude": "y"})[1][0]["longitude"] == 8.540123
    # A scenario plays them as meters, as documented. Large values or matching speeds are meters, too.
    assert Sumo(file=str(path)).extent() == (1, 3.0)
    for x, speed in (("1234.567891", "0"), ("9.9", "1")):
        steps = f'<timestep time="0"><vehicle id="a" x="1.123456" y="2" speed="{speed}"/></timestep>'
        steps += f'<timestep time="8"><vehicle id="a" x="{x}" y="2" speed="{speed}"/></timestep>'
        assert stage(write_file(path, geo(steps)), "sumo")[1][0]["x_m"] == 1.123456


def test_persons_and_containers_are_nodes_and_nobody_vanishes(tmp_path: Path) -> None:
    steps = "".join(
        f'<timestep time="{t}"><vehicle id="a" x="{900 + t}" y="2"><person id="rider" x="{900 + t}" y="2"/></vehicle>'
        f'<person id="a" x="{500 + t}" y="3"/><container id="c" x="700" y="4"/></timestep>'
        for t in range(3)
    )
    last = '<timestep time="9"><vehicle id="once" x="500" y="6"/></timestep>'
    counted, rows = stage(write_file(tmp_path / "fcd.xml", geo(steps + last)), "sumo")
    assert counted == RowCount(13, 13)
    assert {row["node"] for row in rows} == {"a", "person rider", "person a", "container c", "once"}
    assert len({row["stated"] for row in rows if row["node"] == "a"}) == 1
    clash = '<timestep time="0"><vehicle id="person a" x="500" y="1"/><person id="a" x="500" y="1"/></timestep>'
    with pytest.raises(UserError, match="both be named 'person a'"):
        stage(write_file(tmp_path / "fcd.xml", geo(clash)), "sumo")
    with pytest.raises(UserError, match="set persons = true"):
        Sumo(
            file=str(write_file(tmp_path / "p.xml", geo('<timestep time="0"><person id="p" x="1" y="1"/></timestep>')))
        ).extent()


def feature(geometry: object, **properties: object) -> dict[str, object]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def points(path: Path, *features: object, **source: object) -> tuple[int, list[TrackPoint]]:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    reader = GeoJsonFile(path, msgspec.convert(source, ReadOptions))
    found = list(reader.points())
    assert reader.rows == len(found), "every position of a file is a row"
    return len(found), [point for point in found if point.text is None]


def test_every_geometry_with_times_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    line, other = [[8.1, 47.1], [8.2, 47.2]], [[8.3, 47.3]]
    multi = feature({"type": "MultiLineString", "coordinates": [line, other]}, id="m", coordTimes=[[1, 2], [3]])
    flat = feature({"type": "MultiPoint", "coordinates": line}, id="p", times=[5, 6])
    both = {"type": "GeometryCollection", "geometries": [{"type": "LineString", "coordinates": line}]}
    both["geometries"].append({"type": "Point", "coordinates": [8.0, 47.0]})  # type: ignore[attr-defined]
    held = feature(both, id="g", time=9, coordinateProperties={"times": [7, 8]})
    rows, found = points(path, multi, flat, held)
    assert [(one.node, one.clock_s, one.longitude) for one in found] == [
        ("m", 1, 8.1), ("m", 2, 8.2), ("m", 3, 8.3), ("p", 5, 8.1), ("p", 6, 8.2), ("g", 7, 8.1), ("g", 8, 8.2),
        ("g", 9, 8.0),
    ]  # fmt: skip
    assert rows == len(found)


def test_geometries_without_times_are_rows_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    line = {"type": "LineString", "coordinates": [[8.1, 47.1], [8.2, 47.2], [8.3, 47.3]]}
    area = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    strange: list[object] = [
        feature(line, id=1), feature(line, id=1, times=[1, 2]), feature(line, id=1, times=[1, 2, 3, 4]),
        feature(area, id=1, time=4), feature(None, id=1, time=4), 7, feature({"type": "Point", "coordinates": 4}, id=1),
        feature({"type": "LineString", "coordinates": "abc"}, id=1), feature({"type": "MultiPoint"}, id=1),
    ]  # fmt: skip
    assert points(path, *strange) == (15, [])


def test_features_without_a_name_are_not_made_one_node(tmp_path: Path) -> None:
    path = tmp_path / "bus.geojson"
    place = {"type": "Point", "coordinates": [8.1, 47.1]}
    buses = [feature(place, line_ref=k, time=k, speed=3.5) for k in (7, 7, 9)]
    with pytest.raises(UserError, match=r"it may be 'line_ref': say --columns node=line_ref, or --single"):
        points(path, *buses)
    assert {one.node for one in points(path, *buses, columns={"node": "line_ref"})[1]} == {"7", "9"}
    assert {one.node for one in points(path, *buses, single=True)[1]} == {"bus"}
    assert len(points(path, *(feature(place, time=k, speed=k / 2) for k in range(3)))[1]) == 3
    path.write_text(
        json.dumps({"type": "FeatureCollection", "crs": {"properties": {"name": "EPSG:25832"}}, "features": buses})
    )
    with pytest.raises(UserError, match=r"bus.geojson: its coordinates are on the map EPSG:25832"):
        list(GeoJsonFile(path).points())


def test_features_in_another_encoding_are_refused(tmp_path: Path) -> None:
    place = {"type": "Point", "coordinates": [8.1, 47.1]}
    for indent in (None, 1):
        text = json.dumps(feature(place, name="Zürich", time=1), ensure_ascii=False, indent=indent)
        (tmp_path / "a.geojson").write_bytes(text.encode("latin-1"))
        with pytest.raises(UserError, match=r"a.geojson: is no text in UTF-8.*--encoding"):
            list(GeoJsonFile(tmp_path / "a.geojson").points())


def track(name: str, hour: int = 6) -> str:
    times = "".join(
        f'<trkpt lat="47.{k}" lon="8.{k}"><time>2026-05-04T{hour:02}:00:{k:02}Z</time></trkpt>' for k in range(3)
    )
    return f"<trk><name>{name}</name><trkseg>{times}</trkseg></trk>"


def test_tracks_of_one_name_are_asked_about(tmp_path: Path) -> None:
    path = write_file(tmp_path / "day.gpx", f"<gpx>{track('ACTIVE LOG')}{track('ACTIVE LOG', 9)}</gpx>")
    with pytest.raises(
        UserError, match=r"tracks of day.gpx have the same name, 'ACTIVE LOG': give --by-track .*--merge"
    ):
        stage(path, "gpx")
    assert {row["node"] for row in stage(path, "gpx", by_track=True)[1]} == {"day-1 ACTIVE LOG", "day-2 ACTIVE LOG"}
    assert {row["node"] for row in stage(path, "gpx", merge=True)[1]} == {"ACTIVE LOG"}
    one, two = (write_file(tmp_path / f"{name}.gpx", f"<gpx>{track('GPS')}</gpx>") for name in ("one", "two"))
    for source, refused in (
        (ReadOptions(), True),
        (ReadOptions(by_file=True), False),
        (ReadOptions(merge=True), False),
    ):
        staged = RowStager(source)
        staged.stage(FleetFile(one, FORMATS["gpx"], one), tmp_path / "a")
        if refused:
            with pytest.raises(UserError, match=r"a track of one.gpx and one of two.gpx have the same name, 'GPS'"):
                staged.stage(FleetFile(two, FORMATS["gpx"], two), tmp_path / "b")
        else:
            staged.stage(FleetFile(two, FORMATS["gpx"], two), tmp_path / "b")


def test_points_of_a_plan_are_rows_that_are_no_positions(tmp_path: Path) -> None:
    plan = '<wpt lat="47" lon="8"><name>home</name></wpt><rte><rtept lat="47" lon="8"/></rte>'
    reader = GpxFile(write_file(tmp_path / "day.gpx", f"<gpx>{plan}{track('bus')}</gpx>"))
    found = list(reader.points())
    assert (reader.rows, len(found)) == (5, 5)
    assert [point.text for point in found if point.text] == [
        "<wpt lat=47 lon=8>: of a plan, not of a track", "<rtept lat=47 lon=8>: of a plan, not of a track"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "unit", "seconds"),
    [
        (1777896000, None, 1777896000.0),
        (1777896000123, None, 1777896000.123),
        (1777896000123456, None, 1777896000.123456),
        ("1777896000123456789", None, 1777896000.1234567),
        (120, None, 120.0),
        (120, "ms", 0.12),
        ("1777896000", "s", 1777896000.0),
        (5_000_000_000, "us", 5000.0),
    ],
)
def test_numbers_are_times_in_the_unit_that_their_size_tells(number: object, unit: str | None, seconds: float) -> None:
    assert parse_clock(number, unit) == pytest.approx(seconds, abs=1e-6)


def test_a_table_whose_nodes_nobody_names_is_refused_with_candidates() -> None:
    found = {"time": "t", "longitude": "lon", "latitude": "lat"}
    values: dict[str, list[object]] = {"t": [1, 2, 2], "lon": [8, 8, 8], "lat": [4, 4, 4]}
    with pytest.raises(UserError, match=r"it may be 'veh_ref' or 'plate': say --columns node=veh_ref, or --single"):
        refuse_unnamed({**values, "veh_ref": ["7", "9", "7"], "plate": ["A", "B", "C"]}, found, "a.csv")
    # Measurements, row numbers and empty columns do not name nodes.
    others: dict[str, list[object]] = {"Speed": ["1", "1", "2"], "row": ["1", "2", "3"], "v": ["1.5", "1", "2"]}
    refuse_unnamed({**values, **others, "empty": ["", "", None]}, found, "a.csv")
    refuse_unnamed({**values, "veh_ref": ["7", "9", "7"]}, {**found, "node": "plate"}, "a.csv")


def test_two_columns_for_one_meaning_must_agree() -> None:
    values: dict[str, list[object]] = {"id": [1, 2, 3], "name": ["a", "b", "a"], "time": [1, 2, 3], "ts": [1, 2, 3]}
    found = {"node": "id", "time": "time"}
    with pytest.raises(UserError, match=r"columns 'id' and 'name' may both be the node.*--columns node=name"):
        refuse_ambiguous(values, found, "a.csv")
    refuse_ambiguous({**values, "name": ["a", "b", "c"]}, found, "a.csv")
    with pytest.raises(UserError, match=r"columns 'time' and 'ts' may both be the time.*--columns time=ts"):
        refuse_ambiguous({**values, "name": ["a", "b", "c"], "ts": [1, 2, 4]}, found, "a.csv")


def test_times_of_day_need_a_date_that_can_be_read_in_one_way() -> None:
    times: list[object] = ["06:00:00", "6:00"]
    with pytest.raises(UserError, match="holds times of day, as in '06:00:00': say which column has the date"):
        refuse_times({"time": times}, {"time": "time"}, "a.csv")
    both = {"time": "time", "date": "date"}
    for dates in (["2026-05-04"], ["2026/5/4"], ["20260504"], ["2026.05.04"]):
        refuse_times({"time": times, "date": list(dates)}, both, "a.csv")
    with pytest.raises(UserError, match=r"'04/05/2026' is no date that can be read in one way only.*--time-format"):
        refuse_times({"time": times, "date": ["04/05/2026"]}, both, "a.csv")
    with pytest.raises(UserError, match=r"has numbers beside dates, as in '060000'.*--time-format"):
        refuse_times({"time": ["060000", "060010"], "date": ["20260504"]}, both, "a.csv")
    # Full dates and seconds are unambiguous.
    refuse_times({"time": ["2026-05-04 06:00:00"], "date": ["04/05/2026"]}, both, "a.csv")
    refuse_times({"time": ["1777896000"], "date": ["04/05/2026"]}, both, "a.csv")


def write_zip(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.csv", content)


def write_zstd(path: Path, content: bytes) -> None:
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(content)


PACKERS: dict[str, Callable[[Path, bytes], object]] = {
    "gzip": lambda path, content: path.write_bytes(gzip.compress(content)),
    "bzip2": lambda path, content: path.write_bytes(bz2.compress(content)),
    "xz": lambda path, content: path.write_bytes(lzma.compress(content)),
    "zip": write_zip,
    "zstd": write_zstd,
}


@pytest.mark.parametrize("packing", list(PACKERS))
def test_a_packed_file_is_known_by_its_first_bytes(tmp_path: Path, packing: str) -> None:
    text = b"id,time,lon,lat\n" + b"".join(b"1,%d,8.5,47.4\n" % k for k in range(5000))
    PACKERS[packing](tmp_path / "log.csv", text)
    with open_decompressed(tmp_path / "log.csv") as file:
        assert file.readline() == b"id,time,lon,lat\n"
        assert file.read() == text.partition(b"\n")[2]
    assert format_of(tmp_path / "log.csv").name == "csv"
    copy_text(tmp_path / "log.csv", "utf-8", False, tmp_path / "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes() == text
    (tmp_path / "cut.csv").write_bytes((tmp_path / "log.csv").read_bytes()[:-60])
    with pytest.raises(UserError, match=rf"cut.csv: the {packing} file is cut or broken"):
        copy_text(tmp_path / "cut.csv", "utf-8", False, tmp_path / "copy.csv")


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.csv", "a")
        archive.writestr("b.csv", "b")
    with pytest.raises(UserError, match="a zip archive of 2 files; unpack it"):
        format_of(tmp_path / "all.zip")
    # A text that only begins like a compressed file is a text.
    assert format_of(write_file(tmp_path / "BZh.csv", "BZh9,time,lon,lat\n1,2,3,4\n")).name == "csv"


CONTACTS = "a,b,start,end\nJosé,Jos\xe8,1,2\nJosé,Zoë,1,2\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "utf-8", "utf-32"])
def test_names_stay_apart_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "list.csv").write_bytes(CONTACTS.encode(encoding))
    if encoding == "latin-1":
        with pytest.raises(UserError, match=rf"{tmp_path}/list.csv: is no text in UTF-8.*--encoding latin-1"):
            ingest([tmp_path / "list.csv"], tmp_path / "out")
    source = ReadOptions(encoding="latin-1" if encoding == "latin-1" else None)
    facts = ingest([tmp_path / "list.csv"], tmp_path / "out", source)
    assert (facts["nodes"], facts["contacts"]) == (3, 2)
    names = pq.read_table(tmp_path / "out" / "nodes.parquet")["node"].to_pylist()
    assert sorted(names) == sorted(["José", "Jos\xe8", "Zoë"])
    for name in ("klingon", "base64"):
        with pytest.raises(UserError, match="no such encoding"):
            ingest([tmp_path / "list.csv"], tmp_path / "other", ReadOptions(encoding=name))


def test_lists_of_mostly_wrong_rows_are_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", "a,b,start,end\n1,2,3,4\n1,2,soon,4\n1,3,soon,5\n")
    with pytest.raises(UserError, match="2 of 3 rows are rejected"):
        ingest([path], tmp_path / "out")
    path = write_file(tmp_path / "a.csv", f"a,b,start,end\n1,2,{2 * 10**10},{2 * 10**10 + 5}\n")
    with pytest.raises(UserError, match="--time-unit ms"):
        ingest([path], tmp_path / "out")
    assert ingest([path], tmp_path / "out", ReadOptions(time_unit="ms"))["duration_s"] == pytest.approx(0.005)


@pytest.mark.parametrize("blanks", [False, True])
def test_a_copy_has_its_lines_ended_by_newlines_wherever_they_are_cut(tmp_path: Path, blanks: bool) -> None:
    # Lines longer than a chunk, with a line end of two bytes at each position around the border of the chunk.
    for length in (SNIFFED_BYTES - 2, SNIFFED_BYTES - 1, SNIFFED_BYTES):
        (tmp_path / "log.csv").write_bytes(b"\xef\xbb\xbf" + b"a" * length + b"\r\nb c\rd\n\ne f")
        copy_text(tmp_path / "log.csv", "utf-8", blanks, tmp_path / "copy.csv")
        gap = b"\t" if blanks else b" "
        assert (tmp_path / "copy.csv").read_bytes() == b"a" * length + b"\nb" + gap + b"c\nd\n\ne" + gap + b"f"
