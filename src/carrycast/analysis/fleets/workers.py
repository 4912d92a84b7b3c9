"""Runs a function on Spark's workers, with a task for each item."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.errors import WorkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


_FULL = ("No space left on device", "Disk quota exceeded", "File too large")


def spark_path(path: Path) -> str:
    """Escape the characters of a path that Spark would treat as a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def refuse_full_disk(error: Exception, out: Path) -> None:
    """Raise a WorkError of one line if Spark or a worker failed because the disk is full."""
    if any(one in str(error) for one in _FULL):
        places = f"{out.absolute().parent} or {tempfile.gettempdir()}"
        raise WorkError(f"{out}: not written, the disk is full: make room at {places}, where Spark works") from None


def run_each(spark: "SparkSession", work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Run `work` on every item; return the results in order. Items and results travel as JSON; large data as files."""
    rows = [(place, json.dumps(item)) for place, item in enumerate(items)]
    # One Spark task for each item, so that a free core takes the next.
    tasks = spark.createDataFrame(rows, "place bigint, item string").repartition(max(len(rows), 1), "place")
    done = tasks.mapInArrow(_make_worker(work), "place bigint, result string").collect()
    return [json.loads(row["result"]) for row in sorted(done, key=lambda row: row["place"])]


def _make_worker(work: Callable[[Any], Any]) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def worker(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                result = json.dumps(work(json.loads(row["item"])))
                yield pa.RecordBatch.from_pydict(
                    {"place": pa.array([row["place"]], pa.int64()), "result": pa.array([result], pa.string())}
                )

    return worker
