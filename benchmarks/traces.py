"""Metrics of 25 million rows of traces: by Spark as carrycast does it, and the same in DuckDB and in Polars.

`python -m benchmarks.traces` simulates W3 (flooding) and W2 of 1,000 nodes (epidemic) with full traces and copies them
under other names until there are `--rows`: `many` gives each copy a run of its own, `one` makes a single run of all
copies, with events of their own, one after the other. Every way runs in a process of its own; all must say the same.
Spark is measured with its start, and once more without work, so that both can be told apart.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import epidemic, flooding
from benchmarks.cost import Cost, module_cost
from benchmarks.traces_elsewhere import Found, in_duckdb, in_polars
from carrycast.analysis.spark.records import REAL_METRICS

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 25_000_000
ONE_RUN = "one"


def make(shape: str, rows: int, folder: Path) -> list[Path]:
    """Traces of at least so many rows, in folders of their own."""
    import pyarrow.parquet as pq

    from carrycast.sim.engine.simulation import run
    from carrycast.trace import Level

    models = []
    for name, scenario, seed in (
        ("w3", flooding.scenario(), flooding.SEED),
        ("w2", epidemic.scenario(1000), epidemic.SEED),
    ):
        outcome = run(scenario, seed, Level.FULL, folder / "models" / name)
        outcome.trace.save(folder / "models" / name)
        models.append((folder / "models" / name, float(scenario.duration_s)))
    made: list[Path] = []
    held, copy, begins_s = 0, 0, 0.0
    while held < rows:
        model, duration_s = models[copy % len(models)]
        made.append(folder / f"{shape}-{copy}")
        for table in ("trace", "events", "subscriptions"):
            (made[-1] / table).mkdir(parents=True)
            for part in sorted((model / table).glob("*.parquet")):
                found = pq.ParquetFile(part).read()
                held += found.num_rows if table == "trace" else 0
                changed = renamed(found, copy, begins_s if shape == ONE_RUN else None)
                # Files of a run are told apart by their numbers.
                name = f"part-{1000 * copy + int(part.stem.split('-')[1]):05}.parquet"
                pq.write_table(changed, made[-1] / table / name, compression="zstd")
        copy, begins_s = copy + 1, begins_s + duration_s
    return made


def renamed(table: "pa.Table", copy: int, begins_s: float | None) -> "pa.Table":
    """A copy of a table of a trace: of another run, or, if it begins at some time of one run, of other events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    run = ONE_RUN if begins_s is not None else f"{table['run'][0].as_py()}/{copy}"
    columns = {name: table[name] for name in table.column_names}
    columns["run"] = pa.array([run] * table.num_rows)
    if begins_s is not None:
        for name in ("time_s", "from_s", "to_s"):
            if name in columns:
                columns[name] = pc.round(pc.add(columns[name], begins_s), 6)
        for name in ("event", "subscription"):
            if name in columns:
                columns[name] = pc.binary_join_element_wise(columns[name], str(copy), "-")
    return pa.table(list(columns.values()), schema=table.schema)


def in_spark(folders: list[Path]) -> Found:
    """As `carrycast metrics` does it."""
    from carrycast.analysis.spark.trace_metrics import metrics_of_traces

    return metrics_of_traces(folders)


def spark_alone(folders: list[Path]) -> Found:
    """What it costs to start it, and a worker."""
    from carrycast.analysis.spark.spark_session import session

    session("benchmark").range(2).mapInArrow(lambda batches: batches, "id bigint").count()
    return {}


CASES: dict[str, Callable[[list[Path]], Found]] = {
    "Spark": in_spark,
    "Spark without work": spark_alone,
    "DuckDB": in_duckdb,
    "Polars": in_polars,
}


def same(ours: Found, theirs: Found) -> bool:
    """Counts are equal, means but for the noise of another order of adding."""
    return ours.keys() == theirs.keys() and all(
        value == theirs[run][metric]
        or (metric in REAL_METRICS and math.isclose(float(str(value)), float(str(theirs[run][metric])), rel_tol=1e-9))
        for run, metrics in ours.items()
        for metric, value in metrics.items()
    )


def measure(shape: str, rows: int, folder: Path) -> list[dict[str, object]]:
    """A row for each way, and whether it says what Spark says."""
    import pyarrow.parquet as pq

    held = sum(pq.read_metadata(path).num_rows for path in folder.glob(f"{shape}-*/trace/*.parquet"))
    if held < rows:
        module_cost("benchmarks.traces", "--folder", str(folder), "--shape", shape, "--rows", str(rows), "--make")
        held = sum(pq.read_metadata(path).num_rows for path in folder.glob(f"{shape}-*/trace/*.parquet"))
    said: dict[str, Found] = {}
    costs: dict[str, Cost] = {}
    measured: list[dict[str, object]] = []
    for case in CASES:
        costs[case] = module_cost("benchmarks.traces", "--folder", str(folder), "--shape", shape, "--case", case)
        said[case] = json.loads(costs[case].said)
        started = case == "Spark without work"
        row: dict[str, object] = {"case": case, "shape": shape, "rows": held, "cpu_s": round(costs[case].cpu_s, 1)}
        row |= {"rows_per_cpu_s": None if started else round(held / costs[case].cpu_s), "memory": costs[case].memory}
        row["same"] = None if started else same(said["Spark"], said[case])
        measured.append(row)
    return measured


def main() -> None:
    """Measure what is asked, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--shape", choices=("many", ONE_RUN), default="many")
    parser.add_argument("--folder", type=Path, help="keep the traces there, and use what is there")
    parser.add_argument("--make", action="store_true", help="only make them")
    parser.add_argument("--case", choices=CASES, help="only this, without a process of its own")
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.shape, arguments.rows, arguments.folder)
    elif arguments.case is not None:
        folders = sorted(
            arguments.folder.glob(f"{arguments.shape}-*"), key=lambda folder: int(folder.name.split("-")[1])
        )
        print(json.dumps(CASES[arguments.case](folders)))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            for row in measure(arguments.shape, arguments.rows, arguments.folder or Path(scratch)):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
