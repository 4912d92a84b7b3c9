"""What a node knows of its neighbors: their state vectors, and what was requested from them."""

from collections.abc import Iterable

from carrycast.core.model import EventId, NodeId
from carrycast.protocols.state_vector_sync.messages import SequenceRange, StateEntry
from carrycast.protocols.state_vector_sync.vector import MissingRanges


class NeighborState:
    """The state vector of a neighbor, as far as known, the numbers that it does not have, and open requests."""

    __slots__ = ("absent", "attempts", "due", "has_sent_vector", "latest", "open", "pending")

    def __init__(self) -> None:
        self.latest: dict[NodeId, int] = {}
        self.absent: dict[NodeId, MissingRanges] = {}
        self.has_sent_vector = False
        self.due = 0.0
        """Until then open requests are not repeated."""
        self.open: dict[NodeId, MissingRanges] = {}
        """What was requested from the neighbor."""
        self.pending: dict[NodeId, MissingRanges] = {}
        """What the neighbor has requested, and this node is missing."""
        self.attempts = 0
        """Requests since the last answer."""

    def learn(self, source: NodeId, sequence: int, most: int) -> None:
        """The neighbor knows that a publisher has published up to a number."""
        if sequence > self.latest.get(source, -1):
            self.latest[source] = sequence
            if len(self.latest) > most:
                del self.latest[next(iter(self.latest))]

    def learn_all(self, vector: tuple[StateEntry, ...], most: int) -> None:
        """The neighbor has sent its state vector."""
        self.has_sent_vector = True
        for source, sequence in vector:
            self.learn(source, sequence, most)

    def add_absent(self, ranges: tuple[SequenceRange, ...]) -> None:
        """The neighbor does not have these events."""
        for source, low, high in ranges:
            if source not in self.latest:
                continue
            gone = self.absent.setdefault(source, MissingRanges())
            gone.remove(low, high)
            gone.append(low, high)

    def may_have(self, missing: SequenceRange) -> list[SequenceRange]:
        """The part of a range that the neighbor knows of and has not denied."""
        source, low, high = missing
        high = min(high, self.latest.get(source, -1))
        if high < low:
            return []
        left = MissingRanges()
        left.append(low, high)
        for first, last in self.absent.get(source, ()):
            left.remove(first, last)
        return [SequenceRange(source, first, last) for first, last in left]

    # Requests to the neighbor.

    def start_request(self, now: float, ranges: list[SequenceRange], timeout_s: float) -> None:
        """Events are requested from the neighbor."""
        if self.due <= now:
            self.open = {}
        for source, low, high in ranges:
            asked = self.open.setdefault(source, MissingRanges())
            asked.remove(low, high)
            asked.append(low, high)
        self.due = now + timeout_s
        self.attempts += 1

    def on_answer(self, now: float, timeout_s: float) -> None:
        """The neighbor has sent an event, or denied one. More may follow."""
        self.attempts = 0
        if self.open:
            self.due = now + timeout_s

    def end_requests(self, now: float) -> None:
        """A request did not reach the neighbor: all may go to others."""
        self.open = {}
        self.due = now

    # Requests of the neighbor.

    def add_pending(self, ranges: list[SequenceRange]) -> None:
        """The neighbor has requested events that this node is missing."""
        for source, low, high in ranges:
            pending = self.pending.setdefault(source, MissingRanges())
            pending.remove(low, high)
            pending.append(low, high)

    def take_pending(self, id: EventId) -> bool:
        """Whether the neighbor waits for an event, which has arrived."""
        pending = self.pending.get(id.source)
        if pending is None or id.sequence not in pending:
            return False
        pending.remove(id.sequence, id.sequence)
        if not pending:
            del self.pending[id.source]
        return True


def without_open(missing: SequenceRange, states: Iterable[NeighborState]) -> list[SequenceRange]:
    """The part of a range that was not requested from one of these neighbors."""
    open = [state.open[missing.source] for state in states if missing.source in state.open]
    if not open:
        return [missing]
    left = MissingRanges()
    left.append(missing.low, missing.high)
    for ranges in open:
        for low, high in ranges:
            left.remove(low, high)
    return [SequenceRange(missing.source, low, high) for low, high in left]
