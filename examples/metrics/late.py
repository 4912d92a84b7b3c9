"""Metrics of your own: `carrycast metrics TRACE --metrics-from late.py`, or `metrics_from` of an experiment."""

from pyspark.sql import functions as f

from carrycast.analysis.spark import metric
from carrycast.analysis.spark.trace_metrics import served_pairs

LATE_S = 1.0


@metric("late_share")
def late_share(trace, events, subscriptions):
    """Share of deliveries that took longer than a second"""
    served = served_pairs(trace, events, subscriptions)
    late = f.count_if(f.col("delay_s") > LATE_S) / f.count(f.lit(1))
    return served.groupBy("run").agg(late.alias("value"))


@metric("busiest_bytes")
def busiest_bytes(trace, events, subscriptions):
    """Bytes that the node sent which sent most"""
    sent = trace.where("kind in ('send', 'retry')").groupBy("run", "node").agg(f.sum("size_bytes").alias("sent"))
    return sent.groupBy("run").agg(f.max("sent").alias("value"))
