"""The native engine against its goals: CPU and memory of both engines, measured in turn, and the share of runs that the
native engine covers.

    python -m benchmarks.engines            all works but a million nodes
    python -m benchmarks.engines --million
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import carriers, csma, epidemic, flooding
from carrycast.sim.engine import AUTO, NATIVE, PYTHON, run, select_engine
from carrycast.sim.scenario import Scenario, compute_movement, load_scenario, parse_scenario
from carrycast.sim.scenario.overrides import apply_overrides

SEED = 1
EXAMPLES = Path(__file__).parents[1] / "examples"
LEAST_SHARE = 0.95


class Work(NamedTuple):
    """A scenario with its goal in CPU seconds."""

    name: str
    scenario: Callable[[], Scenario]
    seed: int
    goal_s: float | None


def _spcast() -> Scenario:
    return apply_overrides(load_scenario(carriers.COMMUNITY), carriers.SETTINGS["spcast"], "spcast")


def _drift() -> Scenario:
    return apply_overrides(load_scenario(EXAMPLES / "dense.toml"), {"protocol": {"name": "drift"}}, "drift")


WORKS = (
    Work("W2 epidemic, 200 nodes", lambda: epidemic.scenario(200), SEED, 0.15),
    Work("W2 epidemic, 1000 nodes", lambda: epidemic.scenario(1000), SEED, 0.8),
    Work("W3 flood, disk", flooding.scenario, flooding.SEED, 0.15),
    Work("W3 flood, csma", csma.scenario, csma.SEED, 0.6),
    Work("W4 adaptive", lambda: load_scenario(carriers.COMMUNITY), SEED, 5.0),
    Work("W4 spcast, a Python protocol", _spcast, SEED, None),
    Work("flooding with beacons, dense", lambda: load_scenario(EXAMPLES / "dense.toml"), SEED, None),
    Work("drift, dense", _drift, SEED, None),
)


def measure(work: Work, repeats: int = 2) -> dict[str, object]:
    """CPU seconds of a work with both engines, the best of runs in turn. Contacts are computed before."""
    scenario = work.scenario()
    compute_movement(scenario, work.seed)
    engines = list(dict.fromkeys([PYTHON, select_engine(AUTO, scenario)]))
    best_s = dict.fromkeys(engines, math.inf)
    prints: set[str] = set()
    for _ in range(repeats):
        for engine in engines:
            began_s = time.process_time()
            prints.add(run(scenario, work.seed, engine=engine).fingerprint)
            best_s[engine] = min(best_s[engine], time.process_time() - began_s)
    assert len(prints) == 1, f"{work.name}: the engines differ"
    return {"python_s": best_s[PYTHON], "native_s": best_s.get(NATIVE)}


def large_scenario(nodes: int) -> Scenario:
    """Epidemic at the density of W2 for 60 s, with one event of 1 kB."""
    side_m = 2000.0 * math.sqrt(nodes / 200)
    return parse_scenario(
        {
            "name": f"large-{nodes}",
            "duration_s": 60,
            "nodes": nodes,
            "area_m": [side_m, side_m],
            "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 10},
            "radio": {"model": "disk", "range_m": 250, "delay_s": 0.001},
            "discovery": {"mode": "oracle"},
            "protocol": {"name": "epidemic"},
            "subscribe": [{"filter": "w = 2"}],
            "publish": [{"count": 1, "from_s": 5, "to_s": 20, "payload_bytes": 1024, "attributes": {"w": 2}}],
        },
        "large",
    )


def run_large(nodes: int) -> dict[str, object]:
    """A large run with its contacts, in this process: CPU seconds, peak of memory, delivered copies."""
    began_s = time.process_time()
    outcome = run(large_scenario(nodes), SEED, engine=NATIVE)
    cpu_s = time.process_time() - began_s
    # Not `ru_maxrss`, which a process inherits from the one that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak_mb = int(status["VmHWM"].split()[0]) / 1024
    copies = outcome.metrics["delivered"]
    assert isinstance(copies, int)
    return {"cpu_s": cpu_s, "peak_mb": peak_mb, "us_per_copy": 1e6 * cpu_s / max(copies, 1)}


def measure_large(nodes: int) -> dict[str, float]:
    """A large run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engines", "--large", str(nodes)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure_tiny() -> float:
    """User CPU seconds of a tiny run from the command line, the best of three."""
    best_s = math.inf
    for _ in range(3):
        before_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = [sys.executable, "-m", "carrycast", "-q", "run", str(EXAMPLES / "quick.toml")]
        subprocess.run(command, capture_output=True, check=True)
        best_s = min(best_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_s)
    return best_s


def count_covered() -> tuple[int, int]:
    """The runs of all examples and experiments that the native engine covers, and all of them."""
    from carrycast.analysis.spark.experiment import experiment_names, load_experiment

    runs = [(load_scenario(path), 1) for path in sorted(EXAMPLES.glob("*.toml"))]
    for name in experiment_names():
        experiment = load_experiment(name)
        runs += [(point.scenario, len(experiment.seeds_at(point))) for point in experiment.points]
    covered = 0
    for scenario, count in runs:
        covered += count if select_engine(AUTO, scenario) == NATIVE else 0
    return covered, sum(count for _, count in runs)


def rows(quick: bool) -> list[dict[str, object]]:
    """The rows of the table of `make bench`."""
    found: list[dict[str, object]] = []
    for work in WORKS:
        if quick and work.name.startswith("W4"):
            continue
        times = measure(work, repeats=1 if quick else 2)
        python_s, native_s = times["python_s"], times["native_s"]
        cpu_s = python_s if native_s is None else native_s
        assert isinstance(python_s, float)
        assert isinstance(cpu_s, float)
        figure = "python engine" if native_s is None else f"{python_s / cpu_s:.1f} times less than Python"
        row: dict[str, object] = {"case": f"Engine: {work.name}", "cpu_s": cpu_s, "figure": figure, "target": ""}
        if work.goal_s is not None:
            row |= {"target": f"at most {work.goal_s:g} s", "met": cpu_s <= work.goal_s}
        found.append(row)
    goals = {10_000: (1.0, 400), 100_000: (8.0, 400), 1_000_000: (90.0, 3500)}
    for nodes in list(goals)[: 1 if quick else 2]:
        found.append(_large_row(nodes, *goals[nodes]))
    tiny_s = measure_tiny()
    found.append(
        {
            "case": "Engine: a tiny run from the command line",
            "cpu_s": tiny_s,
            "figure": "",
            "target": "at most 0.25 s",
            "met": tiny_s <= 0.25,
        }
    )
    covered, all_runs = count_covered()
    found.append(
        {
            "case": "Engine: runs of examples and experiments that run natively",
            "cpu_s": None,
            "figure": f"{covered / all_runs:.1%} of {all_runs:,}",
            "target": f"at least {LEAST_SHARE:.0%}",
            "met": covered >= LEAST_SHARE * all_runs,
        }
    )
    return found


def _large_row(nodes: int, goal_s: float, goal_mb: float) -> dict[str, object]:
    large = measure_large(nodes)
    return {
        "case": f"Engine: epidemic for 60 s, {nodes:,} nodes",
        "cpu_s": large["cpu_s"],
        "figure": f"{large['peak_mb']:,.0f} MB, {large['us_per_copy']:.0f} us per copy",
        "target": f"at most {goal_s:g} s, {goal_mb:,.0f} MB",
        "met": large["cpu_s"] <= goal_s and large["peak_mb"] <= goal_mb,
    }


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--large", type=int, metavar="NODES", help="run epidemic with so many nodes in this process")
    parser.add_argument("--million", action="store_true", help="run epidemic with a million nodes")
    parser.add_argument("--quick", action="store_true", help="leave the longest works out")
    options = parser.parse_args()
    if options.large:
        print(json.dumps(run_large(options.large)))
    elif options.million:
        print(json.dumps(_large_row(1_000_000, 90.0, 3500)))
    else:
        for row in rows(options.quick):
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
