"""Telemetry: metrics of live nodes by the minute, computed by a stream over the traces that nodes write.

`minutes` defines the metrics of a minute, for the stream and for the batch job. `folder` stores
tables and state so that each file counts exactly once, even if the watch is killed. `stream` adds the rows of new
files, in steps on Spark Structured Streaming.
"""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.telemetry.folder import TelemetrySettings as TelemetrySettings, WatchFolder as WatchFolder
    from carrycast.analysis.telemetry.minutes import compute_minutes as compute_minutes
    from carrycast.analysis.telemetry.picture import (
        RECENT as RECENT,
        minutes_table as minutes_table,
        read_minutes as read_minutes,
    )
    from carrycast.analysis.telemetry.stream import Watcher as Watcher, check_folders as check_folders

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "folder": "TelemetrySettings WatchFolder",
        "minutes": "compute_minutes",
        "picture": "RECENT minutes_table read_minutes",
        "stream": "Watcher check_folders",
    },
)
