"""Random scenarios: some hundred that `python -m carrycast.sim.testing.fuzz` draws, and the generator itself."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from carrycast.core.protocol.registry import protocol_names
from carrycast.sim.scenario.faults import Fault
from carrycast.sim.testing.fuzz import FuzzCase, WorkerPair, draw_case, load_case, shrink_case
from carrycast.sim.testing.fuzz.case import format_toml
from carrycast.sim.testing.fuzz.scenarios import HOSTILE_VALUES

SEED = 7
CHUNKS, CHUNK = 4, 75


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_scenarios_run_alike_twice_or_are_refused_in_one_line(chunk: int) -> None:
    """In two processes with different hash seeds, levels of trace and ways through the engine, under all checkers."""
    delivered = ran = 0
    with WorkerPair(chunk) as pair:
        for index in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            verdict = pair.judge_drawn(SEED, index)
            replay = f"python -m carrycast.sim.testing.fuzz --seed {SEED} --first {index} --count 1"
            assert verdict.status != "failed", f"{verdict.text}; shrink it with: {replay}"
            ran += verdict.status == "same"
            delivered += verdict.delivered > 0
    # A workload that reaches nobody tests little.
    assert ran > 0.8 * CHUNK
    assert delivered > 0.5 * ran


def test_cases_cover_all_protocols_and_all_faults_and_follow_from_their_number() -> None:
    cases = [draw_case(SEED, index) for index in range(500)]
    assert [draw_case(SEED, index) for index in range(20)] == cases[:20]
    assert draw_case(SEED + 1, 0) != cases[0]
    # A spoiled case may have another value in place of the table.
    protocols = {str(table.get("name")) for case in cases if isinstance(table := case.tables["protocol"], dict)}
    assert protocols >= set(protocol_names())
    listed = [faults for case in cases if isinstance(faults := case.tables.get("faults"), list)]
    kinds = {str(fault.get("kind")) for faults in listed for fault in faults if isinstance(fault, dict)}
    assert kinds >= {str(kind.__struct_config__.tag) for kind in Fault.__args__}


def test_a_case_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    for index in range(100):
        case = draw_case(SEED, index)
        path = case.write(tmp_path / str(index))
        assert repr(load_case(path, case.seed).tables) == repr(tomllib.loads(format_toml(case.tables)))
        if "nan" not in repr(case.tables):
            assert tomllib.loads(format_toml(case.tables)) == case.tables


def test_every_hostile_value_can_be_written() -> None:
    for value in HOSTILE_VALUES:
        assert repr(tomllib.loads(format_toml({"a": value, "b": [{"c": value}]}))) == repr(
            {"a": value, "b": [{"c": value}]}
        )


# A run that must end badly: nodes forget an event before its copies are gone.
WRONG: dict[str, object] = {
    "duration_s": 20.0,
    "nodes": 6,
    "area_m": [500.0, 10.0],
    "mobility": {"model": "random_static"},
    "radio": {"model": "disk", "delay_s": 0.2, "range_m": 200.0},
    "discovery": {"mode": "oracle"},
    "protocol": {"name": "processor_flooding", "seen_s": 0.01, "send_by": "broadcast", "retries": 2},
    "subscribe": [{}, {"filter": "topic = 1"}],
    "publish": [{"count": 10}, {"count": 3, "lease_s": 5.0}],
    "faults": [{"kind": "loss", "probability": 0.01}],
}


def test_a_failure_is_found_named_and_shrunk(tmp_path: Path) -> None:
    """Events that are forgotten at once are delivered twice; what has nothing to do with that is left out."""
    with WorkerPair() as pair:
        case = FuzzCase(WRONG, {}, 1)
        verdict = pair.judge(case)
        assert (verdict.status, verdict.kind) == ("failed", "checker")
        small = shrink_case(case, lambda one: pair.judge(one).signature == verdict.signature, attempts=60)
        assert pair.judge(small).signature == verdict.signature
    assert {"faults", "discovery"}.isdisjoint(small.tables)
    assert len(format_toml(small.tables)) < len(format_toml(case.tables))
    path = small.write(tmp_path)
    command = [sys.executable, "-m", "carrycast.sim.testing.fuzz", "--replay", str(path), "--run-seed", "1"]
    replayed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert replayed.returncode == 1
    assert json.loads(replayed.stdout)["signature"] == verdict.signature


def test_a_run_that_takes_too_long_and_one_that_takes_too_much_memory_are_failures() -> None:
    plain = {key: value for key, value in WRONG.items() if key not in ("protocol", "faults")}
    slow = {**plain, "protocol": {"name": "flooding"}, "publish": [{"count": 200_000}]}
    large = {**plain, "protocol": {"name": "flooding"}, "publish": [{"count": 4000, "payload_bytes": 1 << 20}]}
    with WorkerPair(limit_s=1.0) as pair:
        assert pair.judge(FuzzCase(slow, {}, 1)).kind == "too_long"
        verdict = pair.judge(FuzzCase(large, {}, 1))
        assert verdict.status == "failed"
        # The process that met it goes on.
        good = {**plain, "protocol": {"name": "flooding"}}
        assert pair.judge(FuzzCase(good, {}, 1)).status == "same"


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "carrycast.sim.testing.fuzz", "--seed", str(SEED), "--resume", str(results)]
    command += ["--failures", str(tmp_path / "failures")]
    for count in (3, 5):
        done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        indices = [json.loads(line)["index"] for line in results.read_text("utf-8").splitlines()]
        assert indices == list(range(count))
    assert "5 scenarios" in done.stdout
