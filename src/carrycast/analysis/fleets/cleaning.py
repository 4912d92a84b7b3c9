"""Cleaning, step by step. Each step gives rows that it finds wrong a reason; none is dropped.

What a simulator states (`stated`) is taken as it is: gaps and speeds are rules for what was measured.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

# A million kilometers, as trace files have it.
MAX_COORDINATE_M = 1e9
DAY_S = 86_400.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as wrong. The defaults suit vehicles on roads that report at least every minute or two."""

    max_speed_mps: Annotated[float, Meta(gt=0, description="faster is a jump (m/s)")] = 70.0
    """252 km/h: no road vehicle, and few trains."""
    gap_s: Annotated[float, Meta(gt=0, description="a node silent for longer is absent meanwhile (s)")] = 300.0
    clock_days: Annotated[float, Meta(gt=0, description="farther from the fleet's median time is a wrong clock")] = (
        366.0
    )
    """Receivers that lost their clock say 1970, 1980 or, at a rollover of their weeks, twenty years ago."""
    from_s: float | None = None
    until_s: float | None = None
    """Times outside of these, in seconds as the file counts, are left out by wish."""
    least_run: Annotated[int, Meta(ge=1)] = 3
    """Rows between two jumps, or a jump and a silence, are in doubt if they are fewer; more, and the node really was
    there. Those in doubt are right if they can be reached from the last right row before, or reach the next."""
    every_s: Annotated[float, Meta(gt=0, description="a row for each node so often (s)")] | None = None
    disordered: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """A log with a larger share of steps back in time is no log in the order of time: then no row is wrong for it."""


def unreadable(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """A field is missing or is no number."""
    from pyspark.sql import functions as f

    return _marked(rows, f.col("text").isNotNull(), "unreadable")


def no_place(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """No place on earth or on the map, or latitude and longitude both exactly 0, which receivers say without a fix."""
    from pyspark.sql import functions as f

    longitude, latitude = f.col("longitude"), f.col("latitude")
    on_earth = longitude.between(-180, 180) & latitude.between(-90, 90) & ((longitude != 0) | (latitude != 0))
    on_map = (f.abs("x_m") <= MAX_COORDINATE_M) & (f.abs("y_m") <= MAX_COORDINATE_M)
    fine = f.when(longitude.isNotNull(), on_earth & on_map).otherwise(on_map)
    return _marked(rows, ~f.coalesce(fine, f.lit(False)), "no_place")


def clock(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """A time far from all others, or a single one out of order in a log that is in the order of time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    measured = f.col("stated").isNull()
    far = ~f.abs(f.col("clock_s") - median_s).between(0, rules.clock_days * DAY_S)
    rows = _marked(rows, far & measured, "clock")
    log = Window.partitionBy("fleet", "node", "file").orderBy("place")
    now = f.when(f.col("reason").isNull() & measured, f.col("clock_s"))
    rows = rows.withColumn("now", now)
    before, after, later = f.lag("now").over(log), f.lead("now").over(log), f.lead("now", 2).over(log)
    rows = rows.withColumns({"before": before, "after": after, "later": later})
    back = f.coalesce(f.col("now") < f.col("before"), f.lit(False))
    share = f.avg(f.when(back, 1.0).otherwise(0.0)).over(Window.partitionBy("fleet", "node", "file"))
    dips = back & f.coalesce(f.col("after") >= f.col("before"), f.col("after").isNull())
    # Where either of two could be the wrong one, the second is.
    dips_next = f.coalesce(f.col("later") >= f.col("now"), f.lit(False))
    peaks = (f.col("now") > f.col("after")) & ~dips_next & f.coalesce(f.col("before") <= f.col("after"), f.lit(True))
    rows = _marked(rows, (share > 0) & (share <= rules.disordered) & f.coalesce(dips | peaks, f.lit(False)), "clock")
    return rows.drop("now", "before", "after", "later")


def outside(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """Before or after the times that were asked for."""
    from pyspark.sql import functions as f

    low, high = f.lit(rules.from_s), f.lit(rules.until_s)
    inside = f.coalesce(f.col("clock_s") >= low, f.lit(True)) & f.coalesce(f.col("clock_s") < high, f.lit(True))
    return _marked(rows, ~inside, "outside")


def duplicates(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """The same node at the same time again: at the same place a duplicate, elsewhere a conflict. The first stays."""
    from pyspark.sql import functions as f

    fine = f.col("reason").isNull() & f.col("stated").isNull()
    known = _known()
    again = known["clock_s"] == f.col("clock_s")
    same = (known["x_m"] == f.col("x_m")) & (known["y_m"] == f.col("y_m"))
    rows = rows.withColumn("again", f.when(fine & again, f.when(same, "duplicate").otherwise("conflict")))
    return rows.withColumn("reason", f.coalesce("reason", "again")).drop("again")


def jumps(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """A few rows that could be reached, or left, only faster than the limit. The rows around them stay.

    A silence parts them as well: the night between two days is long enough to have come from anywhere.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    fine = f.col("reason").isNull() & f.col("stated").isNull()
    known = _known()
    rows = rows.withColumn("fine", fine)
    rows = rows.withColumn("leap", f.when(fine & (_speed(known) > rules.max_speed_mps), 1).otherwise(0))
    begins = f.when(fine & _silent(known, rules), 1).otherwise(f.col("leap"))
    rows = rows.withColumn("run", f.sum(begins).over(_in_time().rowsBetween(Window.unboundedPreceding, 0)))
    by = ["fleet", "node", "run"]
    at = f.struct("clock_s", "stated", "file", "place", "x_m", "y_m")
    found = (
        rows.where("reason is null")
        .groupBy(*by)
        .agg(
            f.count_if("fine").alias("rows"),
            f.max("leap").alias("leap"),
            f.min(at).alias("first"),
            f.max(at).alias("last"),
        )
    )
    found = found.select(*by, "rows", "leap", *(f.col(f"{end}.{name}").alias(f"{end}_{name}") for end, name in _ENDS))
    wrong = found.groupBy("fleet", "node").applyInArrow(_judge(rules), "fleet string, node string, run bigint")
    rows = rows.join(wrong.withColumn("wrong", f.lit(True)), by, "left")
    rows = _marked(rows, f.col("fine") & f.coalesce("wrong", f.lit(False)), "jump")
    return rows.drop("fine", "leap", "run", "wrong")


_ENDS = [(end, name) for end in ("first", "last") for name in ("clock_s", "x_m", "y_m")]


def _judge(rules: Rules) -> "Callable[[pa.Table], pa.Table]":
    """For workers: which runs of a node are wrong."""

    def judge(runs: "pa.Table") -> "pa.Table":
        import numpy as np

        from carrycast.analysis.fleets.runs import Runs, wrong_runs

        runs = runs.sort_by("run")
        leap = runs["leap"].to_numpy().astype(np.bool_)
        ends = (runs[f"{end}_{name}"].to_numpy() for end, name in _ENDS)
        node = np.zeros(len(leap), dtype=np.int64)
        wrong = wrong_runs(Runs(node, runs["rows"].to_numpy(), leap, *ends), rules)
        return runs.select(["fleet", "node", "run"]).take(np.flatnonzero(wrong))

    return judge


def tracks(rows: "DataFrame", rules: Rules) -> "DataFrame":
    """Rows that are fine, with the number of their track: a new one where the node was silent for too long, where it
    was told from elsewhere than it can have come from, or where the format says so."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    known = _known()
    apart = f.when(f.col("stated").isNull(), _silent(known, rules) | (_speed(known) > rules.max_speed_mps)).otherwise(
        ~(f.col("stated").eqNullSafe(known["stated"]) & (f.col("file") == known["file"]))
    )
    rows = rows.where("reason is null").withColumn(
        "apart", f.when(known["clock_s"].isNotNull() & apart, 1).otherwise(0)
    )
    numbered = f.sum("apart").over(_in_time().rowsBetween(Window.unboundedPreceding, 0))
    return rows.withColumn("track", numbered).drop("apart")


Step = Callable[["DataFrame", Rules, float], "DataFrame"]
STEPS: dict[str, Step] = {step.__name__: step for step in (unreadable, no_place, clock, outside, duplicates, jumps)}
REASONS = {
    "unreadable": "no node, place and time can be read",
    "no_place": "no place on earth or on the map",
    "clock": "the receiver's clock was wrong",
    "outside": "outside the times asked for",
    "duplicate": "said before",
    "conflict": "elsewhere at the same time",
    "jump": "reached faster than the limit",
}
# Where most rows are wrong, it is a column or a unit that is.
HINTS = {
    "unreadable": "see --columns, --header, --time-format and --decimal-comma",
    "no_place": "are longitude and latitude swapped, or are they meters? See --swap and --columns",
    "clock": "is the time in other units? See --time-unit, --time-format and --columns",
    "conflict": "are several vehicles taken for one? See --columns node=",
    "jump": "are the units right? A faster fleet needs --max-speed",
}


def cleaned(rows: "DataFrame", rules: Rules, median_s: float) -> "DataFrame":
    """All rows, with a `reason` for those that are rejected."""
    from pyspark.sql import functions as f

    rows = rows.withColumn("reason", f.lit(None).cast("string"))
    for step in STEPS.values():
        rows = step(rows, rules, median_s)
    return rows


def _marked(rows: "DataFrame", wrong: "Column", reason: str) -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.withColumn("reason", f.when(f.col("reason").isNull() & wrong, reason).otherwise(f.col("reason")))


def _in_time() -> "WindowSpec":
    from pyspark.sql import Window

    return Window.partitionBy("fleet", "node").orderBy("clock_s", "stated", "file", "place")


def _so_far() -> "WindowSpec":
    from pyspark.sql import Window

    return _in_time().rowsBetween(Window.unboundedPreceding, -1)


def _known() -> "Column":
    """The row before that is fine."""
    from pyspark.sql import functions as f

    fine = f.struct("clock_s", "x_m", "y_m", "stated", "file")
    return f.last(f.when(f.col("reason").isNull(), fine), ignorenulls=True).over(_so_far())


def _silent(known: "Column", rules: Rules) -> "Column":
    """Whether nothing was heard of a row's node for too long before it."""
    from pyspark.sql import functions as f

    return f.col("clock_s") - known["clock_s"] > rules.gap_s


def _speed(known: "Column") -> "Column":
    from pyspark.sql import functions as f

    away_m = f.hypot(f.col("x_m") - known["x_m"], f.col("y_m") - known["y_m"])
    # Those of no time apart are told by the step on duplicates.
    return away_m / f.nullif(f.col("clock_s") - known["clock_s"], f.lit(0.0))
