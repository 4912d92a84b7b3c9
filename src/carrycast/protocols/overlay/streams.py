"""Numbered streams: the sender keeps each event until it is acknowledged, the receiver puts events in order.

The channel beneath orders and retransmits too, but it starts again when a node restarts, and gives up on a node that is
unreachable. An event that it gave up may have arrived, and the other end of a stream may move to another node. The
numbers of the stream make both harmless.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from carrycast.core.model import Event
from carrycast.protocols.overlay.messages import BufferedEventRecord, StreamPosition

T = TypeVar("T")

MAX_REORDERED = 1024
"""Items that may wait for a missing one before them. An item that is further ahead is rejected, and retransmitted
later."""


MAX_BUFFERED = 256
"""Unacknowledged events of a stream that are kept; the oldest makes room."""


class StreamEvent(NamedTuple):
    """An event that is kept until it is acknowledged, with the end of its lease on this node's clock."""

    event: Event
    hops: int
    until: float
    input: StreamPosition | None = None
    part: int = 0
    """The index of the event among the outputs of its input."""

    def to_record(self, now: float, number: int) -> BufferedEventRecord:
        """The event as it is sent or written: with the remaining lease, which is 0 if it has expired."""
        return BufferedEventRecord(number, self.event, self.hops, max(self.until - now, 0.0), self.input, self.part)

    @classmethod
    def from_record(cls, now: float, record: BufferedEventRecord, waited_s: float) -> "StreamEvent":
        """Copy a record that has been under way for `waited_s`."""
        return cls(record.event, record.hops, now + record.left_s - waited_s, record.input, record.part)


class StreamSender:
    """The sending end: numbers events and keeps them until they are acknowledged."""

    __slots__ = ("buffered", "number", "resend_at", "sent")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """The number of the next event that is added."""
        self.buffered: deque[tuple[int, StreamEvent]] = deque()
        self.sent = number
        """The next number to send. Setting it back retransmits the events from there on."""
        self.resend_at = 0.0
        """When to retransmit if no acknowledgement arrives."""

    def __iter__(self) -> Iterator[tuple[int, StreamEvent]]:
        return iter(self.buffered)

    def __len__(self) -> int:
        return len(self.buffered)

    @property
    def first(self) -> int:
        """The lowest number that is still kept."""
        return self.buffered[0][0] if self.buffered else self.number

    def add(self, event: StreamEvent) -> tuple[int, StreamEvent | None]:
        """Number an event and keep it. Returns the number, and the oldest event if it was removed to make room."""
        removed = self.buffered.popleft()[1] if len(self.buffered) >= MAX_BUFFERED else None
        number = self.number
        self.number += 1
        self.buffered.append((number, event))
        return number, removed

    def acknowledge(self, number: int) -> bool:
        """Remove all events before a number. Returns whether there were any."""
        before = len(self.buffered)
        while self.buffered and self.buffered[0][0] < number:
            self.buffered.popleft()
        return len(self.buffered) < before

    def expire(self, now: float) -> list[StreamEvent]:
        """Remove and return the expired events at the head. Events behind one that is still valid stay."""
        removed = []
        while self.buffered and self.buffered[0][1].until <= now:
            removed.append(self.buffered.popleft()[1])
        return removed


class StreamReceiver(Generic[T]):
    """The receiving end: puts items in order and rejects duplicates."""

    __slots__ = ("_reordered", "expected")

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self._reordered: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._reordered)

    def skip_to(self, first: int) -> list[tuple[int, T]]:
        """Stop waiting for numbers before `first`, which will not arrive. Returns the items that are now in order."""
        if first > self.expected:
            for number in [number for number in self._reordered if number < first]:
                del self._reordered[number]
            self.expected = first
        return self._take_in_order()

    def accept(self, number: int, first: int, item: T) -> list[tuple[int, T]] | None:
        """Take an item. Returns the items that are now in order, or None if it is a duplicate or too far ahead."""
        in_order = self.skip_to(first)
        if number < self.expected or number in self._reordered or number >= self.expected + MAX_REORDERED:
            return in_order or None
        self._reordered[number] = item
        return in_order + self._take_in_order()

    def _take_in_order(self) -> list[tuple[int, T]]:
        in_order = []
        while self.expected in self._reordered:
            in_order.append((self.expected, self._reordered.pop(self.expected)))
            self.expected += 1
        return in_order
