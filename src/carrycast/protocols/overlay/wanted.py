"""A client's subscriptions, and what has come for each."""

from collections import deque
from typing import NamedTuple

from carrycast.core.model import Event, EventId, NodeId, Subscription
from carrycast.core.parts.window import CounterWindow
from carrycast.protocols.overlay.flows import Inflow
from carrycast.protocols.overlay.words import Following, Version


class Came(NamedTuple):
    """An output that has come."""

    event: Event
    hops: int
    until: float
    input: Following
    part: int

    @property
    def key(self) -> tuple[tuple[EventId, ...], int]:
        """What it was made of, and which part of that it is: the same however often and wherever it is made."""
        return self.event.derived_from or (self.event.id,), self.part


class Wanted:
    """A subscription, and what has come for it."""

    __slots__ = ("_ends", "_had", "following", "inflow", "met", "place", "runs", "subscription", "untold")

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.inflow: Inflow[Came] = Inflow()
        self.met = CounterWindow()
        """Without order: which outputs have been delivered."""
        self.following: dict[tuple[NodeId, Version], Following] = {}
        """Of each producer, what follows on the last input that something was delivered of."""
        self.untold: tuple[int, NodeId] | None = None
        """Outputs since the sender was told, and who that is."""
        self.runs = False
        """Whether a broker has taken it in."""
        self.place: NodeId | None = None
        """Where the last output was made."""
        self._had: set[object] = set()
        self._ends: deque[tuple[float, object]] = deque()

    def is_new(self, now: float, came: Came, seen_s: float) -> bool:
        """Whether it has not been delivered: a producer whose home was lost does not know what has arrived."""
        while self._ends and self._ends[0][0] <= now:
            self._had.discard(self._ends.popleft()[1])
        key = came.key
        if key in self._had:
            return False
        self._had.add(key)
        self._ends.append((now + seen_s, key))
        return True
