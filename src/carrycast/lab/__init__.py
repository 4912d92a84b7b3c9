"""Emulation: run a scenario with live nodes in one process, on real sockets and in real time."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.lab.play import emulate as emulate

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "play": "emulate",
    },
)
