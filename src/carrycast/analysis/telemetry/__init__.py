"""What live nodes do, minute by minute, while they do it: a stream over the traces that they write.

`minutes` has what is counted in a minute, for the stream and for the batch job alike; `step` takes the files that are
new into account; `folder` keeps tables and state so that each file counts once, however often the watch is killed;
`stream` runs it on Structured Streaming.
"""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.telemetry.folder import TelemetrySettings as TelemetrySettings, WatchFolder as WatchFolder
    from carrycast.analysis.telemetry.minutes import minutes_of_traces as minutes_of_traces
    from carrycast.analysis.telemetry.picture import (
        RECENT as RECENT,
        minutes_of as minutes_of,
        table_of_minutes as table_of_minutes,
    )
    from carrycast.analysis.telemetry.stream import Watcher as Watcher, checked_folders as checked_folders

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "folder": "TelemetrySettings WatchFolder",
        "minutes": "minutes_of_traces",
        "picture": "RECENT minutes_of table_of_minutes",
        "stream": "Watcher checked_folders",
    },
)
