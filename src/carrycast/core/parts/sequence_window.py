"""A sliding window of received sequence numbers, as a bit map (RFC 4303, 3.4.3)."""


class SequenceWindow:
    """The highest sequence number received, and which of the `width` numbers up to it were. Numbers below the window
    count as received: they are far more likely duplicates than late arrivals."""

    __slots__ = ("_bits", "_width", "first", "highest")

    def __init__(self, width: int = 1024) -> None:
        self._width = width
        self._bits = 0
        self.highest = -1
        self.first = -1
        """The first number that was received."""

    def __contains__(self, number: int) -> bool:
        back = self.highest - number
        return back >= 0 and (back >= self._width or bool(self._bits >> back & 1))

    def add(self, number: int) -> bool:
        """Record a number; False if it is a duplicate."""
        if self.first < 0:
            self.first = number
        if number > self.highest:
            ahead = number - self.highest
            # A jump beyond the window (after a restart of the source) clears it.
            self._bits = 1 if ahead >= self._width else (self._bits << ahead | 1) & ((1 << self._width) - 1)
            self.highest = number
            return True
        if number in self:
            return False
        self._bits |= 1 << (self.highest - number)
        return True

    def find_cumulative(self, after: int) -> int:
        """The highest number up to which all after `after` were received (cumulative acknowledgement)."""
        number = max(after, self.highest - self._width)
        while number < self.highest and number + 1 in self:
            number += 1
        return number
