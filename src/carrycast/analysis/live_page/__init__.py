"""A live network on the player's page: what nodes tell through their control channels, served on this machine alone."""

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
