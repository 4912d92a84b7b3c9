"""What Spark costs: the CPU of a sweep against that of a plain loop over the same runs, the Java process included.

Starting the session is left out, as a sweep of any size pays it once; so is the first use of each worker, which loads
the same modules that the loop's process has loaded already.
"""

import os
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.cost import children
from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.spark_session import session, stop_session
from carrycast.analysis.spark.sweep import run_sweep
from carrycast.sim.engine.simulation import run as simulate
from carrycast.sim.scenario.scenario import Scenario, parse_scenario

LEAST_S, LONGER_S = 0.5, 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def scenario(duration_s: float, nodes: int = 50) -> Scenario:
    """Nodes that flood; the cost of a run grows with its duration."""
    table: dict[str, object] = {
        "name": "sweep benchmark",
        "duration_s": duration_s,
        "nodes": nodes,
        "area_m": [1000.0, 1000.0],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 10.0},
        "radio": {"model": "disk", "range_m": 250.0},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "flooding"},
        "subscribe": [{"nodes": "all"}],
        "publish": [{"interval_s": 1.0, "payload_bytes": 200}],
    }
    return parse_scenario(table, "benchmark")


def run(runs: int = 60, seconds: float = 0.5) -> dict[str, object]:
    """CPU seconds of `runs` runs of about `seconds` each, in a loop and in a sweep, and their ratio."""
    timed = scenario_of_length(seconds)
    seeds = list(range(1, runs + 1))
    before = time.process_time()
    fingerprints = [simulate(timed, seed).fingerprint for seed in seeds]
    loop_cpu_s = time.process_time() - before
    with tempfile.TemporaryDirectory() as folder:
        spark = session("benchmark")
        try:
            warm = experiment_of(scenario_of_length(0.01), list(range(1, 17)))
            run_sweep([warm], Path(folder, "warm"), spark, quiet=True)
            before_s = process_cpu_s(os.getpid())
            began = time.monotonic()
            records = run_sweep([experiment_of(timed, seeds)], Path(folder, "timed"), spark, quiet=True)
            wall_s = time.monotonic() - began
            sweep_cpu_s = process_cpu_s(os.getpid()) - before_s
        finally:
            stop_session()
    assert [record["fingerprint"] for record in records] == fingerprints
    return {
        "runs": runs,
        "loop_cpu_s": loop_cpu_s,
        "sweep_cpu_s": sweep_cpu_s,
        "sweep_wall_s": wall_s,
        "ratio": sweep_cpu_s / loop_cpu_s,
    }


def scenario_of_length(seconds: float, nodes: int = 50) -> Scenario:
    """A scenario whose run takes about that long on this machine; a run costs something before its first second."""
    started_s, longer_s = _cost_s(scenario(LEAST_S, nodes)), _cost_s(scenario(LONGER_S, nodes))
    per_s = (longer_s - started_s) / (LONGER_S - LEAST_S)
    return scenario(max(LEAST_S, round(LEAST_S + (seconds - started_s) / per_s, 3)), nodes)


def _cost_s(probe: Scenario, times: int = 10) -> float:
    """The CPU of one of its runs."""
    simulate(probe, 1)
    before = time.process_time()
    for seed in range(2, 2 + times):
        simulate(probe, seed)
    return (time.process_time() - before) / times


def experiment_of(timed: Scenario, seeds: list[int]) -> Experiment:
    """An experiment of its runs at some seeds."""
    table: dict[str, object] = msgspec.to_builtins(timed)
    folder = Path(str(table.pop("base")))
    axis = Axis(name="protocol", values=["flooding"])
    return expand_experiment(Definition(name="benchmark", scenario=table, seeds=seeds, axes=[axis]), folder)


def process_cpu_s(pid: int) -> float:
    """The CPU time of a process and of everything below it, living or waited for: Python, Java, Spark's workers."""
    return own_cpu_s(pid) + sum(process_cpu_s(child) for child in children(pid))


def own_cpu_s(pid: int) -> float:
    """The CPU time of a process and of those below it that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    # utime, stime, cutime, cstime: fields 14 to 17 of proc(5), counted from 1.
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_S


if __name__ == "__main__":
    for name, value in run().items():
        print(name, value)
