"""Which numbers of a counter have been met: exact for the recent ones, in a few bytes."""


class SequenceWindow:
    """The highest number met and which of the `width` numbers up to it. What lies below the window counts as met: it is
    so old that a copy is far likelier than a first coming."""

    __slots__ = ("_bits", "_width", "first", "highest")

    def __init__(self, width: int = 1024) -> None:
        self._width = width
        self._bits = 0
        self.highest = -1
        self.first = -1
        """The very first number that was met."""

    def __contains__(self, number: int) -> bool:
        back = self.highest - number
        return back >= 0 and (back >= self._width or bool(self._bits >> back & 1))

    def add(self, number: int) -> bool:
        """Meet a number; False if it was met before."""
        if self.first < 0:
            self.first = number
        if number > self.highest:
            ahead = number - self.highest
            # A far jump (a source that started anew) empties the window instead of shifting by a huge distance.
            self._bits = 1 if ahead >= self._width else (self._bits << ahead | 1) & ((1 << self._width) - 1)
            self.highest = number
            return True
        if number in self:
            return False
        self._bits |= 1 << (self.highest - number)
        return True

    def settled(self, after: int) -> int:
        """The last number up to which, from the one after `after` on, none is missing."""
        number = max(after, self.highest - self._width)
        while number < self.highest and number + 1 in self:
            number += 1
        return number
