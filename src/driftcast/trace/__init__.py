"""The trace: what happened in a run, in the same tables in every world."""

from driftcast.trace import rows
from driftcast.trace.schema import Kind, Level, Row
from driftcast.trace.writer import Trace

__all__ = ["Kind", "Level", "Row", "Trace", "rows"]
