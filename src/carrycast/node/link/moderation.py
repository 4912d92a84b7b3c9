"""Interrupt moderation: a socket that becomes ready very often is polled with pauses in between.

Network drivers moderate interrupts in the same way (Linux NAPI): all datagrams that arrive during a pause are read
together. The pause is adjusted so that it collects about TARGET datagrams. It adds some milliseconds of delay at
hundreds of datagrams per second, less at thousands, and none at low rates.

Polling would only slow down a peer that waits for an answer before it sends more. Such a peer is recognized by a pause
that collects a single datagram. Then polling stops for a backoff, which is short at first, because a busy peer may
pause once, and doubles each time that polling fails again.
"""

WAKE_UPS_PER_S = 200.0
"""The rate of wake-ups above which polling begins, after a burst."""
BURST = 8.0
"""The burst: so many wake-ups above the rate start polling."""
TARGET = 32
"""The datagrams that a pause should collect: with more, the cost of an event hardly falls."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.002, 0.02
"""The bounds of a pause. A delay of 20 ms is not noticed by people."""
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
"""The bounds of the time without polling, after a pause that collected too little."""


class InterruptModeration:
    """Decides for one socket between waiting for readiness and polling. Time is an argument."""

    __slots__ = ("_backoff_s", "_backoff_until_s", "_excess", "_last_s", "_pause_s")

    def __init__(self) -> None:
        self._last_s = 0.0
        self._excess = 0.0
        """Wake-ups above the rate, as a leaky bucket."""
        self._pause_s = 0.0
        """The pause before this read; 0 if there was none."""
        self._backoff_s = MIN_BACKOFF_S
        self._backoff_until_s = 0.0

    def choose_pause_s(self, now_s: float, found: int) -> float:
        """Return the pause before the next read, after `found` datagrams were read; 0 to wait for readiness."""
        if self._pause_s > 0.0:
            if found > 1:
                self._backoff_s = MIN_BACKOFF_S
                self._pause_s = min(max(self._pause_s * TARGET / found, MIN_PAUSE_S), MAX_PAUSE_S)
                return self._pause_s
            self._pause_s = self._excess = 0.0
            self._backoff_until_s = now_s + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
        self._excess = max(self._excess - (now_s - self._last_s) * WAKE_UPS_PER_S, 0.0) + 1.0
        self._last_s = now_s
        if self._excess <= BURST or now_s < self._backoff_until_s:
            return 0.0
        self._pause_s = MAX_PAUSE_S
        return self._pause_s
