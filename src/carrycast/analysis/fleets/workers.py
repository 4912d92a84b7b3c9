"""Work on files, spread over Spark's workers: a function and the things it is to be done with, each a task."""

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
    """A path as Spark reads it: what it takes for patterns is quoted."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def refuse_full_disk(error: Exception, out: Path) -> None:
    """Say it in a line if Spark, or a worker of it, had no room left; whatever it wrote so far is taken away."""
    if any(one in str(error) for one in _FULL):
        places = f"{out.absolute().parent} or {tempfile.gettempdir()}"
        raise WorkError(f"{out}: not written, the disk is full: make room at {places}, where Spark works") from None


def run_each(spark: "SparkSession", work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What `work` returns for every item, in their order. Both go as JSON; whatever is large stands in files."""
    rows = [(place, json.dumps(item)) for place, item in enumerate(items)]
    # One task of Spark for each, so that a core that is done takes the next.
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
