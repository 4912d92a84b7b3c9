"""Congestion control of the link to one neighbor: a retransmission timer (RFC 6298) and a congestion window (RFC 5681).

The retransmission timeout (RTO) is computed from the smoothed round-trip time (SRTT) and its variation (RTTVAR). By
Karn's algorithm, retransmitted frames are not sampled, because the acknowledgement may be for either copy. The
congestion window (cwnd) grows by one with each acknowledgement in slow start, until a frame is lost. A loss halves it.
From then on it grows by one with each acknowledged window (congestion avoidance).
"""

INITIAL_WINDOW = 32
"""The initial window (IW), in frames: they fit in a small receive buffer."""
MIN_WINDOW = 4
"""The lower limit of the window, in frames: enough for losses not to stop a link."""
ALPHA, BETA, K = 1 / 8, 1 / 4, 4
"""Gains of SRTT and RTTVAR, and the weight of RTTVAR in the RTO. RFC 6298, 2"""
MIN_RTO = 0.5
"""The least RTO, as a share of the configured timeout: a neighbor that is busy for a moment is not lost."""


class CongestionControl:
    """SRTT, RTTVAR, cwnd and ssthresh of the link to one neighbor. The window counts frames. Time is an argument."""

    __slots__ = ("_initial_rto_s", "_max_window", "_recovery_until_s", "_rttvar_s", "_srtt_s", "_ssthresh", "cwnd")

    def __init__(self, initial_rto_s: float, max_window: int) -> None:
        """`initial_rto_s` is the timeout until a round trip is measured, `max_window` the upper limit of the window."""
        self._initial_rto_s = initial_rto_s
        self._max_window = float(max_window)
        self.cwnd = min(float(INITIAL_WINDOW), self._max_window)
        self._ssthresh = self._max_window
        self._srtt_s: float | None = None
        self._rttvar_s = 0.0
        self._recovery_until_s = 0.0

    def rto_s(self, attempt: int) -> float:
        """Return the retransmission timeout of an attempt, counted from 1; it doubles with each (RFC 6298, 5.5).

        Deviation: only the timeout of the first attempt may be shorter than configured, so that a neighbor with a short
        round-trip time is not given up earlier than configured."""
        configured_s = self._initial_rto_s * 2.0 ** (attempt - 1)
        if self._srtt_s is None:
            return configured_s
        measured_s = self._srtt_s + K * self._rttvar_s  # RFC 6298, 2.3
        if attempt > 1:
            return max(configured_s, measured_s * 2.0 ** (attempt - 1))
        return max(self._initial_rto_s * MIN_RTO, measured_s)

    def on_ack(self, rtt_s: float | None) -> None:
        """A frame was acknowledged. `rtt_s` is its round-trip time, None if it was retransmitted."""
        if rtt_s is not None:
            if self._srtt_s is None:  # RFC 6298, 2.2
                self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
            else:  # RFC 6298, 2.3
                self._rttvar_s += BETA * (abs(self._srtt_s - rtt_s) - self._rttvar_s)
                self._srtt_s += ALPHA * (rtt_s - self._srtt_s)
        if self.cwnd < self._max_window:
            # Slow start below ssthresh, congestion avoidance above it. RFC 5681, 3.1
            growth = 1.0 if self.cwnd < self._ssthresh else 1.0 / self.cwnd
            self.cwnd = min(self._max_window, self.cwnd + growth)

    def on_timeout(self, now_s: float) -> None:
        """A frame was not acknowledged within the RTO. Losses within one round trip count once (RFC 6582, 3.2).

        Deviation: the window is halved and not set to one frame, because a radio loses frames without congestion."""
        if now_s >= self._recovery_until_s:
            self.cwnd = self._ssthresh = max(min(float(MIN_WINDOW), self._max_window), self.cwnd / 2)
            self._recovery_until_s = now_s + (self._initial_rto_s if self._srtt_s is None else self._srtt_s)
