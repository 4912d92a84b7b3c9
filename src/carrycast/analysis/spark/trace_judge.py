"""The metrics of the traces in some folders: each file is read once, where a core is free, and only digests travel.

The same as `trace_metrics`, which takes any DataFrames, in a third of its CPU: tests hold both to the same bits.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.analysis.spark.records import METRICS, REAL_METRICS
from carrycast.analysis.spark.trace_digest import COLUMNS, FRAMES, GOT, LIFE, MET, NEVER, SCHEMA, TEXTS, digests, latest
from carrycast.analysis.spark.trace_metrics import delays, read_tables
from carrycast.sim.mobility.trajectory import Floats, Integers
from carrycast.trace.eligible import Eligibility
from carrycast.trace.writer import PART_ROWS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PAIRS_AT_ONCE = 2_000_000
"""Events times subscriptions that one process judges at once: a large run is spread over all cores, and none holds all
of it. Where a processor makes events of others, all of a run are judged together."""
TASKS_PER_CORE = 4
_COUNTS = ("published", "eligible", *FRAMES, "forwards", "duplicates", "buffer_peak")
_PARTS = "run string, " + ", ".join(f"{name} bigint" for name in _COUNTS) + ", delays array<double>, hops bigint"
_EVENTS = ("run", "event", "source", "time_s", "attributes", "access", "derived_from", "counted", "processor")


def folder_metrics(spark: "SparkSession", folders: list[Path]) -> "DataFrame":
    """A row per run with every metric."""
    from pyspark.sql import functions as f

    _, events, subscriptions = read_tables(spark, folders)
    told = _digested(spark, folders).unionByName(events.select(*_EVENTS), allowMissingColumns=True)
    slices = _slices(events, subscriptions)
    cores = spark.sparkContext.defaultParallelism
    if slices:
        sizes = spark.createDataFrame(slices, "run string, slices int")
        told, subscriptions = (
            frame.join(f.broadcast(sizes), "run", "left").fillna(1, ["slices"]) for frame in (told, subscriptions)
        )
        # What is told of the run and of no event of it is for the first slice.
        of_event = f.when(f.col("event").isNull(), 0).otherwise(f.pmod(f.hash("event"), f.col("slices")))
        told = told.withColumn("slice", of_event)
        subscriptions = subscriptions.withColumn("slice", f.explode(f.sequence(f.lit(0), f.col("slices") - 1)))
    else:
        told, subscriptions = (frame.withColumn("slice", f.lit(0)) for frame in (told, subscriptions))
    key = ["run", "slice"]
    left, right = (frame.repartition(cores, *key).groupBy(*key) for frame in (told, subscriptions))
    parts = left.cogroup(right).applyInArrow(_judge, _PARTS)
    kinds = {name: "double" if name in REAL_METRICS else "bigint" for name in METRICS}
    schema = "run string, " + ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    return parts.groupBy("run").applyInArrow(_whole, schema)


def _slices(events: "DataFrame", subscriptions: "DataFrame") -> list[tuple[str, int]]:
    """Into how many slices the large runs are cut."""
    from pyspark.sql import functions as f

    asked = subscriptions.groupBy("run").agg(f.count(f.lit(1)).alias("asked"), f.count("processor").alias("processors"))
    pairs = events.groupBy("run").agg(f.count(f.lit(1)).alias("told")).join(asked, "run")
    slices = f.ceil(f.col("told") * f.col("asked") / PAIRS_AT_ONCE).cast("int").alias("slices")
    return [
        (row[0], row[1]) for row in pairs.where("processors = 0").select("run", slices).where("slices > 1").collect()
    ]


def _digested(spark: "SparkSession", folders: list[Path]) -> "DataFrame":
    """The digests of all files of the traces."""
    files = [(str(path.resolve()),) for folder in folders for path in sorted((folder / "trace").glob("*.parquet"))]
    tasks = min(len(files), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    return spark.createDataFrame(files, "path string").repartition(max(tasks, 1)).mapInArrow(_read(), SCHEMA)


def _read() -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For workers: the digests of the files that batches name."""

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        import pyarrow.parquet as pq

        for batch in batches:
            for path in batch.column(0).to_pylist():
                number = re.search(r"\d+", Path(path).name)
                read = 0
                file = pq.ParquetFile(path, read_dictionary=list(TEXTS))
                for rows in file.iter_batches(PART_ROWS, columns=list(COLUMNS), use_threads=False):
                    part = np.full(len(rows), int(number.group()) if number else 0, dtype=np.int64)
                    yield from digests(pa.Table.from_batches([rows]), part, np.arange(read, read + len(rows)))
                    read += len(rows)

    return read


def _judge(told: "pa.Table", subscriptions: "pa.Table") -> "pa.Table":
    """What one slice of a run comes to."""
    import pyarrow as pa

    run = (told if told.num_rows else subscriptions)["run"][0].as_py()
    events = told.filter(told["counted"].is_valid()).select(list(_EVENTS)).to_pylist()
    digest = told.filter(told["counted"].is_null())
    number = {event["event"]: place for place, event in enumerate(events)}
    of_run = digest.filter(digest["event"].is_null())
    of_events = digest.filter(digest["event"].is_valid())
    place = np.array([number.get(name, -1) for name in of_events["event"].to_pylist()], dtype=np.int64)
    wishes = Eligibility(subscriptions.to_pylist())
    eligible, served_s, hops = _served(of_events, place, events, wishes, number)
    forwards, duplicates = _copies(of_events, place, events)
    counts = {
        "published": sum(event["counted"] for event in events),
        "eligible": eligible,
        **dict(zip(FRAMES, _flat(of_run["frames"]).reshape(-1, len(FRAMES)).sum(axis=0).tolist(), strict=True)),
        "forwards": forwards,
        "duplicates": duplicates,
        "buffer_peak": _buffer_peak(of_run),
    }
    row = {"run": [run], **{name: [value] for name, value in counts.items()}, "delays": [served_s], "hops": [hops]}
    return pa.table(row)


def _copies(digest: "pa.Table", place: Integers, events: list[dict[str, Any]]) -> tuple[int, int]:
    """Forwards and duplicates: of events that are known, and of them those that count."""
    event, met = _entries(digest["met"], place, MET)
    counted = np.array([one["counted"] for one in events], dtype=np.bool_)
    source = np.array([one["source"] for one in events], dtype=np.int64)
    node, sent, received = met.T
    others = (received > 0) & (node != source[event])
    # A node's frames of an event may stand in several files; it is one that has it.
    holders = len(_pairs(event[others], node[others], node)[0])
    return int(sent[counted[event]].sum()), int(received.sum()) - holders


def _served(
    digest: "pa.Table", place: Integers, events: list[dict[str, Any]], wishes: Eligibility, number: Mapping[str, int]
) -> tuple[int, Floats, int]:
    """How many pairs are eligible, and of those that were served the delays, and the sum of hops."""
    event, got = _entries(digest["got"], place, GOT)
    time_s, by = digest["got_s"].combine_chunks().flatten().to_numpy(), digest["got_by"].combine_chunks().flatten()
    known = np.repeat(place, _lengths(digest["got_s"])) >= 0
    time_s, by = time_s[known], by.filter(known)
    modulated = {row["subscription"]: where for where, row in enumerate(wishes.rows) if row["processor"] is not None}
    counted = [where for where, one in enumerate(events) if one["counted"]]
    nodes = [wishes.nodes(events[where]) for where in counted]
    wanted = np.concatenate([np.zeros(0, np.int64), *nodes])
    owner = np.repeat(np.array(counted, dtype=np.int64), [len(one) for one in nodes])
    published_s = np.array([one["time_s"] for one in events])
    through = np.array([modulated.get(name, -1) for name in by.to_pylist()] if modulated else [], dtype=np.int64)
    plain = through < 0 if modulated else np.ones(len(event), dtype=np.bool_)
    delay_s, hops = _first(event[plain], got[plain], time_s[plain], owner, wanted, published_s)
    eligible = len(owner)
    if modulated:
        # What a processor made serves the pairs of what it was made of: a subscription stands in the place of a node.
        inputs = [[number[name] for name in _inputs(one) if name in number] for one in events]
        made = np.flatnonzero(~plain)
        source = [inputs[where] for where in event[made]]
        again = np.repeat(made, [len(one) for one in source])
        owners = np.array([where for one in source for where in one], dtype=np.int64)
        entries = got[again].copy()
        entries[:, 0] = through[again]
        pairs = [(where, one) for where in counted for one in wishes.through(events[where]).tolist()]
        asked = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        more = _first(owners, entries, time_s[again], asked[0], asked[1], published_s)
        eligible += len(pairs)
        delay_s, hops = np.append(delay_s, more[0]), hops + more[1]
    return eligible, delay_s, hops


def _inputs(event: Mapping[str, Any]) -> Iterable[str]:
    return str(event["derived_from"]).split(" ") if event["derived_from"] is not None else ()


def _first(
    event: Integers, got: Integers, time_s: Floats, owner: Integers, wanted: Integers, published_s: Floats
) -> tuple[Floats, int]:
    """Of the wanted pairs that were served: the delays, and the sum of hops, of first deliveries."""
    many = np.concatenate([got[:, 0], wanted])
    _, delivered = _pairs(event, got[:, 0], many)
    _, asked = _pairs(owner, wanted, many)
    order = np.lexsort((got[:, 2], got[:, 1], time_s, delivered))
    first = order[np.append(True, np.diff(delivered[order]) != 0)] if len(order) else order
    served = first[np.isin(delivered[first], asked)]
    # Times are whole microseconds, so the difference is too; only its last bits are noise.
    delay_s = np.array([round(value, 6) for value in (time_s[served] - published_s[event[served]]).tolist()])
    return delay_s, int(got[served, 3].sum())


def _pairs(event: Integers, node: Integers, nodes: Integers) -> tuple[Integers, Integers]:
    """Pairs as single numbers, the different ones and each; `nodes` are all that may stand in them."""
    values = np.unique(nodes)
    key = event * max(len(values), 1) + np.searchsorted(values, node)
    return np.unique(key), key


def _buffer_peak(digest: "pa.Table") -> int:
    """The most copies at one node at one time. A crash empties it; of a live node that is killed a start tells."""
    lives = _flat(digest["lives"]).reshape(-1, LIFE)
    peak: int = max([0, *digest["anew_peak"].to_pylist()])
    if not len(lives):
        return peak
    first_s = digest["lives_s"].combine_chunks().flatten().to_numpy()
    lives = lives[np.lexsort((lives[:, 2], lives[:, 1], first_s, lives[:, 0]))]
    node, _, _, change, reset, head = lives.T
    begins = np.flatnonzero(np.append(True, np.diff(node) != 0))
    own = np.repeat(begins, np.diff(np.append(begins, len(lives))))
    before = np.cumsum(change) - change
    before -= before[own]
    anew = latest(reset != NEVER, own)
    # The last piece before this one in which a life began.
    earlier = np.append(-1, anew[:-1])
    earlier = np.where(earlier >= own, earlier, -1)
    held = before - np.where(earlier >= 0, before[earlier] + reset[earlier], 0)
    return max(peak, int((held + head).max()))


def _whole(parts: "pa.Table") -> "pa.Table":
    """The metrics of a run from those of its slices."""
    import pyarrow as pa
    import pyarrow.compute as pc

    row: dict[str, Any] = {name: pc.sum(parts[name]).as_py() for name in _COUNTS if name != "buffer_peak"}
    row["buffer_peak"] = pc.max(parts["buffer_peak"]).as_py()
    delay_s = parts["delays"].combine_chunks().flatten().to_numpy()
    row |= delays(delay_s, pc.sum(parts["hops"]).as_py()) if len(delay_s) else {"delivered": 0}
    row["delivery_ratio"] = row["delivered"] / row["eligible"] if row["eligible"] else None
    return pa.table(
        {
            "run": [parts["run"][0].as_py()],
            **{
                name: pa.array([row.get(name)], pa.float64() if name in REAL_METRICS else pa.int64())
                for name in METRICS
            },
        }
    )


def _flat(column: "pa.ChunkedArray") -> Integers:
    flat: Integers = column.combine_chunks().flatten().to_numpy()
    return flat


def _lengths(column: "pa.ChunkedArray") -> Integers:
    import pyarrow.compute as pc

    lengths: Integers = pc.list_value_length(column).to_numpy()
    return lengths


def _entries(column: "pa.ChunkedArray", place: Integers, width: int) -> tuple[Integers, Integers]:
    """The entries of events that are known, and the event of each."""
    event = np.repeat(place, _lengths(column) // width)
    entries = _flat(column).reshape(-1, width)
    return event[event >= 0], entries[event >= 0]
