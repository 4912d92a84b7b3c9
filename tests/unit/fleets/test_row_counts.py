"""Every row of a file is kept or rejected: random files of every format."""

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings, strategies as st

from carrycast.analysis.fleets.formats import FORMATS
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.inputs import FleetFile, RowCount
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.analysis.fleets.staging import RowStager
from carrycast.errors import UserError

NUMBERS = st.one_of(
    st.integers(-200, 200),
    st.floats(-200, 200, allow_nan=False).map(lambda value: round(value, 5)),
    st.just(1777896000),
)
WORDS = st.sampled_from(["", "soon", "NaN", "2026-05-04T06:00:00Z", "1777896000123456789", "é", "7"])
VALUES = st.one_of(NUMBERS, WORDS, st.none())
PLACES = st.one_of(st.lists(VALUES, min_size=0, max_size=3), VALUES)
ODD = st.recursive(PLACES, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
GEOMETRY = st.recursive(
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "Circle"]),
                "coordinates": ODD,
            }
        ),
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("GeometryCollection"), "geometries": st.lists(inner, max_size=3)}
    ),
    max_leaves=4,
)
FEATURE = st.one_of(
    GEOMETRY,
    VALUES,
    st.fixed_dictionaries(
        {
            "type": st.just("Feature"),
            "geometry": GEOMETRY,
            "properties": st.one_of(
                st.none(), st.fixed_dictionaries({"id": VALUES, "time": VALUES, "coordTimes": ODD}), st.just({"id": 3})
            ),
        }
    ),
)


def count_rows(name: str, text: str) -> tuple[RowCount, int] | None:
    """The reader's count and the rows that it wrote; None for a file that it rejects."""
    with tempfile.TemporaryDirectory() as folder:
        path, to = Path(folder, "file"), Path(folder, "rows.parquet")
        path.write_text(text, "utf-8")
        try:
            found = RowStager(ReadOptions(merge=True)).stage(FleetFile(path, FORMATS[name], path), to)
        except UserError:
            return None
        return found, pq.read_metadata(to).num_rows


@given(st.lists(FEATURE, max_size=6), st.booleans())
@settings(max_examples=300, deadline=None)
def test_geojson(features: list[object], by_lines: bool) -> None:
    whole = json.dumps({"type": "FeatureCollection", "features": features})
    lines = "\n".join(json.dumps(one) for one in [{"type": "Feature"}, *features]) + "\n"
    result = count_rows("geojson", lines if by_lines else whole)
    if result is not None:
        found, rows = result
        assert found.records == found.rows == rows >= len(features)


@given(st.lists(st.tuples(st.sampled_from(["trkpt", "wpt", "rtept", "ele"]), WORDS, VALUES, VALUES), max_size=20))
@settings(max_examples=150, deadline=None)
def test_gpx(points: list[tuple[str, str, object, object]]) -> None:
    text = "".join(f'<{tag} lat="{lat}" lon="{lon}"><time>{time}</time></{tag}>' for tag, time, lat, lon in points)
    result = count_rows("gpx", f"<gpx><trk><name>bus</name><trkseg>{text}</trkseg></trk></gpx>")
    told = sum(tag != "ele" for tag, *_ in points)
    assert result == (RowCount(told, told), told) if any(tag == "trkpt" for tag, *_ in points) else result is None


STEPS = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from(["vehicle", "person", "container", "bus"]), st.sampled_from("abc")),
        st.tuples(st.integers(-500, 500), st.integers(-500, 500)),
        max_size=6,
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_floating_car_data(steps: list[dict[tuple[str, str], tuple[int, int]]]) -> None:
    text = "".join(
        f'<timestep time="{second}">'
        + "".join(f'<{tag} id="{name}" x="{x}" y="{y}"/>' for (tag, name), (x, y) in step.items())
        + "</timestep>"
        for second, step in enumerate(steps)
    )
    told = sum(tag != "bus" for step in steps for tag, _ in step)
    result = count_rows("sumo", f"<fcd-export>{text}</fcd-export>")
    assert result == ((RowCount(told, told), told) if told else None)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), NUMBERS, NUMBERS), min_size=1, max_size=6), min_size=1, max_size=5)
)
@settings(max_examples=100, deadline=None)
def test_bonnmotion(nodes: list[list[tuple[int, float, float]]]) -> None:
    text = "".join(" ".join(f"{t} {x} {y}" for t, x, y in sorted(line)) + "\n" for line in nodes)
    result = count_rows("bonnmotion", text)
    if result is not None:
        found, rows = result
        assert found.records == sum(map(len, nodes))
        assert found.superseded == sum(len(line) - len({t for t, *_ in line}) for line in nodes)
        assert found.rows == rows


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 99), st.integers(1, 9)), max_size=15))
@settings(max_examples=100, deadline=None)
def test_ns2(commands: list[tuple[int, int, int, int]]) -> None:
    places = "".join(f"$node_({k}) set X_ {k}\n$node_({k}) set Y_ 0\n" for k in range(4))
    text = "".join(f'$ns_ at {t} "$node_({k}) setdest {x} 5 {speed}"\n' for k, t, x, speed in commands)
    result = count_rows("ns2", places + text)
    assert result is not None
    found, rows = result
    assert found.records == 8 + len(commands)
    assert found.superseded == len(commands) - len({(k, t) for k, t, *_ in commands})
    assert found.rows == rows


@given(
    st.lists(st.dictionaries(st.integers(0, 3), st.integers(-200, 200), min_size=1, max_size=4), min_size=1, max_size=8)
)
@settings(max_examples=100, deadline=None)
def test_one(steps: list[dict[int, int]]) -> None:
    lines = [f"{second} {node} {x} 0" for second, step in enumerate(steps) for node, x in step.items()]
    result = count_rows("one", "0 0 -999 999 -999 999\n" + "\n".join(lines) + "\n")
    assert result is not None
    found, rows = result
    assert (found.records, found.superseded) == (len(lines), 0)
    assert found.rows == rows


LIST_ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=20)


@given(LIST_ROWS, st.sampled_from(["haggle", "sociopatterns", "csv-contacts"]))
@settings(max_examples=200, deadline=None)
def test_lists_of_contacts(rows: list[tuple[object, ...]], name: str) -> None:
    mark = "," if name == "csv-contacts" else " "
    lines = [mark.join("" if value is None else str(value) for value in row) for row in rows]
    head = "a,b,start,end\n" if name == "csv-contacts" else ""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "list").write_text(head + "\n".join(lines) + "\n", "utf-8")
        try:
            facts = ingest([Path(folder, "list")], Path(folder, "out"), ReadOptions(format=name))
        except UserError:
            return
        rejected = pq.read_metadata(Path(folder, "out", "rejected.parquet")).num_rows
    kept = facts["joined"] + facts["contacts"]
    assert facts["rows"] == sum(bool(line.strip()) for line in lines) == kept + rejected
    assert rejected == sum(facts["rejected"].values())
