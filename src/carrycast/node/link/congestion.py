"""How fast a neighbor is sent to: by the time that it takes to answer, and by what got lost on the way.

The wait for an acknowledgement follows RFC 6298: the smoothed time there and back, and four times how much that varies;
times of frames that were sent again do not count, for nobody knows which copy was answered. The window grows by one
with each acknowledgement until something is lost, and is halved then; from there on it grows by one with each window
that was answered, as TCP's does. So a link that is slow, or a neighbor that is busy, gets as much as it takes.
"""

FIRST_WINDOW = 32
"""Frames to a neighbor of which nothing is known yet; fits a small receive buffer."""
LEAST_WINDOW = 4
_GAIN, _VARIANCE_GAIN, _VARIANCES = 1 / 8, 1 / 4, 4
"""[RFC 6298 §2]"""
SOONEST = 0.5
"""Of the configured wait: no retry comes sooner, for a neighbor that was busy for a moment is not gone."""


class Pace:
    """The window and the wait of the link to one neighbor."""

    __slots__ = ("_first_s", "_halved_s", "_most", "_smoothed_s", "_threshold", "_varied_s", "window")

    def __init__(self, first_s: float, most: int) -> None:
        """With the wait while nothing was measured, and the most that may be on the air."""
        self._first_s = first_s
        self._most = float(most)
        self.window = min(float(FIRST_WINDOW), self._most)
        self._threshold = self._most
        self._smoothed_s: float | None = None
        self._varied_s = 0.0
        self._halved_s = 0.0

    def wait_s(self, attempt: int) -> float:
        """How long an acknowledgement is waited for; attempts count from 1. Only the first retry may come sooner than
        configured: a neighbor is given up as late as ever, however quick it was."""
        configured_s = self._first_s * 2.0 ** (attempt - 1)
        if self._smoothed_s is None:
            return configured_s
        measured_s = self._smoothed_s + _VARIANCES * self._varied_s
        if attempt > 1:
            return max(configured_s, measured_s * 2.0 ** (attempt - 1))
        return max(self._first_s * SOONEST, measured_s)

    def answered(self, time_s: float | None) -> None:
        """A frame was acknowledged, after so long if it was sent once."""
        if time_s is not None:
            if self._smoothed_s is None:
                self._smoothed_s, self._varied_s = time_s, time_s / 2
            else:
                self._varied_s += _VARIANCE_GAIN * (abs(self._smoothed_s - time_s) - self._varied_s)
                self._smoothed_s += _GAIN * (time_s - self._smoothed_s)
        if self.window < self._most:
            growth = 1.0 if self.window < self._threshold else 1.0 / self.window
            self.window = min(self._most, self.window + growth)

    def silent(self, now_s: float) -> None:
        """A frame has to be sent again. What is lost together counts once."""
        if now_s >= self._halved_s:
            self.window = self._threshold = max(min(float(LEAST_WINDOW), self._most), self.window / 2)
            self._halved_s = now_s + (self._first_s if self._smoothed_s is None else self._smoothed_s)
