"""Monitors the certificate of this node: the log warns before the certificate expires, and when it has expired."""

import asyncio
import time

from carrycast.node.recorder import LOG
from carrycast.node.security.certificate import DAY_S
from carrycast.node.security.membership import Certified, Membership, format_date

CHECK_S = 10.0
"""The time between two checks. The clock may be set at any time, so there is no timer for the end itself."""
AGAIN_S = DAY_S
"""The time between two equal log messages."""


class CertificateMonitor:
    """Monitors the certificate of one node."""

    def __init__(self, membership: Certified, warn_s: float) -> None:
        self._membership = membership
        self._warn_s = warn_s
        self._timer: asyncio.TimerHandle | None = None
        self._last_message: tuple[str, float] = ("", 0.0)
        """The last log message, and when it was logged."""

    @property
    def ends_s(self) -> float:
        """When the certificate expires."""
        return self._membership.ends_s

    def make_warning(self) -> str | None:
        """Return a warning if the certificate expires soon."""
        left_s = self.ends_s - time.time()
        if left_s > self._warn_s:
            return None
        return (
            f"this node's certificate ends on {format_date(self.ends_s)}: have the operator certify the node again "
            f"before, and send the node SIGHUP"
        )

    def start(self) -> None:
        """Check now and periodically."""
        self.check()
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self.start)

    def stop(self) -> None:
        """End the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Log a problem or a warning when it begins, and then once a day."""
        problem = self._membership.find_problem()
        message = problem or self.make_warning() or ""
        # By the monotonic clock, because the wall clock may be wrong.
        now_s = time.monotonic()
        if message == self._last_message[0] and (not message or now_s - self._last_message[1] < AGAIN_S):
            return
        if message:
            (LOG.error if problem else LOG.warning)("%s", message)
        self._last_message = (message, now_s)


def make_monitor(membership: Membership, warn_days: float) -> CertificateMonitor | None:
    """Make the monitor of a node; None if the node has no certificate."""
    return CertificateMonitor(membership, warn_days * DAY_S) if isinstance(membership, Certified) else None
