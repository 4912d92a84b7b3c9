"""Exact contacts of a fleet, computed on Spark: one task for each slice of time and strip of the map.

Each task reads the legs of its slice and solves them as a single process would. Two nodes in contact are within half
the range of their midpoint. So a task that reads all legs within half the range of its strip finds every contact whose
midpoint is in the strip. Contacts that continue in another task are joined before times are rounded.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.analysis.fleets.schema import CONTACTS, spark_ddl
from carrycast.analysis.fleets.workers import refuse_full_disk, spark_path
from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts import (
    RESOLUTION_S,
    VERSION,
    VERSION_KEY,
    ContactPlan,
    Intervals,
    Legs,
    compute_contacts,
    contact_intervals,
)
from carrycast.sim.mobility import Area, FleetFacts, FleetMovement, legs_between

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

# With fewer legs, one process is faster than starting Spark and needs less than a gigabyte.
ON_SPARK_FROM_LEGS = 2_000_000


def save_fleet_plan(
    folder: Path, range_m: float, duration_s: float | None, to: Path, master: str | None = None
) -> ContactPlan:
    """Compute the contacts of a fleet, on Spark with a master or for a large fleet; save and return the plan."""
    facts = FleetFacts.read(folder)
    lasts_s = facts.duration_s if duration_s is None else duration_s
    if master is None and facts.legs < ON_SPARK_FROM_LEGS:
        rng = np.random.default_rng(0)  # a recording draws nothing
        moving = FleetMovement(folder=str(folder)).trajectories(facts.nodes, Area(1.0, 1.0), lasts_s, rng)
        compute_contacts(moving, range_m, lasts_s).save(to)
    else:
        from carrycast.analysis.spark import check_shared_paths, session

        with _explain_spark_errors(to):
            spark = session("carrycast", master)
            check_shared_paths(spark, folder, to.absolute().parent)
            save_plan(fleet_contacts(spark, folder, range_m, lasts_s), facts.nodes, lasts_s, to)
    return ContactPlan.load(to)


def save_plan(found: "DataFrame", nodes: int, duration_s: float, to: Path) -> None:
    """Write a table of contacts as a sorted plan file, batch by batch. The file is replaced atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    to = to.absolute()
    scratch = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
    try:
        found.orderBy("start_s", "a", "b").write.parquet(str(scratch / "parts"))
        kinds = [("a", pa.int64()), ("b", pa.int64()), ("start_s", pa.float64()), ("end_s", pa.float64())]
        metadata = {"nodes": str(nodes), "duration_s": repr(float(duration_s)), VERSION_KEY: VERSION}
        schema = pa.schema(kinds, metadata=metadata)
        with pq.ParquetWriter(scratch / "whole", schema) as writer:
            # The numbers of Spark's files follow the order of the rows.
            for part in sorted((scratch / "parts").glob("part-*")):
                for batch in pq.ParquetFile(part).iter_batches():
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        os.replace(scratch / "whole", to)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _explain_spark_errors(to: Path) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        refuse_full_disk(error, to)
        errors = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        if errors and "UserError: " in errors[-1]:
            raise UserError(errors[-1].partition("UserError: ")[2]) from None
        reason = (errors or str(error).strip().splitlines())[-1]
        raise WorkError(f"{to}: the contacts could not be computed: {reason}") from None
    except OSError as error:
        raise WorkError(f"{to}: the contact plan could not be written: {error.strerror or error}") from None


# A task of this size takes some hundred megabytes. Run time is the same from 100,000 to 2,000,000 (measured).
LEGS_PER_TASK = 500_000
_PARTS = "a bigint, b bigint, start_s double, end_s double"


class Task(NamedTuple):
    """A slice of time and a strip of the map between two x coordinates."""

    begin_s: float
    until_s: float
    west_m: float
    east_m: float


def plan_tasks(
    facts: FleetFacts, range_m: float, duration_s: float, west_m: float, east_m: float, most: int
) -> list[Task]:
    """Plan tasks of about `most` legs. Time is cut first, because adjacent strips both read the legs between them."""
    if not facts.legs:
        return []
    per_second = facts.legs / facts.duration_s
    # In slices shorter than the legs, most legs would be read by several tasks.
    slice_s = max(most / per_second, 4 * facts.longest_leg_s)
    slices = max(ceil(duration_s / slice_s), 1)
    crowd = per_second * (duration_s / slices + facts.longest_leg_s)
    widest_m = (east_m - west_m) / (4 * range_m)
    strips = int(max(min(ceil(crowd / (4 * most)), widest_m), 1))
    edges_s = [duration_s * k / slices for k in range(slices)] + [duration_s]
    edges_m = [-inf, *(west_m + (east_m - west_m) * k / strips for k in range(1, strips)), inf]
    return [Task(*times, *strip) for times in pairwise(edges_s) for strip in pairwise(edges_m)]


def fleet_contacts(
    spark: "SparkSession",
    folder: Path,
    range_m: float,
    duration_s: float | None = None,
    legs_per_task: int = LEGS_PER_TASK,
) -> "DataFrame":
    """Compute the contacts of a fleet's folder as CONTACTS, unsorted: the same as one process computes."""
    facts = FleetFacts.read(folder)
    # Java and its workers may have another working directory.
    folder = folder.absolute()
    lasts_s = facts.duration_s if duration_s is None else duration_s
    if not (range_m > 0 and lasts_s > 0):
        raise UserError(f"contacts need a positive range and duration, not {range_m:g} m and {lasts_s:g} s")
    from pyspark.sql import functions as f

    ends = spark.read.parquet(spark_path(folder / "legs")).agg(f.min("x_m"), f.max("x_m")).first()
    west_m, east_m = (0.0, 0.0) if ends is None or ends[0] is None else ends
    tasks = plan_tasks(facts, range_m, min(lasts_s, facts.duration_s), west_m, east_m, legs_per_task)
    columns = "begin_s double, until_s double, west_m double, east_m double"
    # One Spark task for each, so that a free core takes the next.
    many = max(len(tasks), 1)
    work = spark.createDataFrame(tasks, columns).repartition(many)
    # As many partitions to join the results: with few, those of a large fleet would not fit into memory.
    parts = work.mapInArrow(_make_solver(folder, facts, range_m), _PARTS).repartition(many, "a", "b")
    return join_parts(parts, lasts_s)


def join_parts(parts: "DataFrame", duration_s: float) -> "DataFrame":
    """Join the parts of a pair's contacts that touch, and round times to the microsecond.

    All parts go through one shuffle. Contacts within one task would not need it, but Spark would have to solve every
    task a second time to separate them.
    """
    from pyspark.sql import Window, functions as f

    pair = Window.partitionBy("a", "b").orderBy("start_s", "end_s")
    until = f.max("end_s").over(pair.rowsBetween(Window.unboundedPreceding, -1))
    new = f.when(f.col("start_s") - until <= RESOLUTION_S, 0).otherwise(1)
    nth = f.sum("new").over(pair.rowsBetween(Window.unboundedPreceding, 0))
    numbered = parts.withColumn("new", new).withColumn("nth", nth)
    found = numbered.groupBy("a", "b", "nth").agg(f.min("start_s").alias("start_s"), f.max("end_s").alias("end_s"))
    end_s = f.when(f.col("end_s") > duration_s - RESOLUTION_S, duration_s).otherwise(
        _round_to_microseconds(f.col("end_s"))
    )
    made = found.select("a", "b", _round_to_microseconds(f.col("start_s")).alias("start_s"), end_s.alias("end_s"))
    return made.where("end_s > start_s").to(_contacts_schema())


def _contacts_schema() -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(spark_ddl(CONTACTS))


def _round_to_microseconds(time_s: "Column") -> "Column":
    """Round to the microsecond as NumPy does. Spark's `round` uses decimals and differs."""
    from pyspark.sql import functions as f

    return f.rint(time_s * 1e6) / 1e6


def _make_solver(
    folder: Path, facts: FleetFacts, range_m: float
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Make the function that workers run: from batches of tasks to batches of contacts."""

    def solve(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                task = Task(**row)
                pair, start_s, end_s = solve_task(folder, facts, task, range_m)
                a, b = np.divmod(pair, max(facts.nodes, 1))
                columns = {"a": a, "b": b, "start_s": start_s, "end_s": end_s}
                yield pa.RecordBatch.from_pydict(columns)

    return solve


def solve_task(folder: Path, facts: FleetFacts, task: Task, range_m: float) -> Intervals:
    """Compute the contacts of one task. Those at its borders may continue in other tasks."""
    table = legs_between(folder, facts, task.begin_s, task.until_s)
    number, start_s, end_s, x_m, y_m, vx_mps, vy_mps = (column.to_numpy() for column in table.columns)
    lasting_s = task.until_s - task.begin_s
    # Times count from the start of the slice: small numbers keep more digits.
    columns = (number.astype(np.int64), start_s - task.begin_s, end_s - task.begin_s, x_m, y_m, vx_mps, vy_mps)
    legs = Legs.between(lasting_s, *columns)
    if task.west_m > -inf or task.east_m < inf:
        legs = legs.select(_is_within_strip(legs, task.west_m - range_m / 2, task.east_m + range_m / 2))
    pair, low_s, high_s = contact_intervals(legs, facts.nodes, range_m, lasting_s)
    return pair, low_s + task.begin_s, high_s + task.begin_s


def _is_within_strip(legs: Legs, west_m: float, east_m: float) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Whether each leg enters the strip between two x coordinates."""
    first_m = legs.x_m + legs.vx_mps * (np.maximum(legs.start_s, 0.0) - legs.start_s)
    last_m = legs.x_m + legs.vx_mps * (legs.end_s - legs.start_s)
    slack_m = 1e-6
    there: np.ndarray[Any, np.dtype[np.bool_]] = (np.minimum(first_m, last_m) <= east_m + slack_m) & (
        np.maximum(first_m, last_m) >= west_m - slack_m
    )
    return there
