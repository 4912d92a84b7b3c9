"""The measured time until a neighbor acknowledges a message, for protocols that wait for multiples of it."""

# The gains of SRTT and RTTVAR, and the weight of RTTVAR in the timeout. RFC 6298, 2
ALPHA, BETA, K = 1 / 8, 1 / 4, 4


class RoundTripTime:
    """The smoothed round-trip time (SRTT) and its variation (RTTVAR) [RFC 6298, 2]."""

    __slots__ = ("_srtt_s", "_variation_s")

    def __init__(self) -> None:
        self._srtt_s: float | None = None
        self._variation_s = 0.0

    def add(self, measured_s: float) -> None:
        """A message was acknowledged."""
        if self._srtt_s is None:
            self._srtt_s, self._variation_s = measured_s, measured_s / 2  # RFC 6298, 2.2
            return
        self._variation_s += BETA * (abs(self._srtt_s - measured_s) - self._variation_s)  # RFC 6298, 2.3
        self._srtt_s += ALPHA * (measured_s - self._srtt_s)

    @property
    def timeout_s(self) -> float | None:
        """The time after which an acknowledgement is overdue; None before the first measurement."""
        return None if self._srtt_s is None else self._srtt_s + K * self._variation_s
