"""What a service manager is told: that the node is ready, that it is alive, that it stops (the protocol of sd_notify).

Without a manager that listens (`NOTIFY_SOCKET`) nothing is said.
"""

import asyncio
import os
import socket

from carrycast.node.recorder import LOG

RETRY_S = 0.1
"""Until a manager that is behind is told again that the node is ready: it waits for that, and for nothing else."""


class ServiceManager:
    """The way to the manager."""

    def __init__(self) -> None:
        self._path = os.environ.get("NOTIFY_SOCKET", "")
        # A manager that restarts a silent node wants to hear of it at least so often.
        self._watchdog_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """The node serves. From now on it says that it is alive, as long as its loop goes round."""
        if not self._say(f"READY=1\nSTATUS={status}"):
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.ready, status)
        elif self._path and self._watchdog_s > 0:
            self._live()

    def stopping(self) -> None:
        """The node ends on purpose."""
        if self._timer is not None:
            self._timer.cancel()
        self._say("STOPPING=1")

    def _live(self) -> None:
        self._say("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self._live)

    def _say(self, text: str) -> bool:
        """False if the manager has not read what it was told before: the node does not wait for it."""
        if not self._path:
            return True
        # A name that begins with @ is one of Linux's abstract names.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
                opened.setblocking(False)
                opened.sendto(text.encode(), address)
        except BlockingIOError:
            return False
        except OSError as error:
            LOG.warning("the service manager cannot be told: %s", error.strerror or error)
        return True
