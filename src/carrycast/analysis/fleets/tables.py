"""The tables of a fleet's folder, written: positions, legs, nodes, and what was rejected."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from carrycast.analysis.fleets.cleaning import HINTS, REASONS, Rules, tracks
from carrycast.analysis.fleets.schema import LEGS, NODES, POSITIONS, REJECTED, names
from carrycast.analysis.fleets.workers import spark_path
from carrycast.errors import UserError
from carrycast.sim.mobility.fleet import LEGS_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Rows of a file: enough to make a file worth opening, few enough that one hour of a week is not most of it.
ROWS_PER_FILE = 2_000_000
# Of rows that are wrong for one reason: with a larger share of them, nothing is ingested.
MOST_WRONG = 0.5
# As contact plans have it.
MAX_NODES = 10_000_000


class Written(NamedTuple):
    """What was written."""

    kept: int
    rejected: dict[str, int]
    legs: int
    resampled: int | None
    """Rows after resampling; None without."""
    facts: dict[str, Any]


def write_tables(folder: Path, rows: "DataFrame", rules: Rules, crs: str | None) -> Written:
    """Rows that are cleaned, but for their tracks, as the tables of a folder."""
    from pyspark.sql import functions as f

    spark = rows.sparkSession
    staged = folder / ".scratch" / "clean"
    # Written once, read thrice: the windows of cleaning are what costs.
    rows.write.parquet(str(staged))
    rows = spark.read.schema(rows.schema).parquet(spark_path(staged))
    rejected = {
        row["reason"]: row["count"]
        for row in rows.where("reason is not null").groupBy("reason").count().orderBy("reason").collect()
    }
    wrong = rows.where("reason is not null").select(*names(REJECTED))
    wrong.coalesce(files_for(sum(rejected.values()))).write.parquet(str(folder / "rejected"))
    ends = rows.where("reason is null").agg(
        f.count(f.lit(1)), f.min("clock_s"), f.max("clock_s"), f.min("x_m"), f.min("y_m"), f.max("x_m"), f.max("y_m")
    )
    found = ends.first()
    assert found is not None
    kept, start_s, end_s, *box_m = found
    refuse_wrong(kept, rejected)
    origin_m = origin_of(box_m, crs)
    positions = tracks(rows, rules).select(
        "fleet",
        "node",
        "track",
        f.round(f.col("clock_s") - start_s, 6).alias("time_s"),
        (f.col("x_m") - origin_m[0]).alias("x_m"),
        (f.col("y_m") - origin_m[1]).alias("y_m"),
        "longitude",
        "latitude",
    )
    if rules.every_s is not None:
        positions = resampled(positions, rules.every_s)
    numbered = _numbered(positions)
    numbered.write.parquet(str(folder / "positions"))
    positions = spark.read.schema(numbered.schema).parquet(spark_path(folder / "positions"))
    facts = told_of(start_s, end_s, crs, origin_m, box_m)
    made = _write_legs(folder, positions)
    count = positions.count()
    return Written(kept, rejected, made["legs"], None if rules.every_s is None else count, {**facts, **made})


def origin_of(box_m: Sequence[float], crs: str | None) -> tuple[float, float]:
    """Where a fleet's own meters begin. A map's own origin may be far away; meters of a file are kept as they are."""
    return (float(int(box_m[0] // 1)), float(int(box_m[1] // 1))) if crs is not None else (0.0, 0.0)


def told_of(
    start_s: float, end_s: float, crs: str | None, origin_m: tuple[float, float], box_m: Sequence[float]
) -> dict[str, Any]:
    """When and where a fleet is, as its facts say it."""
    return {
        "start_s": start_s,
        "duration_s": round(end_s - start_s, 6),
        "crs": crs,
        "origin_m": origin_m,
        "area_m": [round(box_m[2] - origin_m[0], 3), round(box_m[3] - origin_m[1], 3)],
    }


def refuse_clash(node: str | None, first: str, second: str) -> NoReturn:
    """A name that two files have at the same time: the user has to say what is meant by it."""
    raise UserError(
        f"node {node!r} is in {first} and in {second} at the same time: give "
        "--by-file if these are two nodes, --merge if they are one"
    )


def refuse_wrong(kept: int, rejected: dict[str, int]) -> None:
    """Refuse a fleet with nothing left, or of which most is wrong for one reason."""
    rows = kept + sum(rejected.values())
    for reason, count in rejected.items():
        if reason in HINTS and count > MOST_WRONG * rows:
            raise UserError(f"{count:,} of {rows:,} rows are rejected: {REASONS[reason]}; {HINTS[reason]}")
    if not kept:
        raise UserError(f"no row is left: {', '.join(f'{count} {reason}' for reason, count in rejected.items())}")


def _write_legs(folder: Path, positions: "DataFrame") -> dict[str, Any]:
    """The legs and the nodes, and what there is to say of them."""
    from pyspark.sql import functions as f

    spark = positions.sparkSession
    count = positions.count()
    made = legs(positions)
    ordered = made.repartitionByRange(files_for(count), "start_s").sortWithinPartitions("start_s", "number")
    ordered.write.parquet(str(folder / LEGS_FOLDER))
    made = spark.read.schema(made.schema).parquet(spark_path(folder / LEGS_FOLDER))
    lasting_s = f.col("end_s") - f.col("start_s")
    total = made.agg(
        f.count(f.lit(1)).alias("legs"),
        f.max(lasting_s).alias("longest_leg_s"),
        # Over rows in any order: the same legs give the same digest, however they are spread over files.
        f.concat_ws("-", f.hex(f.bit_xor(f.xxhash64(*names(LEGS)))), f.count(f.lit(1)).cast("string")).alias("digest"),
    ).first()
    assert total is not None
    paths = made.groupBy("number").agg(
        f.sum(lasting_s).alias("present_s"), f.sum(f.hypot("vx_mps", "vy_mps") * lasting_s).alias("path_m")
    )
    nodes = positions.groupBy("number", "fleet", "node").agg(
        f.count(f.lit(1)).alias("rows"),
        f.min("time_s").alias("first_s"),
        f.max("time_s").alias("last_s"),
        f.count_distinct("track").alias("tracks"),
    )
    nodes = nodes.join(paths, "number", "left").fillna(0.0, ["present_s", "path_m"])
    nodes.select(*names(NODES)).coalesce(1).sortWithinPartitions("number").write.parquet(str(folder / "nodes"))
    known = spark.read.parquet(spark_path(folder / "nodes")).count()
    return {"nodes": known, **total.asDict(), "longest_leg_s": total["longest_leg_s"] or 0.0}


def legs(positions: "DataFrame") -> "DataFrame":
    """The straight lines between the positions of each track, as LEGS."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    track = Window.partitionBy("number").orderBy("track", "time_s")
    following = f.lead(f.struct("track", "time_s", "x_m", "y_m")).over(track)
    then = positions.withColumn("then", following).where(
        (f.col("then.track") == f.col("track")) & (f.col("then.time_s") > f.col("time_s"))
    )
    lasting_s = f.col("then.time_s") - f.col("time_s")
    return then.select(
        "number",
        f.col("time_s").alias("start_s"),
        f.col("then.time_s").alias("end_s"),
        "x_m",
        "y_m",
        ((f.col("then.x_m") - f.col("x_m")) / lasting_s).alias("vx_mps"),
        ((f.col("then.y_m") - f.col("y_m")) / lasting_s).alias("vy_mps"),
    )


def resampled(positions: "DataFrame", every_s: float) -> "DataFrame":
    """A row at each whole multiple of a time, on the straight line between the rows around it; none between tracks."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    track = Window.partitionBy("fleet", "node").orderBy("track", "time_s")
    following = f.lead(f.struct("track", "time_s", "x_m", "y_m", "longitude", "latitude")).over(track)
    then = positions.withColumn("then", following)
    joined = f.coalesce(f.col("then.track") == f.col("track"), f.lit(False))
    first = f.ceil(f.col("time_s") / every_s).cast("bigint")
    # A multiple at which the next row stands is that row's own.
    until = f.when(joined, f.ceil(f.col("then.time_s") / every_s).cast("bigint")).otherwise(
        f.floor(f.col("time_s") / every_s).cast("bigint") + 1
    )
    spread = then.withColumns({"from": first, "until": until}).where(f.col("from") < f.col("until"))
    spread = spread.withColumn("tick", f.explode(f.sequence(f.col("from"), f.col("until") - 1)))
    at_s = f.col("tick") * every_s
    share = f.when(joined, (at_s - f.col("time_s")) / (f.col("then.time_s") - f.col("time_s"))).otherwise(0.0)

    def between(name: str) -> "Column":
        step = f.col(f"then.{name}") - f.col(name)
        if name != "longitude":
            return f.col(name) + share * step
        # The short way around the earth, also across 180 degrees.
        made = f.col(name) + share * (step - 360.0 * f.floor((step + 180.0) / 360.0))
        return made - 360.0 * f.floor((made + 180.0) / 360.0)

    return spread.select(
        "fleet",
        "node",
        "track",
        at_s.alias("time_s"),
        *(
            f.when(joined, between(name)).otherwise(f.col(name)).alias(name)
            for name in ("x_m", "y_m", "longitude", "latitude")
        ),
    )


def _numbered(positions: "DataFrame") -> "DataFrame":
    """With the number of each node: by fleet and name, numbers in names counted as numbers."""
    from pyspark.sql import functions as f

    found = positions.select("fleet", "node").distinct().limit(MAX_NODES + 1).collect()
    if len(found) > MAX_NODES:
        raise UserError(f"more than {MAX_NODES} nodes; is the node's column the right one? See --columns")
    order = sorted((row["fleet"], row["node"]) for row in found)
    order.sort(key=lambda name: [natural(part) for part in name])
    spark = positions.sparkSession
    known = spark.createDataFrame(
        [(fleet, node, number) for number, (fleet, node) in enumerate(order)],
        "fleet string, node string, number bigint",
    )
    return positions.join(f.broadcast(known), ["fleet", "node"]).select(*names(POSITIONS))


def natural(name: str) -> list[tuple[int, str]]:
    """For sorting: `bus 9` before `bus 10`. Numbers by their length first: they may be longer than any integer."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"(\d+)", name))
    return [(len(digits), digits) if part.isdecimal() else (-1, part) for part, digits in parts]


def files_for(rows: int) -> int:
    """How many files so many rows make."""
    return max(-(-rows // ROWS_PER_FILE), 1)
