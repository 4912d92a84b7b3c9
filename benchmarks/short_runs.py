"""What a sweep of very short runs costs beside a plain loop over them, and what it costs to find that all is done."""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.cost import children
from benchmarks.sweep import experiment_of, own_cpu_s, process_cpu_s, scenario, scenario_of_length
from carrycast.analysis.spark.master import count_available_cores
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.records import metric_columns, record_table
from carrycast.analysis.spark.reproduction import sweep_experiment
from carrycast.analysis.spark.spark_session import session, stop_session
from carrycast.analysis.spark.sweep import run_sweep
from carrycast.sim.engine.simulation import run as simulate
from carrycast.sim.scenario.scenario import Scenario

# So many that a run of them takes 6.5 ms and still simulates some seconds.
NODES = 25


def short(runs: int = 1000, seconds: float = 0.0065) -> dict[str, float]:
    """CPU of so many runs in a loop, in as many loops at once as there are cores, and in a sweep in which workers are
    warm; the milliseconds more of each, and where they are spent."""
    timed = scenario_of_length(seconds, NODES)
    loop_cpu_s = looped(timed, range(1, runs + 1))
    cores = count_available_cores()
    with ProcessPoolExecutor(cores) as pool:
        shares = [range(1 + core, runs + 1, cores) for core in range(cores)]
        at_once_cpu_s = sum(pool.map(looped, [timed] * cores, shares))
    with tempfile.TemporaryDirectory() as folder:
        spark = session("benchmark")
        try:
            warm_up = experiment_of(scenario(1.0, NODES), list(range(1, 65)))
            run_sweep([warm_up], Path(folder, "warm"), spark, quiet=True)
            before = parts_cpu_s()
            run_sweep([experiment_of(timed, list(range(1, runs + 1)))], Path(folder, "timed"), spark, quiet=True)
            spent = [after - began for after, began in zip(parts_cpu_s(), before, strict=True)]
        finally:
            stop_session()
    names = ("driver_cpu_s", "java_cpu_s", "workers_cpu_s")
    return {
        "runs": runs,
        "loop_cpu_s": loop_cpu_s,
        "loops_at_once_cpu_s": at_once_cpu_s,
        "sweep_cpu_s": sum(spent),
        **dict(zip(names, spent, strict=True)),
        "ratio": sum(spent) / loop_cpu_s,
        "ratio_at_once": sum(spent) / at_once_cpu_s,
        "overhead_ms_per_run": (sum(spent) - loop_cpu_s) / runs * 1000,
        "overhead_at_once_ms_per_run": (sum(spent) - at_once_cpu_s) / runs * 1000,
    }


def looped(timed: Scenario, seeds: Iterable[int]) -> float:
    """The CPU of runs, one after the other, in this process."""
    simulate(timed, 1)
    before = time.process_time()
    for seed in seeds:
        simulate(timed, seed)
    return time.process_time() - before


def parts_cpu_s() -> tuple[float, float, float]:
    """So far: this process, Spark's Java, and the Python workers below that."""
    java = children(os.getpid())
    own = sum(map(own_cpu_s, java))
    return time.process_time(), own, sum(map(process_cpu_s, java)) - own


def resumed(runs: int = 100_000) -> dict[str, float]:
    """CPU and memory of a sweep that finds all its runs done. Their rows are made up from a single one."""
    import pyarrow.parquet as pq

    made = scenario(1.0)
    outcome = simulate(made, 1)
    experiment = experiment_of(made, list(range(1, runs + 1)))
    columns = metric_columns(outcome.metrics, outcome.series)
    rows = [
        {"experiment": run.experiment, "point": run.point, "parameters": run.parameters, "seed": run.seed}
        | {"key": run.key, "fingerprint": outcome.fingerprint, "run": outcome.trace.run, **columns}
        for run in plan_runs(experiment)
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        pq.write_table(record_table(rows), Path(folder, "runs", "folded.parquet"), compression="zstd")
        del rows
        child = os.fork()
        if child == 0:
            # What it takes is measured in a process of its own, without what making it up took.
            sweep_experiment(experiment, Path(folder), quiet=True)
            os._exit(0)
        _, status, used = os.wait4(child, 0)
        assert status == 0
    return {"runs": runs, "cpu_s": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss / 1e6}


if __name__ == "__main__":
    shorter = "--quick" in sys.argv
    for figures in (short(200 if shorter else 1000), resumed(10_000 if shorter else 100_000)):
        print(", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
