"""Spark jobs over runs and traces: sweep, metrics, claims, contacts, report.

Spark is imported where a job starts, never here: a machine without it can still import the whole package.
"""

from carrycast.analysis.spark.own_metrics import OwnMetric, metric

__all__ = ["OwnMetric", "metric"]
