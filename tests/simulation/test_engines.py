"""The native engine: the same results as the Python engine to the last bit, where it covers a run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import hatch_build
from benchmarks.differential import CONDITIONS, compare_engines, compare_native, compare_random
from carrycast.errors import UserError, WorkError
from carrycast.native import has_native_core
from carrycast.sim.engine import NATIVE, PYTHON, ViolationError, run
from carrycast.sim.engine.native.protocols import find_values
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.radio import RADIOS
from carrycast.sim.scenario import Scenario, draw_workload, parse_scenario
from carrycast.trace import Level

needs_core = pytest.mark.skipif(
    not shutil.which("cc") and not shutil.which("c++"), reason="there is no C++ compiler to build the native core"
)
SEED, COUNT, CHUNK = 11, 50, 10


def make_scenario(**changes: object) -> Scenario:
    table = {
        "name": "engines",
        "duration_s": 60,
        "nodes": 12,
        "area_m": [500, 500],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 20},
        "radio": {"model": "disk", "range_m": 150},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "epidemic"},
        "subscribe": [{"filter": "a > 0"}],
        "publish": [{"count": 10, "payload_bytes": 100, "attributes": {"a": 1}}],
    }
    return parse_scenario(table | changes, "engines")


@needs_core
def test_the_native_core_is_built_where_there_is_a_compiler() -> None:
    assert has_native_core()


@needs_core
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_random_scenarios_have_the_same_results_with_both_engines(first: int) -> None:
    found = [compare_random(SEED, index) for index in range(first, first + CHUNK)]
    assert [one for one in found if one.verdict == "differs"] == []
    assert sum(one.verdict == "same" for one in found) >= CHUNK // 3


@needs_core
def test_native_protocols_have_the_results_of_the_python_classes() -> None:
    """Random scenarios of flooding, gossip and epidemic with short leases, losses, queues and small limits."""
    found = [compare_native(SEED, index) for index in range(40)]
    assert [one for one in found if one.verdict != "same"] == []


@needs_core
@pytest.mark.parametrize(
    ("protocol", "changes", "native"),
    [
        ({"name": "flooding"}, {}, True),
        ({"name": "gossip", "jitter_s": 0.1}, {}, True),
        ({"name": "epidemic"}, {}, True),
        ({"name": "epidemic", "buffer": 9}, {}, False),
        ({"name": "epidemic", "durable": True}, {}, False),
        ({"name": "epidemic"}, {"discovery": {"mode": "beacon"}}, False),
        ({"name": "epidemic"}, {"faults": [{"kind": "loss", "probability": 0.1}]}, False),
        ({"name": "epidemic"}, {"request": [{"filter": "a > 0", "at_s": 5}]}, False),
        ({"name": "epidemic"}, {"subscribe": [{"filter": "a > 0", "history": True}]}, False),
        ({"name": "prophet"}, {}, False),
    ],
)
def test_a_native_protocol_runs_where_it_covers_the_settings(
    protocol: dict[str, object], changes: dict[str, object], native: bool
) -> None:
    scenario = make_scenario(protocol=protocol, **changes)
    workload = draw_workload(scenario.subscribe, scenario.publish, {}, scenario.nodes, scenario.duration_s, 1)
    assert (find_values(scenario, scenario.make_stack_plan(), workload) is not None) == native
    compared = compare_engines("coverage", scenario, 1)
    assert compared.verdict == "same", compared.text


@needs_core
@pytest.mark.parametrize(("level", "recode"), CONDITIONS)
def test_traces_of_both_engines_are_equal(level: Level, recode: bool) -> None:
    radio = {"model": "disk", "range_m": 150, "loss": 0.1, "rate_bps": 50_000, "queue": 5}
    compared = compare_engines("losses and queues", make_scenario(radio=radio), 1, level, recode)
    assert compared.verdict == "same", compared.text


@needs_core
def test_faults_clocks_and_restarts_have_the_same_results_with_both_engines() -> None:
    faults: list[dict[str, object]] = [
        {"kind": "crash", "nodes": "50%", "every_s": 20, "down_s": 5},
        {"kind": "loss", "probability": 0.1},
        {"kind": "duplication", "probability": 0.2},
        {"kind": "corruption", "probability": 0.1},
        {"kind": "clock_skew", "offset_s": 5, "drift": 0.01},
        {"kind": "link_slow", "between": [0, 1], "at_s": 5, "for_s": 20, "delay_s": 0.5},
        {"kind": "link_cuts", "every_s": 2, "for_s": 5},
        {"kind": "cut_off", "nodes": "30%", "every_s": 10, "for_s": 5},
    ]
    for fault in faults:
        compared = compare_engines(str(fault["kind"]), make_scenario(faults=[fault]), 1, Level.FULL)
        assert compared.verdict == "same", (fault, compared.text)


@needs_core
def test_the_outcome_names_the_engine() -> None:
    scenario = make_scenario()
    assert [run(scenario, 1, engine=asked).engine for asked in ("auto", "native", "python")] == [NATIVE, NATIVE, PYTHON]
    assert run(scenario, 1).summary()["engine"] == NATIVE


class PlugInRadio(DiskRadio, frozen=True, kw_only=True):
    """A radio of somebody else."""

    name: ClassVar[str] = "plug_in"


@needs_core
def test_auto_uses_the_python_engine_for_a_run_that_the_native_engine_does_not_cover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(RADIOS, "plug_in", f"{__name__}:PlugInRadio")
    scenario = make_scenario(radio={"model": "plug_in", "range_m": 150}, duration_s=5)
    assert run(scenario, 1, engine="auto").engine == PYTHON
    with pytest.raises(UserError, match=r"does not cover the radio plug_in; use --engine python or auto$"):
        run(scenario, 1, engine="native")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match="they are auto, python, native"):
        run(make_scenario(), 1, engine="rust")


@needs_core
def test_a_violation_ends_both_engines_with_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol that delivers every event twice."""
    from carrycast.protocols.flooding.protocol import Flooding

    publish = Flooding.on_publish

    def publish_twice(self: Flooding, now: float, event: object) -> None:
        publish(self, now, event)  # type: ignore[arg-type]
        self._flood.local.deliver(event, 0)  # type: ignore[arg-type]

    monkeypatch.setattr(Flooding, "on_publish", publish_twice)
    # With beacons the protocol is in Python.
    scenario = make_scenario(protocol={"name": "flooding"}, discovery={"mode": "beacon"})
    assert compare_engines("twice", scenario, 1).verdict == "same"
    with pytest.raises(ViolationError, match="a second time"):
        run(scenario, 1, engine=NATIVE)


@needs_core
def test_an_error_in_a_handler_is_reported_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from carrycast.protocols.epidemic.protocol import Epidemic

    def fail(self: Epidemic, now: float, key: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(Epidemic, "on_timer", fail)
    scenario = make_scenario(duration_s=200, discovery={"mode": "beacon"})
    assert compare_engines("mistake", scenario, 1).text == ""
    with pytest.raises(WorkError, match=r"node \d+: ValueError: a mistake"):
        run(scenario, 1, engine=NATIVE)


def test_without_a_compiler_the_build_says_so_in_one_line_and_installs_pure_python(tmp_path: Path) -> None:
    sources = tmp_path / hatch_build.SOURCES
    shutil.copytree(hatch_build.ROOT / hatch_build.SOURCES, sources)
    shutil.copy(hatch_build.ROOT / "hatch_build.py", tmp_path)
    environment = {"PATH": "", "CC": "/nowhere/cc", "CXX": "/nowhere/cc"}
    done = subprocess.run(
        [sys.executable, "hatch_build.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("carrycast: the native core was not built, the simulator will be pure Python: ")
    assert not list((tmp_path / hatch_build.PACKAGE).glob("*.so"))


@needs_core
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_sanitizers_find_nothing_in_random_scenarios(tmp_path: Path) -> None:
    """A build with the address and undefined-behavior sanitizers runs the differential test."""
    for folder in ("src", "benchmarks", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "test_*")
        shutil.copytree(hatch_build.ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(hatch_build.ROOT / "hatch_build.py", tmp_path)
    subprocess.run([sys.executable, "hatch_build.py", "--sanitize"], cwd=tmp_path, check=True)
    libraries = [
        subprocess.run(["c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(tmp_path)]),
        "LD_PRELOAD": " ".join(libraries),
        # Python keeps objects to its end, and its own allocator would hide overflows.
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }
    script = (
        "from benchmarks.differential import compare_native, compare_random\n"
        "found = [compare_native(3, index) for index in range(60)]\n"
        "found += [compare_random(3, index, 600) for index in range(100)]\n"
        "assert not [one for one in found if one.verdict == 'differs'], found\n"
        "print(sum(one.verdict == 'same' for one in found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 100
