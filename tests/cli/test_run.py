"""`run` and `check`: one simulation, the same for the same seed, its trace whole or not there."""

import errno
import re
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.measures import METRIC_MEANINGS
from carrycast.sim.scenario.scenario import load_scenario
from tests.cli.console import EXAMPLES, QUICK, call, environment, spawn
from tests.cli.nodes import start
from tests.patience import PATIENCE_S

# Smaller than written, so that each takes a second; all nodes and events stay in play.
SMALLER = ["--set", "duration_s=60", "--set", "nodes=40", "--set", "measure.from_s=0"]


def test_the_metrics_are_printed_with_their_meanings() -> None:
    done = call("run", QUICK, "--seed", "7")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("quick, flooding, seed 7")
    for metric in METRIC_MEANINGS:
        assert f"\n{metric} " in done.out
    assert "\nfingerprint " in done.out


def test_json_is_one_object_with_the_promised_keys() -> None:
    found = call("run", QUICK, "--seed", "7", "--protocol", "gossip:p=0.3", "--json").object()
    assert list(found) == ["scenario", "protocol", "seed", "engine", "fingerprint", "metrics", "settings", "warnings"]
    assert (found["scenario"], found["protocol"], found["seed"]) == ("quick", "gossip", 7)
    metrics, settings = found["metrics"], found["settings"]
    assert isinstance(metrics, dict)
    assert isinstance(settings, dict)
    assert set(metrics) == set(METRIC_MEANINGS)
    assert settings["protocol"]["p"] == 0.3


def test_what_does_not_exist_in_a_run_is_null() -> None:
    metrics = call("run", QUICK, "--set", "radio.range_m=0.001", "--json").object()["metrics"]
    assert isinstance(metrics, dict)
    assert (metrics["delivered"], metrics["delivery_ratio"], metrics["delay_mean_s"]) == (0, 0.0, None)
    metrics = call("run", QUICK, "--set", "nodes=1", "--json").object()["metrics"]
    assert isinstance(metrics, dict)
    assert (metrics["eligible"], metrics["delivery_ratio"]) == (0, None)


def test_settings_and_seed_change_the_run_and_nothing_else_does() -> None:
    first = call("run", QUICK, "--json").object()
    assert call("run", QUICK, "--json", "--seed", "1").object() == first
    assert call("run", QUICK, "--json", "--seed", "2").object()["fingerprint"] != first["fingerprint"]
    wider = call("run", QUICK, "--json", "--set", "radio.range_m=150").object()
    assert wider["fingerprint"] != first["fingerprint"]


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_every_example_gives_one_fingerprint_under_any_hash_seed(example: str) -> None:
    def told(hash_seed: str) -> dict[str, object]:
        env = environment(PYTHONHASHSEED=hash_seed)
        return spawn("run", EXAMPLES / example, "--seed", "7", "--json", *SMALLER, env=env).object()

    first = told("0")
    metrics = first["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["delivered"] > 0
    assert told("4242") == first


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_every_example_is_fine(example: str) -> None:
    facts = call("check", EXAMPLES / example, "--json").object()
    assert facts["ok"] is True
    assert facts["scenario"] == example.removesuffix(".toml")


def test_the_trace_is_kept_and_does_not_change_the_run(tmp_path: Path) -> None:
    full, deliveries = tmp_path / "kept" / "full", tmp_path / "deliveries"
    found = call("run", QUICK, "--trace", full, "--json").object()
    assert (
        call("run", QUICK, "--trace", deliveries, "--level", "deliveries", "--json").object()["fingerprint"]
        == (found["fingerprint"])
    )
    kinds = pq.read_table(full / "trace").column("kind").to_pylist()
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert kinds.count("publish") == metrics["published"] == pq.read_table(full / "events").num_rows
    assert set(pq.read_table(deliveries / "trace").column("kind").to_pylist()) < set(kinds)
    assert pq.read_table(full / "subscriptions").num_rows == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deliveries", "kept"]
    assert [path.name for path in full.parent.iterdir()] == ["full"]


def test_a_folder_with_something_in_it_takes_no_trace(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    line = call("run", QUICK, "--trace", tmp_path).refusal()
    assert line == f"carrycast: {tmp_path}: is not empty; give a new folder for the trace"
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_an_empty_folder_takes_a_trace(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert call("run", QUICK, "--trace", tmp_path / "new").status == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["events", "scene", "subscriptions", "trace"]


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_folder_takes_no_trace(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / "file") in call("run", QUICK, "--trace", tmp_path / place).refusal()
    assert (tmp_path / "file").read_text() == "precious"


class Failing:
    """Writes the first tables whole, then half of one before the given error."""

    def __init__(self, whole: int, error: BaseException) -> None:
        self.whole, self.error = whole, error
        self.write = pq.write_table

    def __call__(self, table: pa.Table, where: Path, **options: object) -> None:
        self.write(table, where, **options)
        self.whole -= 1
        if self.whole < 0:
            where.write_bytes(where.read_bytes()[:100])
            raise self.error


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_full_disk_leaves_no_trace_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    failing = Failing(whole, OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(pq, "write_table", failing)
    line = call("run", QUICK, "--trace", tmp_path / "trace").refusal(1)
    assert "No space left on device" in line
    assert str(tmp_path / "trace") in line
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pq, "write_table", Failing(1, KeyboardInterrupt()))
    assert "carrycast: interrupted at " in call("run", QUICK, "--trace", tmp_path / "trace").refusal(130)
    assert list(tmp_path.iterdir()) == []


LONG = ("--set", "duration_s=20000", "--set", "publish.0.to_s=20000", "--set", "publish.0.interval_s=0.1")


@pytest.mark.parametrize("command", ["run", "show"])
def test_an_interrupted_run_ends_in_one_line_that_says_how_to_go_on(command: str) -> None:
    with start(command, QUICK, *LONG) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert re.fullmatch(r"simulated \d+ of 20000 s in \d+ s, about \d+ s left\n", told)
    assert (process.returncode, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith("carrycast: interrupted at ")
    assert last.endswith(" of 20000 simulated seconds; nothing is kept, the same command starts again")


def test_interrupted_work_that_goes_on_later_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("carrycast.analysis.spark.comparison.compare", interrupted)
    line = call("compare", QUICK, "--protocols", "flooding", "--out", tmp_path).refusal(130)
    assert line == f"carrycast: interrupted; what is done is kept in {tmp_path}; the same command continues there"


def test_somebody_who_watches_a_run_does_not_change_it() -> None:
    scenario = load_scenario(QUICK)
    told: list[float] = []
    assert run(scenario, 3, on_progress=told.append).fingerprint == run(scenario, 3).fingerprint
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] < scenario.duration_s
