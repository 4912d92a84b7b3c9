"""What live nodes do, minute by minute, while they do it: a stream over the traces that they write.

`minutes` has what is counted in a minute, for the stream and for the batch job alike; `step` takes the files that are
new into account; `folder` keeps tables and state so that each file counts once, however often the watch is killed;
`stream` runs it on Structured Streaming.
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
