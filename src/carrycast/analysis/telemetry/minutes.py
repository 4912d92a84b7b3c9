"""What is counted in a minute. The stream and the batch job use these definitions, and those of whole runs beneath.

An event counts in the minute in which it was published, with all its deliveries, whenever those come; a frame or a drop
in the minute in which it happened.
"""

from typing import TYPE_CHECKING

from carrycast.analysis.spark.trace_metrics import eligible_pairs, frame_counts, served_pairs
from carrycast.trace.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_S = 60
LATEST_S = 1e11
"""No row is of a later time, three thousand years from now; what is was written by nobody's clock."""
REASON_CHARACTERS = 100
KEY = ["run", "minute_s"]


def usable(time: str = "time_s", node: str = "node") -> "Column":
    """Whether a row can stand in a minute at all. A file may hold anything; a time that is no number is none."""
    from pyspark.sql import functions as f

    return (
        f.col("run").isNotNull() & f.col(node).isNotNull() & f.coalesce(f.col(time).between(0, LATEST_S), f.lit(False))
    )


def minute(time: str = "time_s") -> "Column":
    """The beginning of the minute, in whole seconds on the clock of the trace."""
    from pyspark.sql import functions as f

    return (f.floor(f.col(time) / MINUTE_S) * MINUTE_S).cast("bigint").alias("minute_s")


def drop_reason() -> "Column":
    """Why something was dropped; null for what is no drop. What follows a colon is for people, and always different."""
    from pyspark.sql import functions as f

    word = f.substring(f.substring_index(f.coalesce("reason", f.lit("")), ":", 1), 1, REASON_CHARACTERS)
    return f.when(f.col("kind") == Kind.DROP.value, word).alias("reason")


def load_by_minute(trace: "DataFrame") -> "DataFrame":
    """run, minute_s, how many nodes said anything, frames, bytes and airtime."""
    from pyspark.sql import functions as f

    nodes = f.count_distinct("node").alias("nodes")
    return trace.where(usable()).groupBy("run", minute()).agg(nodes, *frame_counts())


def drops_by_minute(trace: "DataFrame") -> "DataFrame":
    """run, minute_s, reason, drops."""
    from pyspark.sql import functions as f

    dropped = trace.where(usable()).where(f.col("kind") == Kind.DROP.value)
    return dropped.groupBy("run", minute(), drop_reason()).agg(f.count(f.lit(1)).alias("drops"))


def deliveries_by_minute(
    trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame", wanted: "Column | None" = None
) -> "DataFrame":
    """run, minute_s of publication, and what became of the events of that minute; of those minutes that are
    `wanted`, by a condition on run and minute_s, if one is told.

    `trace` need not have other rows than deliveries.
    """
    from pyspark.sql import functions as f

    known = events.where(usable(node="source")).withColumn("minute_s", minute())
    judged = known if wanted is None else known.where(wanted)
    published = judged.where("counted").groupBy(*KEY).agg(f.count(f.lit(1)).alias("published"))
    pairs = eligible_pairs(judged, subscriptions)
    eligible = pairs.groupBy("run", minute("published_s")).agg(f.count(f.lit(1)).alias("eligible"))
    served = served_pairs(trace, pairs, known, subscriptions).join(judged.select("event", *KEY), ["run", "event"])
    found = published.join(eligible, KEY, "left").join(_delays(served), KEY, "left").fillna(0, ["eligible", *_COUNTS])
    ratio = f.when(f.col("eligible") > 0, f.col("delivered") / f.col("eligible")).alias("delivery_ratio")
    return found.select(*KEY, "published", "eligible", "delivered", ratio, *_AMOUNTS, "delays_negative")


_COUNTS = ["delivered", "delays_negative"]
_AMOUNTS = ["delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean"]


def _delays(served: "DataFrame") -> "DataFrame":
    """Delays are whole microseconds, and are counted as such: in whatever order they are summed up, the sum is one."""
    from pyspark.sql import functions as f

    delay_us = f.round(f.col("delay_s") * 1e6).cast("bigint").alias("delay_us")
    n = f.count(f.lit(1))
    shares = f.percentile("delay_us", f.array(f.lit(0.5), f.lit(0.95)))
    return (
        served.select(*KEY, delay_us, "hops")
        .groupBy(*KEY)
        .agg(
            n.alias("delivered"),
            (f.sum("delay_us") / n / 1e6).alias("delay_mean_s"),
            (shares[0] / 1e6).alias("delay_p50_s"),
            (shares[1] / 1e6).alias("delay_p95_s"),
            (f.sum("hops") / n).alias("hops_mean"),
            f.count_if(f.col("delay_us") < 0).alias("delays_negative"),
        )
    )
