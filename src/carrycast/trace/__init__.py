"""The trace: what happened in a run, in the same tables in every world."""

from carrycast.trace import rows
from carrycast.trace.schema import Kind, Level, Row
from carrycast.trace.writer import Trace

__all__ = ["Kind", "Level", "Row", "Trace", "rows"]
