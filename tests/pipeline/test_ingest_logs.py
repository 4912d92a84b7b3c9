"""Logs as users have them: dates in two columns, encodings, nanoseconds, swapped coordinates, names of any kind."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.fleets import logs
from carrycast.analysis.fleets.cleaning import CleaningRules
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.analysis.fleets.summary import check_rows, fleet_sentences
from carrycast.errors import UserError, WorkError
from tests.cli.console import call

# Each ingest takes seconds of two free cores, and some of these tests take several.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
NOON = 1777896000
ROWS = 30


def at(second: int) -> datetime:
    return datetime.fromtimestamp(NOON + second, UTC)


def log(header: str, row: str, vehicles: tuple[str, ...] = ("7", "9")) -> str:
    """A row every ten seconds of vehicles that drive east at about 7.5 m/s on parallel lines."""
    lines = [header]
    for k in range(ROWS):
        for place, name in enumerate(vehicles):
            values = {
                "id": name,
                "s": NOON + 10 * k,
                "lon": f"{8.5 + k * 1e-3:.6f}",
                "lat": f"{47.4 + place / 100:.6f}",
            }
            lines.append(row.format(**values, at=at(10 * k)))
    return "\n".join(lines) + "\n"


USUAL = log("id,time,lon,lat", "{id},{s},{lon},{lat}")


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder / name, format="parquet").to_table().to_pylist()
    return rows


def ingest_log(folder: Path, content: str | bytes, name: str = "log.csv", **source: Any) -> dict[str, Any]:
    """Ingest a file, check that every row is in one of the tables, and return its facts."""
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    out = folder / f"out-{len(list(folder.iterdir()))}"
    facts = ingest([folder / name], out, ReadOptions(**source))
    assert facts["rows"] == len(table(out, "positions")) + len(table(out, "rejected"))
    return facts


def ingest_error(folder: Path, content: str | bytes, name: str = "log.csv", **source: Any) -> str:
    with pytest.raises(UserError) as error:
        ingest_log(folder, content, name, **source)
    assert "\n" not in str(error.value)
    assert ".scratch" not in str(error.value)
    return str(error.value)


def test_times_are_read_however_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    texts = [
        USUAL,
        log("id,date,time,lon,lat", "{id},{at:%Y-%m-%d},{at:%H:%M:%S},{lon},{lat}"),
        log("id,date,time,lon,lat", "{id},{at:%Y%m%d},{at:%H:%M:%S},{lon},{lat}"),
        log("id,date,time,lon,lat", "{id},{at:%Y/%m/%d},{at:%H:%M:%S}.000,{lon},{lat}"),
        log("id,time,lon,lat", "{id},{s}000,{lon},{lat}"),
        log("id,time,lon,lat", "{id},{s}000000,{lon},{lat}"),
        log("id,time,lon,lat", "{id},{s}000000000,{lon},{lat}"),
        log("id,time_ns,lon,lat", "{id},{s}000000000,{lon},{lat}"),
        log("id,time,lon,lat", "{id},{at:%Y-%m-%dT%H:%M:%S}Z,{lon},{lat}"),
        log("id date time lon lat", "{id} {at:%Y-%m-%d} {at:%H:%M:%S} {lon} {lat}"),
    ]
    files = [tmp_path / f"log-{k}.csv" for k in range(len(texts))]
    for path, text in zip(files, texts, strict=True):
        path.write_text(text)
    facts = ingest(files, tmp_path / "out", ReadOptions(format="csv", by_file=True))
    assert (facts["start_s"], facts["rejected"], facts["status"]) == (NOON, {}, "ok")
    nodes = table(tmp_path / "out", "nodes")
    assert len(nodes) == 2 * len(texts)
    assert {(row["first_s"], row["last_s"], row["rows"]) for row in nodes} == {(0.0, 10.0 * (ROWS - 1), ROWS)}
    said: list[tuple[str, dict[str, Any]]] = [
        (
            log("id,date,time,lon,lat", "{id},{at:%d/%m/%Y},{at:%H%M%S},{lon},{lat}"),
            {"time_format": "dd/MM/yyyy HHmmss"},
        ),
        (USUAL.partition("\n")[2].replace(",", " "), {"header": ("id", "time", "lon", "lat")}),
    ]
    for text, source in said:
        facts = ingest_log(tmp_path, text, **source)
        assert (facts["start_s"], facts["duration_s"], facts["nodes"]) == (NOON, 10.0 * (ROWS - 1), 2)


def test_times_that_can_be_read_in_several_ways_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    told = ingest_error(tmp_path, log("id,time,lon,lat", "{id},{at:%H:%M:%S},{lon},{lat}"))
    assert "holds times of day" in told
    assert "--columns date=day" in told
    assert "--time-format" in ingest_error(
        tmp_path, log("id,date,time,lon,lat", "{id},{at:%d/%m/%Y},{at:%H:%M:%S},{lon},{lat}")
    )
    # Invalid as seconds (the year 2603) and as milliseconds (1970).
    late = "id,time,lon,lat\n" + "".join(
        f"7,{20_000_000_000 + 10_000 * k},{8.5 + k / 1000:.3f},47.4\n" for k in range(9)
    )
    assert "--time-unit" in ingest_error(tmp_path, late)
    assert ingest_log(tmp_path, late, time_unit="ms")["duration_s"] == 80.0
    # The digits of a date are not a number of seconds.
    for form, pattern in (("%Y%m%d%H%M%S", "yyyyMMddHHmmss"), ("%y%m%d%H%M%S", "yyMMddHHmmss")):
        digits = log("id,time,lon,lat", "{id},{at:" + form + "},{lon},{lat}")
        assert "--time-format yyyyMMddHHmmss" in ingest_error(tmp_path, digits)
        assert ingest_log(tmp_path, digits, time_format=pattern)["start_s"] == NOON


def with_decimal_commas(text: str) -> str:
    """The text as a spreadsheet with decimal commas writes it."""
    return "\ufeff" + text.replace(",", ";").replace(".", ",").replace("\n", "\r\n")


def test_degrees_with_decimal_commas_are_read(spark: SparkSession, tmp_path: Path) -> None:
    for text in (
        with_decimal_commas(log("id,time,lon,lat", "{id},{at:%Y-%m-%d %H:%M:%S}.000,{lon},{lat}")),
        log("id,time,lon,lat", "{id},{s},{lon},{lat}")
        .replace("8.", '"8,')
        .replace("00,47.", '00","47,')
        .replace("0\n", '0"\n'),
    ):
        facts = ingest_log(tmp_path, text)
        assert (facts["start_s"], facts["nodes"], facts["rejected"]) == (NOON, 2, {})
        assert facts["center_deg"][0] == pytest.approx(8.5 + (ROWS - 1) / 2000)


def test_meters_and_times_with_commas_are_asked_about(spark: SparkSession, tmp_path: Path) -> None:
    meters = "id;time;x_m;y_m\n" + "".join(f"7;{10 * k};{k},000;1\n" for k in range(ROWS))
    times = "id;time;x_m;y_m\n" + "".join(f"7;{10 * k},5;{k};1\n" for k in range(ROWS))
    for text in (meters, times):
        assert "--decimal-comma" in ingest_error(tmp_path, text)
        facts = ingest_log(tmp_path, text, decimal_comma=True)
        assert (facts["rejected"], facts["duration_s"], facts["area_m"][0]) == ({}, 10.0 * (ROWS - 1), ROWS - 1.0)
    contacts = "a;b;start;end\n1;2;0,5;10,5\n"
    (tmp_path / "contacts.csv").write_text(contacts)
    assert ingest([tmp_path / "contacts.csv"], tmp_path / "plan", ReadOptions(decimal_comma=True))["contacts"] == 1


def test_logs_of_animals_and_of_ships_are_read_as_they_are_published(spark: SparkSession, tmp_path: Path) -> None:
    animals = log(
        "event-id,timestamp,location-long,location-lat,tag-local-identifier,individual-local-identifier",
        '{s},{at:%Y-%m-%d %H:%M:%S}.000,{lon},{lat},"T{id}","Stork {id}"',
    )
    assert ingest_log(tmp_path, animals)["nodes"] == 2
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [8.5 + k / 1000, 47.4]},
            "properties": {"individual-local-identifier": name, "timestamp": NOON + 10 * k},
        }
        for k in range(ROWS)
        for name in ("Stork 7", "Stork 9")
    ]
    assert (
        ingest_log(tmp_path, json.dumps({"type": "FeatureCollection", "features": features}), "m.geojson")["nodes"] == 2
    )
    ships = log("# Timestamp,Type,MMSI,Latitude,Longitude", "{at:%d/%m/%Y %H:%M:%S},A,{id},{lat},{lon}")
    assert "--time-format" in ingest_error(tmp_path, ships)
    assert ingest_log(tmp_path, ships, time_format="dd/MM/yyyy HH:mm:ss")["start_s"] == NOON


def test_a_refusal_says_what_to_do_about_this_file(spark: SparkSession, tmp_path: Path) -> None:
    nameless = log("", "{id},{at:%Y-%m-%d %H:%M:%S},{lon},{lat}").lstrip()
    assert "--header id,time,lon,lat" in ingest_error(tmp_path, nameless)
    twice = "10\tC\tM1\t5\t5\t5000\n" * 3
    assert "first line holds values" in ingest_error(tmp_path, twice)
    schools = "".join(f"{NOON + 20 * k}\t{k % 3}\t7\tMP\tPC\n" for k in range(9))
    assert "--format sociopatterns" in ingest_error(tmp_path, schools)
    cabs = "".join(f"37.7 -122.{k} 0 {NOON + k}\n" for k in range(10, 20))
    assert "--header" in ingest_error(tmp_path, cabs)
    assert "no rows" in ingest_error(tmp_path, "id,time,lon,lat\n")
    with pytest.raises(UserError, match="is a folder"):
        ingest([tmp_path], tmp_path / "never")


def test_pandas_own_parquet_is_read_with_and_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    times: Any = pd.to_datetime([at(10 * k) for k in range(ROWS)]).astype("datetime64[ns, UTC]")
    frame = pd.DataFrame({"bus": ["7"] * ROWS, "timestamp": times, "lon": 8.5 + np.arange(ROWS) * 1e-3, "lat": 47.4})
    frame.loc[3, "timestamp"] = pd.NaT
    for name, change in {
        "zone": times,
        "naive": times.tz_localize(None),
        "other": times.tz_convert("Asia/Tokyo"),
    }.items():
        frame.assign(timestamp=change).to_parquet(tmp_path / f"{name}.parquet")
        assert str(pq.read_schema(tmp_path / f"{name}.parquet").field("timestamp").type).startswith("timestamp[ns")
        facts = ingest([tmp_path / f"{name}.parquet"], tmp_path / name)
        assert (facts["start_s"], facts["duration_s"], facts["rejected"]) == (NOON, 290.0, {})
    frame.to_parquet(tmp_path / "gap.parquet")
    assert ingest([tmp_path / "gap.parquet"], tmp_path / "gap")["rejected"] == {"unreadable": 1}
    columns = {"veh": ["7", "9"] * 15, "time": [NOON + k for k in range(30)], "lon": [8.5] * 30, "lat": [47.4] * 30}
    pq.write_table(pa.table(columns), tmp_path / "unnamed.parquet")
    with pytest.raises(UserError, match="--columns node=veh"):
        ingest([tmp_path / "unnamed.parquet"], tmp_path / "out")


def test_vehicles_that_nobody_names_are_not_made_one(spark: SparkSession, tmp_path: Path) -> None:
    text = log("veh_ref,time,lon,lat,speed", "{id},{s},{lon},{lat},12")
    assert "it may be 'veh_ref': say --columns node=veh_ref, or --single" in ingest_error(tmp_path, text)
    assert ingest_log(tmp_path, text, columns={"node": "veh_ref"})["nodes"] == 2
    both = log("id,time,lon,lat,vehicle_id", "{s}{id},{s},{lon},{lat},{id}")
    assert "columns 'id' and 'vehicle_id' may both be the node, and differ" in ingest_error(tmp_path, both)
    assert ingest_log(tmp_path, both, columns={"node": "vehicle_id"})["nodes"] == 2
    # Merged into one node, two vehicles conflict in half of the rows, three in most rows.
    told = ingest_error(tmp_path, log("veh_ref,time,lon,lat", "{id},{s},{lon},{lat}", ("7", "8", "9")), single=True)
    assert "several vehicles taken for one" in told
    assert ingest_log(tmp_path, log("time,lon,lat,speed", "{s},{lon},{lat},12", ("7",)))["nodes"] == 1


def test_names_in_another_encoding_stay_apart(spark: SparkSession, tmp_path: Path) -> None:
    text = log("bus,time,lon,lat", "{id},{s},{lon},{lat}", ("Zürich", "Zärich"))
    for content, source in (
        (text.encode("latin-1"), {"encoding": "latin-1"}),
        (text.encode("utf-16"), {}),
        (b"\xef\xbb\xbf" + text.encode(), {}),
        (gzip.compress(text.encode("cp1252")), {"encoding": "cp1252"}),
    ):
        facts = ingest_log(tmp_path, content, **source)
        assert (facts["nodes"], facts["rejected"]) == (2, {})
    out = max(tmp_path.glob("out-*"), key=lambda path: path.stat().st_mtime_ns)
    assert sorted(row["node"] for row in table(out, "nodes")) == ["Zärich", "Zürich"]
    for content in (text.encode("latin-1"), gzip.compress(text.encode("latin-1"))):
        assert f"{tmp_path}/log.csv: is no text in UTF-8: say" in ingest_error(tmp_path, content)


def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data [2026] {a,b} *?"
    folder.mkdir()
    (folder / "log.csv").write_text(USUAL)
    assert ingest([folder / "log.csv"], folder / "out")["rows"] == 2 * ROWS
    plan = ("contacts", folder / "out", "--range", "2000", "--master", "local[2,4]", "--json")
    assert call(*plan, "--out", tmp_path / "plan").object()["contacts"] == 1


def test_a_file_is_read_whatever_its_name(spark: SparkSession, tmp_path: Path) -> None:
    packed = gzip.compress(USUAL.encode())
    for name, content in (
        ("log.csv", packed),
        ("plain.csv.gz", USUAL.encode()),
        ("_hidden.csv", USUAL.encode()),
        (".hidden.csv", packed),
        ("log[1].csv", USUAL.encode()),
        ("{a,b} *.csv", USUAL.encode()),
    ):
        facts = ingest_log(tmp_path, content, name)
        assert (facts["rows"], facts["nodes"], facts["files"]) == (2 * ROWS, 2, {name: "csv"})
    pd.DataFrame({"id": [1, 1], "time": [0, 9], "x_m": [0.0, 9.0], "y_m": [0.0, 0.0]}).to_parquet(tmp_path / "_a[1].pq")
    assert ingest([tmp_path / "_a[1].pq"], tmp_path / "pq")["rows"] == 2


def test_swapped_places_are_refused_or_shown(spark: SparkSession, tmp_path: Path) -> None:
    # Melbourne: its longitude is not a valid latitude.
    south = USUAL.replace(",8.5", ",144.9").replace(",47.4", ",-37.8")
    swapped = south.replace("lon,lat", "lat,lon")
    assert "would be on earth with longitude and latitude swapped: give --swap" in ingest_error(tmp_path, swapped)
    facts = ingest_log(tmp_path, swapped, swap=True)
    assert facts["bounds_deg"] == ingest_log(tmp_path, south)["bounds_deg"]
    assert "leave out --swap" in ingest_error(tmp_path, south, swap=True)
    # One row of many is an error of the receiver.
    glitch = log("id,time,lon,lat", "{id},{s},{lon},{lat}", ("1", "2", "3", "4")) + f"1,{NOON + 5},8.5,120.5\n"
    assert ingest_log(tmp_path, glitch)["rejected"] == {"no_place": 1}
    # Zurich with swapped coordinates is in the Indian Ocean, which is possible for ships: only the user can know.
    facts = ingest_log(tmp_path, USUAL.replace("lon,lat", "lat,lon"))
    where, when, who, *rest = fleet_sentences(facts)
    assert where.startswith("where: around 8.5145° N 47.4050° E, from 8.5000° N 47.4000° E to 8.5290° N")
    assert when == "when: 2026-05-04 12:00:00 UTC to 2026-05-04 12:04:50 UTC"
    assert who.startswith(
        "who: 2 nodes; while they move, half of the time up to 11 m/s (39.6 km/h), 95 % of it up to 11 m/s"
    )
    assert rest == []


def test_columns_x_and_y_that_may_be_degrees_are_asked_about(spark: SparkSession, tmp_path: Path) -> None:
    text = log("id,time,x,y", "{id},{s},{lon}1,{lat}1")
    assert "--columns x=x,y=y for meters, or --columns longitude=x,latitude=y for degrees" in ingest_error(
        tmp_path, text
    )
    assert ingest_log(tmp_path, text, columns={"longitude": "x", "latitude": "y"})["bounds_deg"][0] == 8.500000
    assert ingest_log(tmp_path, text, columns={"x": "x", "y": "y"})["bounds_deg"] is None
    assert ingest_log(tmp_path, text.replace("x,y", "x_m,y_m"))["bounds_deg"] is None
    # Values with centimeters, or beyond the range of degrees, are meters.
    assert ingest_log(tmp_path, text.replace(",47.4", ",147.4"))["bounds_deg"] is None


def test_rows_across_180_degrees_are_resampled_the_short_way(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f"ship,{NOON + 10 * k},{(179.998 + k * 1e-3 + 180) % 360 - 180:.6f},-17.0" for k in range(6)]
    (tmp_path / "log.csv").write_text("id,time,lon,lat\n" + "\n".join(lines) + "\n")
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out", rules=CleaningRules(every_s=3.0))
    rows = sorted(table(tmp_path / "out", "positions"), key=lambda row: row["time_s"])
    assert all(abs(abs(row["longitude"]) - 180) < 0.0031 for row in rows)
    expected = [(179.998 + row["time_s"] * 1e-4 + 180) % 360 - 180 for row in rows]
    np.testing.assert_allclose([row["longitude"] for row in rows], expected, atol=1e-9)
    assert facts["bounds_deg"][0] == pytest.approx(179.998)
    assert facts["bounds_deg"][2] == pytest.approx(-179.997, abs=3e-4)


def test_a_fleet_of_many_wrong_rows_is_doubtful(spark: SparkSession, tmp_path: Path) -> None:
    wrong = USUAL.splitlines()
    wrong = [line if k % 5 else f"{line.split(',')[0]},soon,8.5,47.4" for k, line in enumerate(wrong, 1)]
    (tmp_path / "log.csv").write_text("\n".join(["id,time,lon,lat", *wrong[1:]]) + "\n")
    done = call("ingest", tmp_path / "log.csv", "--out", tmp_path / "out")
    assert done.status == 3
    assert "DOUBTFUL: 12 of 60 rows are rejected" in done.out
    assert "where: around 47.4050° N 8.5145° E" in done.out
    found = call("ingest", tmp_path / "log.csv", "--out", tmp_path / "again", "--json").object(3)
    assert (found["status"], found["rejected"]) == ("doubtful", {"unreadable": 12})
    (tmp_path / "log.csv").write_text(USUAL)
    assert call("ingest", tmp_path / "log.csv", "--out", tmp_path / "fine").status == 0


def test_a_row_that_vanishes_is_an_error_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.csv").write_text(USUAL)
    made = logs._raw_rows
    monkeypatch.setattr(logs, "_raw_rows", lambda *arguments: made(*arguments).where("place != 30"))
    with pytest.raises(
        WorkError, match=r"log.csv: 60 rows were read, but 5\d are kept or rejected; nothing is written"
    ):
        ingest([tmp_path / "log.csv"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    monkeypatch.undo()
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out")
    check_rows(tmp_path / "out", facts)
    for change in ({"rows": 61}, {"positions": 59}, {"rejected": {"clock": 1}}):
        with pytest.raises(WorkError, match="are kept or rejected"):
            check_rows(tmp_path / "out", {**facts, **change})
    assert json.loads((tmp_path / "out" / "fleet.json").read_text())["read"] == {
        "log.csv": {"format": "csv", "records": 60, "rows": 60}
    }


def random_log(rng: np.random.Generator) -> tuple[str, int]:
    """A random file of rows of all kinds, and their number."""
    ends = str(rng.choice(["\n", "\r\n", "\r"]))
    odd = [
        "",
        " ",
        '"',
        '"a,b"',
        "0,0",
        "7",
        "NaN,1,2,3",
        "\ufeff7,1,2,3",
        "7,1777896000,8.5,47.4,9",
        "7;8;9;10",
        "#",
        "\t",
    ]
    rows = [f"7,{NOON + 10 * k},{8.5 + k * 1e-3:.6f},47.4" for k in range(40)]
    rows += [str(rng.choice(odd)) for _ in range(int(rng.integers(0, 12)))]
    rows += [f"{rng.choice(['7', 'é', ''])},{rng.choice(['1', 'soon', '1e300', str(NOON)])},8.5,47" for _ in range(5)]
    order = rng.permutation(len(rows))
    lines = ["id,time,lon,lat", *(rows[k] for k in order)]
    text = ends.join(lines) + (ends if rng.random() < 0.5 else "")
    return text, sum(bool(line.strip(" \t")) for line in lines) - 1


def test_every_row_of_files_that_spark_reads_is_kept_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    expected = {}
    for k in range(16):
        text, rows = random_log(rng)
        name = f"log-{k}.{rng.choice(['csv', 'txt', 'csv.gz'])}"
        packed = [text.encode(), gzip.compress(text.encode()), text.encode("utf-16")][int(rng.integers(0, 3))]
        (tmp_path / name).write_bytes(packed)
        expected[name] = rows
    for k in range(4):
        rows = int(rng.integers(20, 60))
        times = [None if rng.random() < 0.1 else NOON + 10 * row for row in range(rows)]
        places = [
            [float("nan"), 200.0, 8.5 + row / 1000, 8.5 + row / 1000][int(rng.integers(0, 4))] for row in range(rows)
        ]
        columns = {"id": ["7"] * rows, "time": pa.array(times, pa.int64()), "lon": places, "lat": [47.4] * rows}
        pq.write_table(pa.table(columns), tmp_path / f"log-{k}.parquet")
        expected[f"log-{k}.parquet"] = rows
    facts = ingest([tmp_path / name for name in expected], tmp_path / "out", ReadOptions(by_file=True, crs="EPSG:3857"))
    assert {name: one["records"] for name, one in facts["read"].items()} == expected
    assert {name: one["rows"] for name, one in facts["read"].items()} == expected
    kept, rejected = table(tmp_path / "out", "positions"), table(tmp_path / "out", "rejected")
    assert len(kept) + len(rejected) == sum(expected.values()) == facts["rows"]
    assert all(row["reason"] for row in rejected)
    assert {row["file"] for row in rejected} <= expected.keys()
