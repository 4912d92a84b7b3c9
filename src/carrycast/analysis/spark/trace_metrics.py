"""Compute the metrics of traces on Spark, with the mergeable folds of `carrycast.trace.folds` (`folds/fold.py`).

Each partition is a file of a trace: one task reads it once and passes on only the states of the folds. The states of a
run are then merged and resolved with its events and subscriptions. This happens in one task, or for a large run in
several, each with a slice of the events. Partial states (`trace.folds.partials`) are keyed by event, so that they can
be sliced in the same way.
"""

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carrycast.analysis.spark.own_metrics import OwnMetric, compute_values
from carrycast.analysis.spark.trace_tables import ORDER, read_tables
from carrycast.trace import (
    BUILT_IN,
    COLUMNS,
    FLOW_FILTER,
    METRICS,
    PART_ROWS,
    TEXTS,
    DeliveryFold,
    EventPartials,
    Kind,
    Level,
    MergeableFold,
    MetricInfo,
    Metrics,
    Partials,
    RunTables,
    TraceBatch,
    check_trace,
    delivery_pairs,
    facts_of_rows,
    find_traces,
    more_folds,
    read_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Rows = Iterator[pa.RecordBatch]

PAIRS_PER_SLICE = 2_000_000
"""The number of events times subscriptions that one task resolves. Larger runs are sliced, so that no task holds a
whole run. Runs with processors are not sliced, because a processor derives events from other events."""
TASKS_PER_CORE = 4
FoldClass = type[MergeableFold]
_STATES = (
    "run string, event string, fold string, ints array<bigint>, floats array<double>, texts array<string>, state binary"
)
"""The columns of fold states of a part of a trace: a row per fold, or a row per event with its partial state."""
_EVENTS = ("run", "event", "source", "time_s", "attributes", "access", "derived_from", "counted", "processor")
_DELIVERED = ("run", "time_s", "node", "kind", "event", "subscription", "hops", "part", "place")
_PAIRS = "run string, event string, node bigint, published_s double, delay_s double, hops bigint"


def metrics_of_traces(
    paths: Sequence[Path], deliveries: bool = False, master: str | None = None, own: Sequence[OwnMetric] = ()
) -> dict[str, dict[str, object]]:
    """Return the metrics of each run in some traces, by its name. The traces of the nodes of one network are one run.

    With `deliveries`, only metrics of deliveries are computed, so that traces that keep only these suffice. `own` are
    additional metrics.
    """
    # Imported here: executors import this module and need no session.
    from carrycast.analysis.spark.spark_session import session

    folders = find_checked_traces(paths, deliveries)
    spark = session("carrycast", master)
    rows = sorted(
        folder_metrics(spark, folders, folds_for(folders, deliveries)).collect(), key=lambda row: str(row["run"])
    )
    found: dict[str, dict[str, object]] = {row["run"]: row.asDict() for row in rows}
    for known in found.values():
        del known["run"]
    for one in own:
        values = compute_values(one, *read_tables(spark, folders))
        for run, known in found.items():
            known[one.name] = values.get(run)
    return found


def folds_for(folders: Sequence[Path], deliveries: bool = False) -> list[FoldClass]:
    """Return all folds for some traces, or with `deliveries` those that need no frames."""
    import pyarrow.compute as pc

    of_flow = pc.match_substring_regex(pc.field("filter"), FLOW_FILTER)
    flows = any(read_rows(folder, "subscriptions", of_flow, most=1) for folder in folders)
    return [fold for fold in (*BUILT_IN, *more_folds(flows)) if not (deliveries and fold.needs_frames)]


def find_checked_traces(paths: Sequence[Path], deliveries: bool) -> list[Path]:
    """Return the folders of traces in some paths; raise a UserError if one keeps less than is needed."""
    folders = find_traces(paths)
    for folder in folders:
        check_trace(folder, Level.DELIVERIES if deliveries else Level.FULL)
    return folders


def folder_metrics(spark: "SparkSession", folders: list[Path], folds: Sequence[FoldClass] = BUILT_IN) -> "DataFrame":
    """Return a DataFrame with a row per run and every metric of the folds."""
    mergeable, ordered = ([fold for fold in folds if fold.needs_run is needs_run] for needs_run in (False, True))
    found = _merged_metrics(spark, folders, mergeable)
    return found.join(_ordered_metrics(spark, folders, ordered), "run", "left") if ordered else found


def _ordered_metrics(spark: "SparkSession", folders: list[Path], folds: Sequence[FoldClass]) -> "DataFrame":
    """Return a row per run, with the metrics of folds that need all facts of a run in order."""
    trace, events, subscriptions = read_tables(spark, folders)
    entries = trace.unionByName(events, allowMissingColumns=True).groupBy("run")
    named = list_metrics(folds)
    return entries.cogroup(subscriptions.groupBy("run")).applyInArrow(_make_fact_folder(folds, named), _schema(named))


def _make_fact_folder(
    folds: Sequence[FoldClass], named: dict[str, MetricInfo]
) -> "Callable[[pa.Table, pa.Table], pa.Table]":
    """Return the function for `applyInArrow` that folds the facts of a run in order."""

    def fold_run(entries: "pa.Table", subscriptions: "pa.Table") -> "pa.Table":
        run = (entries if entries.num_rows else subscriptions)["run"][0].as_py()
        events = {row["event"]: row for row in entries.filter(entries["counted"].is_valid()).to_pylist()}
        standing = {row["subscription"]: row for row in subscriptions.to_pylist()}
        rows = entries.filter(entries["counted"].is_null()).sort_by([(name, "ascending") for name in ORDER]).to_pylist()
        made = [fold() for fold in folds]
        for fact in facts_of_rows(rows, events, standing):
            for fold in made:
                if isinstance(fact, fold.reads):
                    fold.on_fact(fact)
        return _make_row(run, made, named)

    return fold_run


def _merged_metrics(spark: "SparkSession", folders: list[Path], folds: Sequence[FoldClass]) -> "DataFrame":
    """Return a row per run, with the metrics of folds that can be computed from parts of a trace and merged."""
    from pyspark.sql import functions as f

    _, events, subscriptions = read_tables(spark, folders)
    states = _fold_files(spark, folders, folds).unionByName(events.select(*_EVENTS), allowMissingColumns=True)
    slices = _count_slices(events, subscriptions)
    cores = spark.sparkContext.defaultParallelism
    if slices:
        sizes = spark.createDataFrame(slices, "run string, slices int")
        states, subscriptions = (
            frame.join(f.broadcast(sizes), "run", "left").fillna(1, ["slices"]) for frame in (states, subscriptions)
        )
        # States that are not keyed by event go to the first slice.
        of_event = f.when(f.col("event").isNull(), 0).otherwise(f.pmod(f.hash("event"), f.col("slices")))
        states = states.withColumn("slice", of_event)
        subscriptions = subscriptions.withColumn("slice", f.explode(f.sequence(f.lit(0), f.col("slices") - 1)))
    else:
        states, subscriptions = (frame.withColumn("slice", f.lit(0)) for frame in (states, subscriptions))
    key = ["run", "slice"]
    left, right = (frame.repartition(cores, *key).groupBy(*key) for frame in (states, subscriptions))
    resolved = left.cogroup(right).applyInArrow(_make_resolver(folds), "run string, fold string, state binary")
    named = list_metrics(folds)
    return resolved.groupBy("run").applyInArrow(_make_finisher(folds, named), _schema(named))


def _schema(metrics: dict[str, MetricInfo]) -> str:
    kinds = (f"{name} {'double' if info.real else 'bigint'}" for name, info in metrics.items())
    return f"run string, {', '.join(kinds)}"


def list_metrics(folds: Sequence[FoldClass]) -> dict[str, MetricInfo]:
    """Return the metrics of folds: the built-in ones in their order, then others."""
    found = {name: info for fold in folds for name, info in fold.metrics.items()}
    return {name: found[name] for name in (*(name for name in METRICS if name in found), *found)}


def served_pairs(trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """Return the eligible pairs that were served: run, event, node, published_s, and delay_s and hops of the first
    delivery."""
    return eligible_pairs(trace, events, subscriptions).where("delay_s is not null")


def eligible_pairs(trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """Return the pairs of a counted event and a node that should receive it: run, event, node, published_s, and delay_s
    and hops of the first delivery, null if there was none. `trace` needs only the rows of deliveries."""
    from pyspark.sql import functions as f

    delivered = trace.where(f.col("kind") == Kind.DELIVER.value).select(*_DELIVERED)
    counts = subscriptions.groupBy("run").agg(
        f.count(f.lit(1)).alias("subscriptions"), f.count("processor").alias("processors")
    )
    pairs = f.count(f.lit(1)) * f.first("subscriptions")
    sizes = (
        events.join(counts, "run")
        .groupBy("run")
        .agg(
            f.when(f.first("processors") > 0, 1).otherwise(f.ceil(pairs / PAIRS_PER_SLICE)).cast("int").alias("slices")
        )
    )
    entries = delivered.unionByName(events.select(*_EVENTS), allowMissingColumns=True).join(f.broadcast(sizes), "run")
    entries = entries.withColumn("slice", f.pmod(f.hash("event"), f.col("slices"))).drop("slices")
    standing = subscriptions.join(f.broadcast(sizes), "run").withColumn(
        "slice", f.explode(f.sequence(f.lit(0), f.col("slices") - 1))
    )
    key = ["run", "slice"]
    return entries.groupBy(*key).cogroup(standing.drop("slices").groupBy(*key)).applyInArrow(_compute_pairs, _PAIRS)


def _compute_pairs(entries: "pa.Table", subscriptions: "pa.Table") -> "pa.Table":
    """Return the eligible pairs of one slice of a run."""
    import pyarrow as pa

    is_event = entries["counted"].is_valid()
    rows = entries.filter(entries["counted"].is_null())
    tables = RunTables(entries.filter(is_event).select(list(_EVENTS)).to_pylist(), subscriptions.to_pylist())
    fold = DeliveryFold()
    part, place = (rows[name].cast(pa.int64()).to_numpy() for name in ORDER[1:])
    fold.on_batch(TraceBatch(rows, part, place))
    ids = pa.array([event["event"] for event in tables.events], pa.string())
    found = []
    for pairs in delivery_pairs(tables, fold.partials):
        node = tables.eligibility.node[pairs.node] if pairs.through else pairs.node
        columns = {
            "run": pa.array([entries["run"][0].as_py()] * len(node), pa.string()),
            "event": ids.take(pa.array(pairs.event)),
            "node": pa.array(node),
            "published_s": pa.array(tables.published_s[pairs.event]),
            "delay_s": pa.array(pairs.delay_s, mask=~pairs.delivered),
            "hops": pa.array(pairs.hops, mask=~pairs.delivered),
        }
        found.append(pa.table(columns))
    return pa.concat_tables(found)


def _count_slices(events: "DataFrame", subscriptions: "DataFrame") -> list[tuple[str, int]]:
    """Return the number of slices of each run that is sliced."""
    from pyspark.sql import functions as f

    counts = subscriptions.groupBy("run").agg(
        f.count(f.lit(1)).alias("subscriptions"), f.count("processor").alias("processors")
    )
    pairs = events.groupBy("run").agg(f.count(f.lit(1)).alias("events")).join(counts, "run")
    slices = f.ceil(f.col("events") * f.col("subscriptions") / PAIRS_PER_SLICE).cast("int").alias("slices")
    return [
        (row[0], row[1]) for row in pairs.where("processors = 0").select("run", slices).where("slices > 1").collect()
    ]


def _fold_files(spark: "SparkSession", folders: list[Path], folds: Sequence[FoldClass]) -> "DataFrame":
    """Return the states of folds over all files of the traces."""
    files = [(str(path.resolve()),) for folder in folders for path in sorted((folder / "trace").glob("*.parquet"))]
    tasks = min(len(files), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    return (
        spark.createDataFrame(files, "path string").repartition(max(tasks, 1)).mapInArrow(_make_reader(folds), _STATES)
    )


def _make_reader(folds: Sequence[FoldClass]) -> "Callable[[Rows], Rows]":
    """Return the function for `mapInArrow`: from paths of files to the states of folds over them."""

    def read(batches: "Rows") -> "Rows":
        import pyarrow as pa
        import pyarrow.parquet as pq

        for batch in batches:
            for path in batch.column(0).to_pylist():
                number = re.search(r"\d+", Path(path).name)
                read = 0
                file = pq.ParquetFile(path, read_dictionary=list(TEXTS))
                # Folds of plug-ins may read any column.
                columns = list(COLUMNS) if set(folds) <= set(BUILT_IN) else None
                for rows in file.iter_batches(PART_ROWS, columns=columns, use_threads=False):
                    part = np.full(len(rows), int(number.group()) if number else 0, dtype=np.int64)
                    place = np.arange(read, read + len(rows))
                    for run, group in _split_by_run(TraceBatch(pa.Table.from_batches([rows]), part, place)):
                        yield from _fold_batch(run, group, folds)
                    read += len(rows)

    return read


def _split_by_run(batch: TraceBatch) -> Iterator[tuple[str, TraceBatch]]:
    """Split a batch by run."""
    import pyarrow.compute as pc

    runs = batch.rows["run"].unique().to_pylist()
    for run in runs:
        if len(runs) == 1:
            yield run, batch
        else:
            chosen = pc.equal(batch.rows["run"], run)
            keep = chosen.to_numpy()
            yield run, TraceBatch(batch.rows.filter(chosen), batch.part[keep], batch.place[keep])


def _fold_batch(run: str, batch: TraceBatch, folds: Sequence[FoldClass]) -> "Rows":
    """Yield the rows of `_STATES` of a batch of one run."""
    import pyarrow as pa

    for fold_class in folds:
        fold = fold_class()
        fold.on_batch(batch)
        if isinstance(fold, EventPartials):
            for partials in fold.partials:
                yield from _state_rows(run, fold_class, partials.table())
        else:
            yield from _state_rows(run, fold_class, pa.table({"state": pa.array([pickle.dumps(fold)], pa.binary())}))


def _state_rows(run: str, fold: FoldClass, columns: "pa.Table") -> "Rows":
    import pyarrow as pa

    kinds = {
        "event": pa.string(),
        "ints": pa.list_(pa.int64()),
        "floats": pa.list_(pa.float64()),
        "texts": pa.list_(pa.string()),
        "state": pa.binary(),
    }
    length, given = columns.num_rows, columns.column_names
    table = {
        "run": pa.array([run] * length, pa.string()),
        **{name: columns[name] if name in given else pa.nulls(length, kind) for name, kind in kinds.items()},
        "fold": pa.array([fold.__name__] * length, pa.string()),
    }
    order = ("run", "event", "fold", "ints", "floats", "texts", "state")
    yield from pa.table({name: table[name] for name in order}).to_batches()


def _make_resolver(folds: Sequence[FoldClass]) -> "Callable[[pa.Table, pa.Table], pa.Table]":
    """Return the function for `applyInArrow` that resolves a slice of a run with its events and subscriptions."""

    def resolve(entries: "pa.Table", subscriptions: "pa.Table") -> "pa.Table":
        import pyarrow as pa
        import pyarrow.compute as pc

        run = (entries if entries.num_rows else subscriptions)["run"][0].as_py()
        events = entries.filter(entries["counted"].is_valid()).select(list(_EVENTS)).to_pylist()
        tables = RunTables(events, subscriptions.to_pylist())
        resolved = []
        for fold_class in folds:
            fold, rows = (
                fold_class(),
                entries.filter(pc.fill_null(pc.equal(entries["fold"], fold_class.__name__), False)),
            )
            if isinstance(fold, EventPartials):
                fold.partials.append(Partials.of_table(rows, fold.width))
            else:
                _merge_states(fold, rows)
            fold.resolve(tables)
            resolved.append((run, fold_class.__name__, pickle.dumps(fold)))
        columns = zip(*resolved, strict=True)
        return pa.table(dict(zip(("run", "fold", "state"), map(list, columns), strict=True)))

    return resolve


def _make_finisher(folds: Sequence[FoldClass], named: dict[str, MetricInfo]) -> "Callable[[pa.Table], pa.Table]":
    """Return the function for `applyInArrow` that merges the slices of a run into its metrics."""

    def finish(slices: "pa.Table") -> "pa.Table":
        import pyarrow.compute as pc

        made = [fold() for fold in folds]
        for fold in made:
            _merge_states(fold, slices.filter(pc.equal(slices["fold"], type(fold).__name__)))
        return _make_row(slices["run"][0].as_py(), made, named)

    return finish


def _make_row(run: str, folds: Sequence[MergeableFold], named: dict[str, MetricInfo]) -> "pa.Table":
    import pyarrow as pa

    found: Metrics = {}
    for fold in folds:
        found |= fold.result()
    columns = {name: pa.array([found[name]], pa.float64() if info.real else pa.int64()) for name, info in named.items()}
    return pa.table({"run": pa.array([run], pa.string()), **columns})


def _merge_states(fold: MergeableFold, rows: "pa.Table") -> None:
    for state in rows["state"].to_pylist():
        fold.merge(pickle.loads(state))
