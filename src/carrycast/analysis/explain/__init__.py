"""Explain why an event was or was not delivered to a node, from the facts of a trace and its contacts."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.explain.arrival import ContactIndex as ContactIndex
    from carrycast.analysis.explain.timeline import Timeline as Timeline, event_timeline as event_timeline
    from carrycast.analysis.explain.timeline_text import timeline_lines as timeline_lines

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "arrival": "ContactIndex",
        "timeline": "Timeline event_timeline",
        "timeline_text": "timeline_lines",
    },
)
