"""A live network on the player's page: reads the nodes' control channels and serves the page on this machine only."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.live_page.nodes import Watchers as Watchers
    from carrycast.analysis.live_page.server import PageServer as PageServer

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "nodes": "Watchers",
        "server": "PageServer",
    },
)
