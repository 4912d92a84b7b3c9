"""The reader of a named subscription: what waits for it, what it has been handed, and what it has acknowledged.

An event is written before it is handed over. It waits until it is acknowledged, and is handed over again, marked so, to
the next reader if the last one went without a word. At most WINDOW events are with a reader at a time, and as much
as its connection has room for; the others stay in the store, so that a slow reader costs no memory.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from carrycast.core.model import Event, SubscriptionId
from carrycast.core.wire import LEASE_OVER, Layer
from carrycast.errors import WorkError
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.storage.backlog import Backlog, QueuedEvent, UnreadableEvent
from carrycast.node.storage.group_commit import GroupCommit

WINDOW = 512
"""Events with a reader that it has not acknowledged."""


class Delivery(NamedTuple):
    """An event as a reader gets it. Without a position there is nothing to acknowledge."""

    event: Event
    hops: int
    position: int | None = None
    again: bool = False
    """Whether it may have been handed over before."""
    waited_s: float = 0.0
    """Since it arrived here: its lease is so much shorter."""
    held: bool = False
    """Whether the node holds the event anyway, so that it costs nothing to let it wait."""


class Flow(Protocol):
    """What the way to a reader takes. All that is handed over to one connection shares it."""

    @property
    def room_bytes(self) -> int:
        """How much may be handed over. While there is any room, so may one event, whatever its size."""

    def hold(self, length: int) -> None:
        """So much will be handed over when it is committed."""

    def release(self, length: int) -> None:
        """It has been, or will never be."""

    def when_there_is_room(self, go_on: Callable[[], None]) -> None:
        """Call this once, later, while there is room."""


class Reader(NamedTuple):
    """Who reads, and whether it acknowledges. Who does not has an event when it was handed over."""

    read: Callable[[SubscriptionId, Delivery], None]
    acknowledges: bool = False
    window: int | None = None
    """How many it takes without acknowledging them, if not WINDOW."""
    flow: Flow | None = None
    """How many bytes it takes; without, any."""
    ended: Callable[[SubscriptionId], None] | None = None
    """Told when the subscription ends while it reads, and not because it wanted so."""
    history: Callable[[SubscriptionId, bool], None] | None = None
    """Told after the last event of its history, and whether that was all of it."""
    gap: Callable[[SubscriptionId, str], None] | None = None
    """Told that results do not go on where they were, and why."""


class Consumer:
    """One named subscription's backlog and its present reader, if there is one."""

    def __init__(self, id: SubscriptionId, backlog: Backlog, group_commit: GroupCommit, recorder: NodeRecorder) -> None:
        self._id = id
        self._backlog = backlog
        self._group_commit = group_commit
        self._recorder = recorder
        self.reader: Reader | None = None
        self._handed = 0
        """The position up to which the present reader has been handed everything."""
        self._with_reader: dict[int, None] = {}
        self._told_unreadable = False
        self._history: tuple[int, bool] | None = None
        """Up to which position its history goes, and whether that is all of it."""
        self._history_told = False

    def attach(self, reader: Reader | None) -> None:
        """Somebody reads from now on, or nobody."""
        self.reader = reader
        self._handed = 0
        self._with_reader.clear()
        self._history_told = False

    def close_history(self, complete: bool) -> None:
        """All that has come so far is the history, or a part of it. The reader is told after it was handed that."""
        self._history, self._history_told = (self._backlog.newest, complete), False
        self._tell_history()

    def _tell_history(self) -> None:
        reader, history = self.reader, self._history
        if self._history_told or history is None or reader is None or reader.history is None:
            return
        position, complete = history
        if self._handed >= position:
            self._history_told, tell = True, reader.history
            self._group_commit.when_committed(lambda lost: tell(self._id, complete) if reader is self.reader else None)

    def take(self, event: Event, hops: int) -> bool:
        """An event has arrived; False if it came before. A WorkError if it could not be written."""
        near = self.reader is not None and self._handed == self._backlog.newest and self._room > 0
        at_once = near and self._room_bytes > 0
        waiting = self._backlog.add(event, hops, self._recorder.time_s(), handed=at_once)
        if waiting is None:
            return False
        if self._backlog.full:
            self.review()
        self._group_commit.when_committed(self._on_written)
        if at_once:
            self._hand(waiting)
        elif near:
            self.hand_over()  # When there is room.
        return True

    def hand_over(self) -> None:
        """What waits, as far as there is room with the reader."""
        while self.reader is not None and self._room > 0 and self._handed < self._backlog.newest:
            room_bytes = self._room_bytes
            if room_bytes <= 0:
                assert self.reader.flow is not None
                self.reader.flow.when_there_is_room(self.hand_over)
                return
            try:
                found = self._backlog.after(self._handed, self._room, room_bytes)
                if not found:
                    self._handed = self._backlog.newest
                for waiting in found:
                    if isinstance(waiting, UnreadableEvent):
                        self._pass_over(waiting)
                    else:
                        self._hand(waiting)
            except WorkError:
                return  # It is tried again, as all that was not written.
        self._tell_history()

    def acknowledge(self, positions: list[int]) -> None:
        """The reader has these; they do not come again once this is committed. Others are no mistake."""
        for position in positions:
            self._with_reader.pop(position, None)
            # Also if it has said so before: that may not have been kept.
            if position <= self._handed:
                self._backlog.remove(position)
        self.hand_over()

    def review(self) -> None:
        """Drop what is too much or too old."""
        for position, reason in self._backlog.overdue(self._recorder.time_s()):
            self._with_reader.pop(position, None)
            self._recorder.drop(Layer.DISSEMINATION, reason)

    def rollback(self) -> None:
        """What was written since the last commit is not kept."""
        self._backlog.rollback()

    @property
    def waiting(self) -> int:
        """How many events it has not acknowledged."""
        return self._backlog.waiting

    @property
    def _room(self) -> int:
        window = None if self.reader is None else self.reader.window
        return (WINDOW if window is None else window) - len(self._with_reader)

    @property
    def _room_bytes(self) -> float:
        flow = None if self.reader is None else self.reader.flow
        return inf if flow is None else flow.room_bytes

    def _hand(self, waiting: QueuedEvent) -> None:
        self._handed = waiting.position
        if waiting.arrived_s + waiting.event.lease_s <= self._recorder.time_s():
            self._backlog.remove(waiting.position)
            self._recorder.drop(Layer.DISSEMINATION, LEASE_OVER)
            return
        self._with_reader[waiting.position] = None
        reader = self.reader
        assert reader is not None
        if reader.flow is not None:
            reader.flow.hold(waiting.length)
        self._group_commit.when_committed(lambda lost: self._call(reader, waiting, lost))

    def _pass_over(self, unreadable: UnreadableEvent) -> None:
        """One that cannot be read must not keep the reader from those behind it."""
        self._handed = unreadable.position
        self._backlog.remove(unreadable.position)
        self._recorder.drop(Layer.DISSEMINATION, "backlog_unreadable")
        if not self._told_unreadable:
            self._told_unreadable = True
            LOG.error("of what waits for the subscription %s some cannot be read: %s", self._id, unreadable.why)

    def _call(self, reader: Reader, waiting: QueuedEvent, lost: WorkError | None) -> None:
        if reader.flow is not None:
            reader.flow.release(waiting.length)
        if reader is not self.reader or waiting.position not in self._with_reader:
            return
        if lost is not None:
            # It may still wait, if only that it was handed over could not be written.
            del self._with_reader[waiting.position]
            self._handed = min(self._handed, waiting.position - 1)
            return
        try:
            waited_s = max(0.0, self._recorder.time_s() - waiting.arrived_s)
            reader.read(self._id, Delivery(waiting.event, waiting.hops, waiting.position, waiting.handed, waited_s))
        except Exception as error:
            LOG.error("an application raised on a delivery", exc_info=error)
            self._recorder.drop(Layer.DISSEMINATION, "application_raised")
        if not reader.acknowledges:
            self.acknowledge([waiting.position])

    def _on_written(self, lost: WorkError | None) -> None:
        if lost is not None:
            self._recorder.drop(Layer.DISSEMINATION, "store_failed")
