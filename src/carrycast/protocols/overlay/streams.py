"""Numbered streams: the sender keeps each event until it is acknowledged, the receiver puts events in order.

The channel beneath orders and retransmits too, but it starts again when a node restarts, and gives up on a node that is
unreachable. An event that it gave up may have arrived, and the other end of a stream may move to another node. The
numbers of the stream make both harmless.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from carrycast.core.model import Event
from carrycast.protocols.overlay.messages import Following, Kept

Item = TypeVar("Item")

MAX_HELD = 1024
"""Items that may wait for one before them; what is further ahead comes again."""


class Waiting(NamedTuple):
    """An event with the end of its lease on this node's clock."""

    event: Event
    hops: int
    until: float
    input: Following | None = None
    part: int = 0
    """Which of the outputs of that input it is."""

    def kept(self, now: float, number: int) -> Kept:
        """As it travels; what is over by now is as good as over."""
        return Kept(number, self.event, self.hops, max(self.until - now, 0.0), self.input, self.part)

    @classmethod
    def of(cls, now: float, kept: Kept, waited_s: float) -> "Waiting":
        return cls(kept.event, kept.hops, now + kept.left_s - waited_s, kept.input, kept.part)


class Outflow:
    """The sending end."""

    __slots__ = ("_limit", "kept", "number", "resend_at", "sent")

    def __init__(self, limit: int, number: int = 0) -> None:
        self._limit = limit
        self.number = number
        """The next one."""
        self.kept: deque[tuple[int, Waiting]] = deque()
        self.sent = number
        """The next one to leave; going back sends again what is kept from there on."""
        self.resend_at = 0.0
        """When to go back if nothing is said to be taken."""

    def __iter__(self) -> Iterator[tuple[int, Waiting]]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def first(self) -> int:
        """The lowest number that is still kept."""
        return self.kept[0][0] if self.kept else self.number

    def add(self, waiting: Waiting) -> tuple[int, Waiting | None]:
        """Number an event and keep it; what had to go for it."""
        gone = self.kept.popleft()[1] if len(self.kept) >= self._limit else None
        number = self.number
        self.number += 1
        self.kept.append((number, waiting))
        return number, gone

    def taken(self, number: int) -> bool:
        """All before a number is where it should be; whether that is news."""
        before = len(self.kept)
        while self.kept and self.kept[0][0] < number:
            self.kept.popleft()
        return len(self.kept) < before

    def expire(self, now: float) -> list[Waiting]:
        """Let go whose lease is over. What stands behind others goes when they do."""
        gone = []
        while self.kept and self.kept[0][1].until <= now:
            gone.append(self.kept.popleft()[1])
        return gone


class Inflow(Generic[Item]):
    """The taking end."""

    __slots__ = ("_held", "expected")

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self._held: dict[int, Item] = {}

    def __len__(self) -> int:
        return len(self._held)

    def skip(self, first: int) -> list[tuple[int, Item]]:
        """What comes before is no more; what can be taken now."""
        if first > self.expected:
            for number in [number for number in self._held if number < first]:
                del self._held[number]
            self.expected = first
        return self._drain()

    def take(self, number: int, first: int, item: Item) -> list[tuple[int, Item]] | None:
        """The items that are in order with one more; None if it was here before or is too far ahead."""
        drained = self.skip(first)
        if number < self.expected or number in self._held or number >= self.expected + MAX_HELD:
            return drained or None
        self._held[number] = item
        return drained + self._drain()

    def _drain(self) -> list[tuple[int, Item]]:
        drained = []
        while self.expected in self._held:
            drained.append((self.expected, self._held.pop(self.expected)))
            self.expected += 1
        return drained
