"""The transfers of an anti-entropy session: which events to request from which neighbor, and the queue of events that
neighbors have requested.

A summary vector costs its sender little, so the memory for advertised ids is bounded. When it is full, the neighbor
that has advertised the most gives ids up: a neighbor that advertises a million events does not displace those of
others.
"""

from collections.abc import Iterable
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Token
from carrycast.protocols.epidemic.messages import MAX_IDS

UNLINKED: NodeId = -1
"""Stands for all senders without a link, which share one window."""
MIN_CAPACITY = 4 * MAX_IDS
MAX_DISPLACED = 16
"""The largest number of ids of another neighbor that are given up to find room for one."""

BATCH = 256
"""Events in transit to one neighbor. Those of three neighbors that catch up at the same time fit the queue of a live
link, and a batch lasts much longer than the pause until the next one begins."""
MAX_QUEUED = 4096
"""Ids that wait for one neighbor: several windows of a neighbor that respects its own window."""


class PendingTransfer(NamedTuple):
    """A requested event: from which neighbor, when to request it again, how often it was requested, and the window in
    which it counts."""

    neighbor: NodeId
    due: float
    times: int
    window: NodeId | None


class TransferRequests:
    """The events that neighbors have advertised and this node is missing. Bounded in ids altogether, and by a window in
    events requested from one neighbor that have not arrived."""

    def __init__(self, capacity: int, window: int) -> None:
        """`capacity` is the size of the buffer: it makes no sense to remember more ids, but for a few messages."""
        self.retune(capacity, window)
        self._holders: dict[EventId, dict[NodeId, None]] = {}
        """The neighbors that have advertised each missing event."""
        self._deferred: dict[NodeId, dict[EventId, None]] = {}
        """The events of each neighbor that were not requested yet, because its window is full."""
        self._unlinked: dict[NodeId, None] = {}
        """Of those neighbors, the ones without a link when they advertised."""
        self._unlinked_ids = 0
        """The number of ids that they have advertised."""
        self._overflowed: dict[NodeId, None] = {}
        """Neighbors that advertised more than could be remembered: they are asked for their summary vector again."""
        self._pending: dict[EventId, PendingTransfer] = {}
        self._open: dict[NodeId, int] = {}
        """The number of events that were requested in each window and are neither here nor overdue."""

    def retune(self, capacity: int, window: int) -> None:
        """Use other bounds from now on."""
        self._capacity, self._window = max(capacity, MIN_CAPACITY), window

    @property
    def is_pending(self) -> bool:
        """Whether any requested event has not arrived."""
        return bool(self._pending)

    def on_advertised(self, neighbor: NodeId, ids: Iterable[EventId], linked: bool) -> tuple[list[EventId], int]:
        """A neighbor has advertised events that this node is missing. Returns those to request at once, and how many
        were too many to remember."""
        room = self._room(neighbor if linked else UNLINKED)
        requested: list[EventId] = []
        rejected = 0
        for id in ids:
            if linked and not self.add_holder(neighbor, id):
                rejected += 1
            elif id in self._pending:
                continue
            elif len(requested) < room:
                requested.append(id)
            elif linked or self._has_room(neighbor):
                self._defer(neighbor, id, linked)
            else:
                rejected += 1
        if rejected and linked:
            self._overflowed[neighbor] = None
        return requested, rejected

    def on_link_up(self, neighbor: NodeId) -> None:
        """A node that may have advertised events before has a link now."""
        if neighbor in self._unlinked:
            del self._unlinked[neighbor]
            deferred = self._deferred[neighbor]
            self._unlinked_ids -= len(deferred)
            for id in deferred:
                self._holders.setdefault(id, {})[neighbor] = None

    def add_holder(self, neighbor: NodeId, id: EventId) -> bool:
        """A neighbor holds an event; False if there is no room to remember it."""
        holders = self._holders.get(id)
        if holders is None:
            if not self._has_room(neighbor):
                return False
            holders = self._holders[id] = {}
        holders[neighbor] = None
        return True

    def take_deferred(self, neighbor: NodeId) -> list[EventId]:
        """Remove and return the deferred events to request now that half of a neighbor's window is free."""
        deferred = self._deferred.get(neighbor)
        unlinked = neighbor in self._unlinked
        room = self._room(UNLINKED if unlinked else neighbor)
        if deferred is None or room < self._window // 2:
            return []
        requested: list[EventId] = []
        while deferred and len(requested) < room:
            id = next(iter(deferred))
            del deferred[id]
            self._unlinked_ids -= unlinked
            if id not in self._pending and (unlinked or neighbor in self._holders.get(id, ())):
                requested.append(id)
        if not deferred:
            self._forget_deferred(neighbor)
        return requested

    def take_overflowed(self, neighbor: NodeId) -> bool:
        """Return whether to ask a neighbor for its summary vector again: once, when all remembered ids were
        requested."""
        if neighbor not in self._overflowed or neighbor in self._deferred:
            return False
        del self._overflowed[neighbor]
        return True

    @property
    def deferring_neighbors(self) -> list[NodeId]:
        """The neighbors with deferred events."""
        return list(self._deferred)

    def on_requested(self, neighbor: NodeId, ids: Iterable[EventId], due: float, linked: bool, times: int = 1) -> None:
        """These events are requested. A repeated request counts in no window."""
        window = None if times > 1 else neighbor if linked else UNLINKED
        for id in ids:
            self._pending[id] = PendingTransfer(neighbor, due, times, window)
            if window is not None:
                self._open[window] = self._open.get(window, 0) + 1

    def on_arrived(self, id: EventId) -> None:
        """An event has arrived."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            self._close(pending)

    def pop_holders(self, id: EventId) -> Iterable[NodeId]:
        """The neighbors that have advertised an event, which this node holds from now on."""
        return self._holders.pop(id, ())

    def on_link_down(self, neighbor: NodeId) -> list[EventId]:
        """Forget a neighbor; returns the events requested from it, to be requested from another."""
        for id in [id for id, holders in self._holders.items() if neighbor in holders]:
            self._remove_holder(neighbor, id)
        self._forget_deferred(neighbor)
        self._overflowed.pop(neighbor, None)
        return [id for id, pending in self._pending.items() if pending.neighbor == neighbor]

    def find_overdue(self, now: float) -> list[EventId]:
        """Return the events that should have arrived by now."""
        return [id for id, pending in self._pending.items() if pending.due <= now]

    def retry(
        self, ids: Iterable[EventId], asks: int
    ) -> tuple[dict[tuple[NodeId, int], list[EventId]], list[tuple[EventId, NodeId]]]:
        """Return the neighbor to request each event from again, and how often it was requested then: another one that
        holds the event, or the same. Events that no neighbor holds are forgotten. The second list has the events that
        were requested `asks` times, with the last neighbor: they are given up."""
        groups: dict[tuple[NodeId, int], list[EventId]] = {}
        given_up: list[tuple[EventId, NodeId]] = []
        for id in ids:
            before = self._pending.pop(id)
            self._close(before)
            holders = list(self._holders.get(id, ()))
            others = [neighbor for neighbor in holders if neighbor != before.neighbor]
            if holders and before.times < asks:
                groups.setdefault(((others or holders)[0], before.times + 1), []).append(id)
            else:
                self._holders.pop(id, None)
                if before.times >= asks:
                    given_up.append((id, before.neighbor))
        return groups, given_up

    def _room(self, window: NodeId) -> int:
        return self._window - self._open.get(window, 0)

    def _close(self, pending: PendingTransfer) -> None:
        if pending.window is not None:
            self._open[pending.window] -= 1
            if not self._open[pending.window]:
                del self._open[pending.window]

    def _has_room(self, neighbor: NodeId) -> bool:
        return len(self._holders) + self._unlinked_ids < self._capacity or self._make_room(neighbor)

    def _make_room(self, neighbor: NodeId) -> bool:
        """The neighbor with the most deferred ids gives some up; False if that is the given neighbor."""
        for _ in range(MAX_DISPLACED):
            largest = max(self._deferred, key=lambda one: len(self._deferred[one]), default=neighbor)
            if largest == neighbor or len(self._deferred[largest]) <= len(self._deferred.get(neighbor, ())):
                return False
            id, _ = self._deferred[largest].popitem()
            self._overflowed[largest] = None
            if largest in self._unlinked:
                self._unlinked_ids -= 1
            else:
                self._remove_holder(largest, id)
            if len(self._holders) + self._unlinked_ids < self._capacity:
                return True
        return False

    def _defer(self, neighbor: NodeId, id: EventId, linked: bool) -> None:
        deferred = self._deferred.setdefault(neighbor, {})
        if not linked:
            self._unlinked[neighbor] = None
            self._unlinked_ids += id not in deferred
        deferred[id] = None

    def _forget_deferred(self, neighbor: NodeId) -> None:
        deferred = self._deferred.pop(neighbor, {})
        if neighbor in self._unlinked:
            del self._unlinked[neighbor]
            self._unlinked_ids -= len(deferred)

    def _remove_holder(self, neighbor: NodeId, id: EventId) -> None:
        holders = self._holders.get(id, {})
        holders.pop(neighbor, None)
        if not holders:
            self._holders.pop(id, None)


class TransferQueue:
    """The events that neighbors have requested. They are sent in batches, each when the last event of the one before is
    acknowledged, so that a neighbor that is missing ten thousand events neither fills the queue of the link nor delays
    the transfers to others."""

    def __init__(self) -> None:
        self._queued: dict[NodeId, dict[EventId, None]] = {}
        """The events that follow the batch in transit, by neighbor."""
        self._batches: dict[Token, NodeId] = {}

    def add(self, neighbor: NodeId, ids: Iterable[EventId]) -> tuple[list[EventId], bool]:
        """A neighbor requests events. Returns those to send at once, and whether more follow when the last of them is
        acknowledged. An event that is requested again while it waits is sent once."""
        queued = self._queued.get(neighbor)
        if queued is not None:
            queued.update(dict.fromkeys(list(ids)[: MAX_QUEUED - len(queued)]))
            return [], False
        requested = list(ids)
        if len(requested) > BATCH:
            self._queued[neighbor] = dict.fromkeys(requested[BATCH:])
        return requested[:BATCH], len(requested) > BATCH

    def start_batch(self, neighbor: NodeId, token: Token) -> None:
        """The last event of a batch is sent with this token."""
        self._batches[token] = neighbor

    def cancel(self, neighbor: NodeId) -> None:
        """Forget the events that wait for a neighbor; it requests them again if it still needs them."""
        self._queued.pop(neighbor, None)

    def next_batch(self, token: Token) -> tuple[NodeId, list[EventId], bool] | None:
        """A batch has ended. Returns the neighbor, the events to send next, and whether more follow; None if the token
        is of no batch."""
        neighbor = self._batches.pop(token, None)
        if neighbor is None:
            return None
        queued = self._queued.get(neighbor)
        if queued is None:
            return neighbor, [], False
        ids = list(queued)[:BATCH]
        for id in ids:
            del queued[id]
        if not queued:
            del self._queued[neighbor]
        return neighbor, ids, bool(queued)
