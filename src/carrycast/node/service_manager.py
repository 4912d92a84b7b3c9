"""Notifications to a service manager such as systemd: ready, alive (watchdog), stopping (sd_notify(3)).

Without a service manager (`NOTIFY_SOCKET`) nothing is sent.
"""

import asyncio
import os
import socket

from carrycast.node.recorder import LOG

RETRY_S = 0.1
"""The time until `READY` is sent again to a busy service manager."""


class ServiceManager:
    """The connection to the service manager."""

    def __init__(self) -> None:
        self._path = os.environ.get("NOTIFY_SOCKET", "")
        # The service manager restarts a node that sends no notification for this long.
        self._watchdog_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        self._timer: asyncio.TimerHandle | None = None

    def notify_ready(self, status: str) -> None:
        """Notify that the node has started. From now on the watchdog is notified as long as the event loop runs."""
        if not self._send(f"READY=1\nSTATUS={status}"):
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.notify_ready, status)
        elif self._path and self._watchdog_s > 0:
            self._notify_watchdog()

    def notify_stopping(self) -> None:
        """Notify that the node stops on purpose."""
        if self._timer is not None:
            self._timer.cancel()
        self._send("STOPPING=1")

    def _notify_watchdog(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self._notify_watchdog)

    def _send(self, text: str) -> bool:
        """Send without blocking; False if the queue of the service manager is full."""
        if not self._path:
            return True
        # A path that begins with @ is an abstract socket address of Linux.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), address)
        except BlockingIOError:
            return False
        except OSError as error:
            LOG.warning("the service manager cannot be notified: %s", error.strerror or error)
        return True
