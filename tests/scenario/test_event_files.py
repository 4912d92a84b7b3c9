"""Events from files: valid files, errors, and runs that publish them."""

from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario import event_files
from carrycast.sim.scenario.event_files import RecordedEvent, read_events
from carrycast.sim.scenario.inputs import input_digest
from carrycast.sim.scenario.movement import check_files
from carrycast.sim.scenario.workload import PublishEntry, draw_workload
from tests.simulation.worlds import line

CSV = 'time_s,node,rain_mm,gauge,wet,payload\n0.5,1,2.5,north,true,\n1,,3,"a, b",false,hello\n\n2,0,,south,,\n'
JSONL = """{"time_s": 0.5, "node": 1, "attributes": {"rain_mm": 2.5, "gauge": "north", "wet": true}}

{"time_s": 1, "attributes": {"rain_mm": 3, "gauge": "a, b", "wet": false}, "payload": "hello"}
{"time_s": 2, "node": 0, "attributes": {"gauge": "south"}}
"""
EVENTS = [
    RecordedEvent(0.5, 1, {"rain_mm": 2.5, "gauge": "north", "wet": True}, b""),
    RecordedEvent(1.0, None, {"rain_mm": 3, "gauge": "a, b", "wet": False}, b"hello"),
    RecordedEvent(2.0, 0, {"gauge": "south"}, b""),
]


def write_events(folder: Path, text: str | bytes, suffix: str) -> Path:
    path = folder / f"events{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("text", "suffix"), [(CSV, ".csv"), (JSONL, ".jsonl"), ("\ufeff" + CSV, ".csv")])
def test_both_forms_say_the_same(tmp_path: Path, text: str, suffix: str) -> None:
    found = read_events(write_events(tmp_path, text, suffix), 3)
    assert found == EVENTS
    assert [[type(value) for value in event.attributes.values()] for event in found] == [
        [float, str, bool],
        [int, str, bool],
        [str],
    ]


def test_a_payload_may_be_bytes(tmp_path: Path) -> None:
    text = '{"time_s": 0, "payload_base64": "AP8="}\n'
    assert read_events(write_events(tmp_path, text, ".jsonl"), 1)[0].payload == b"\x00\xff"


def test_an_empty_file_has_no_events(tmp_path: Path) -> None:
    assert read_events(write_events(tmp_path, "", ".csv"), 1) == []
    assert read_events(write_events(tmp_path, "\n", ".jsonl"), 1) == []


@pytest.mark.parametrize(
    ("text", "suffix", "told"),
    [
        ("time_s,rain\n1,2\nsoon,3\n", ".csv", ":3: time_s: 'soon' is no number of seconds from 0 to 1e+09"),
        ("time_s,rain\nnan,2\n", ".csv", ":2: time_s: 'nan' is no number of seconds"),
        ("time_s,rain\n-1,2\n", ".csv", ":2: time_s: '-1' is no number of seconds"),
        ("time_s,rain\n1e999,2\n", ".csv", ":2: time_s: '1e999' is no number of seconds"),
        ("time_s,node\n1,-2\n", ".csv", ":2: node: '-2' is no number of a node"),
        ("time_s,node\n1,9\n", ".csv", ":2: there is no node 9; nodes are 0 to 2"),
        ("time_s,rain\n1,2,3\n", ".csv", ":2: 3 fields, but the first line names 2"),
        ("when,rain\n1,2\n", ".csv", ":1: the first line names the columns, each once, time_s among them"),
        ("time_s,a,a\n", ".csv", ":1: the first line names the columns"),
        ("time_s,\n", ".csv", ":1: the first line names the columns"),
        ('time_s,a\n1,"b\n', ".csv", ":2: unexpected end of data"),
        (
            "time_s,a\n1,99999999999999999999\n1,9999999999999999999\n",
            ".csv",
            ":3: attribute 'a' does not fit in 64 bits",
        ),
        ("time_s,a\n1,1e999\n", ".csv", ":2: attribute 'a' is not a finite number"),
        (b"time_s,a\n1,\xff\n", ".csv", ":2: not text in UTF-8"),
        ('{"time_s": 1}\n{"time_s": "soon"}\n', ".jsonl", ":2: Expected `float`, got `str` - at `$.time_s`"),
        ('{"time_s": 1}\n{"time_s": 1,\n', ".jsonl", ":2: Input data was truncated"),
        ('{"rain": 1}\n', ".jsonl", ":1: Object"),
        ('{"time_s": 1, "node": 3}\n', ".jsonl", ":1: there is no node 3"),
        ('{"time_s": 1, "attributes": {"a": [1]}}\n', ".jsonl", ":1: Expected"),
        (
            '{"time_s": 1, "payload": "a", "payload_base64": "AA=="}\n',
            ".jsonl",
            ":1: payload and payload_base64 are two",
        ),
        ("x", ".txt", ": events are read from .csv or .jsonl"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str | bytes, suffix: str, told: str) -> None:
    path = write_events(tmp_path, text, suffix)
    with pytest.raises(UserError) as refused:
        read_events(path, 3)
    assert str(refused.value).startswith(f"{path}{told}")
    assert "\n" not in str(refused.value)


def test_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "MAX_FILE_EVENTS", 2)
    with pytest.raises(UserError, match=r"events.csv:5: more than 2 events"):
        read_events(write_events(tmp_path, CSV, ".csv"), 3)
    monkeypatch.setattr(event_files, "MAX_LINE_BYTES", 20)
    with pytest.raises(UserError, match=r"events.csv:1: longer than 20 bytes"):
        read_events(write_events(tmp_path, CSV, ".csv"), 3)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_events(tmp_path / "none.csv", 3)


def test_events_are_published_at_their_times_by_their_nodes(tmp_path: Path) -> None:
    path = write_events(tmp_path, CSV, ".csv")
    entry = PublishEntry(nodes=[2], file=str(path), from_s=10.0, attributes={"topic": "rain", "wet": 7}, lease_s=9.0)
    played = draw_workload([], [entry], {}, 3, 11.5, 1).publishes
    assert [(time_s, event.id.source) for time_s, event in played] == [(10.5, 1), (11.0, 2)], "the third is too late"
    assert played[0].event.attributes == {"topic": "rain", "wet": True, "rain_mm": 2.5, "gauge": "north"}
    assert (played[1].event.payload, played[1].event.lease_s) == (b"hello", 9.0)
    several = PublishEntry(nodes=[0, 2], file=str(path), payload_bytes=5)
    drawn = [draw_workload([], [several], {}, 3, 9.0, seed).publishes for seed in range(20)]
    assert {publishes[1].event.id.source for publishes in drawn} == {0, 2}, "one of the entry's nodes is drawn"
    assert {len(publishes[0].event.payload) for publishes in drawn} == {5}


def test_a_run_reads_the_file_beside_its_scenario_and_depends_on_it(tmp_path: Path) -> None:
    write_events(tmp_path, CSV, ".csv")
    scenario = line(base=str(tmp_path), publish=[{"file": "events.csv"}], subscribe=[{"nodes": [2], "filter": "wet"}])
    check_files(scenario)
    assert run(scenario, 1).metrics["published"] == 3
    before = input_digest(scenario)
    write_events(tmp_path, CSV + "3,1,,,,\n", ".csv")
    assert input_digest(scenario) != before
    write_events(tmp_path, CSV + "3,7,,,,\n", ".csv")
    with pytest.raises(UserError, match=r"events.csv:6: there is no node 7"):
        check_files(scenario)


def test_a_file_is_a_rhythm_of_its_own() -> None:
    with pytest.raises(UserError, match="exactly one of every_s, count, interval_s, file \\(it has count, file\\)"):
        line(publish=[{"file": "events.csv", "count": 3}])
