"""The player: an animated run as one HTML file. Python writes the data; the page's scripts draw them."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.player.html import live_page as live_page
    from carrycast.analysis.player.scene import Scene as Scene
    from carrycast.analysis.player.show import (
        player_of_scenario as player_of_scenario,
        player_of_trace as player_of_trace,
    )
    from carrycast.analysis.player.story import (
        CRASH as CRASH,
        DELIVER as DELIVER,
        EVICT as EVICT,
        REACH as REACH,
        START as START,
        STOP as STOP,
        STORE as STORE,
        attributes_text as attributes_text,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "html": "live_page",
        "scene": "Scene",
        "show": "player_of_scenario player_of_trace",
        "story": "CRASH DELIVER EVICT REACH START STOP STORE attributes_text",
    },
)
