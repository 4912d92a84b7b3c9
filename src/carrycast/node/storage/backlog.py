"""What waits for named subscriptions, in the node's store: bounded in bytes and in age, in the order of arrival.

An event waits from its arrival until it is acknowledged. Its id is remembered for longer, so that another copy, which a
protocol may bring after a restart, is not given again to who has confirmed the first.
"""

from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from carrycast.core.model import Event, SubscriptionId
from carrycast.node.storage.store import NodeStore

REMEMBERED = 1_000_000
"""Ids of events that subscriptions took, all together: some 60 MB. Of older ones a copy is taken for new."""
FORGET_EVERY = 1000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Event).decode


class BacklogSettings(NamedTuple):
    """How much may wait for one subscription. 64 MiB hold a quarter of a million events of 200 bytes."""

    most_bytes: int = 1 << 26
    most_age_s: float = 7 * 86_400.0


class QueuedEvent(NamedTuple):
    """An event that waits, and whether it was handed to its application before, as far as can be known."""

    position: int
    event: Event
    hops: int
    arrived_s: float
    handed: bool
    length: int
    """In bytes, as it is stored."""


class UnreadableEvent(NamedTuple):
    """What waits and is no event, and why: the file was changed by others, or the disk has."""

    position: int
    why: str


class Backlog:
    """What waits for one subscription, each at a position that grows with the order of arrival."""

    def __init__(self, store: NodeStore, subscription: SubscriptionId, settings: BacklogSettings) -> None:
        self._store = store
        self._subscription = subscription.sequence
        self._settings = settings
        self._bytes: int
        self.waiting: int
        self._bytes, self.waiting, newest = store.query(
            "SELECT coalesce(sum(length(event)), 0), count(*), coalesce(max(position), 0) FROM backlog "
            "WHERE subscription = ?",
            (self._subscription,),
        )[0]
        # What was acknowledged is no longer there to tell the newest position, but the ids taken are.
        taken: int = store.query("SELECT coalesce(max(number), 0) FROM taken")[0][0]
        self.newest: int = max(newest, taken)
        self._committed = (store.commits, self._bytes, self.waiting)
        """What there was after which commit, should what is written since not be kept."""

    def rollback(self) -> None:
        """What was written since the last commit is not kept."""
        commits, length, waiting = self._committed
        if commits == self._store.commits:
            self._bytes, self.waiting = length, waiting

    def _count(self, length: int, waiting: int) -> None:
        if self._committed[0] != self._store.commits:
            self._committed = (self._store.commits, self._bytes, self.waiting)
        self._bytes += length
        self.waiting += waiting

    def add(self, event: Event, hops: int, now_s: float, handed: bool) -> QueuedEvent | None:
        """Let an event wait; None if it was taken before."""
        id = event.id
        fresh = self._store.execute(
            "INSERT OR IGNORE INTO taken (subscription, source, sequence) VALUES (?, ?, ?)",
            (self._subscription, id.source, id.sequence),
        )
        if not fresh:
            return None
        self.newest += 1
        encoded = _encode(event)
        row = (self._subscription, self.newest, encoded, hops, now_s, handed)
        self._store.execute("INSERT INTO backlog VALUES (?, ?, ?, ?, ?, ?)", row)
        self._count(len(encoded), 1)
        if self.newest % FORGET_EVERY == 0:
            self._store.execute("DELETE FROM taken WHERE number <= (SELECT max(number) FROM taken) - ?", (REMEMBERED,))
        return QueuedEvent(self.newest, event, hops, now_s, False, len(encoded))

    def after(self, position: int, most: int, most_bytes: float) -> list[QueuedEvent | UnreadableEvent]:
        """The next that wait behind a position, at least one; they count as handed from now on."""
        rows: list[tuple[Any, ...]] = []
        with closing(
            self._store.each(
                "SELECT position, event, hops, arrived_s, handed, length(event) FROM backlog "
                "WHERE subscription = ? AND position > ? ORDER BY position LIMIT ?",
                (self._subscription, position, most),
            )
        ) as found:
            for row in found:
                rows.append(row)
                most_bytes -= row[5] or 0
                if most_bytes <= 0:
                    break
        if rows:
            self._store.execute(
                "UPDATE backlog SET handed = 1 WHERE subscription = ? AND position BETWEEN ? AND ? AND NOT handed",
                (self._subscription, rows[0][0], rows[-1][0]),
            )
        return [_waiting(*row) for row in rows]

    def remove(self, position: int) -> None:
        """It waits no longer, if it did."""
        rows = self._store.query(
            "SELECT coalesce(length(event), 0) FROM backlog WHERE subscription = ? AND position = ?",
            (self._subscription, position),
        )
        if rows:
            self._store.execute(
                "DELETE FROM backlog WHERE subscription = ? AND position = ?", (self._subscription, position)
            )
            self._count(-rows[0][0], -1)

    def overdue(self, now_s: float) -> list[tuple[int, str]]:
        """The positions that have to go, oldest first, each with the reason; none of them waits any more."""
        gone: list[tuple[int, str]] = []
        while self.waiting:
            position, arrived_s = self._store.query(
                "SELECT position, arrived_s FROM backlog WHERE subscription = ? ORDER BY position LIMIT 1",
                (self._subscription,),
            )[0]
            if self._bytes > self._settings.most_bytes:
                reason = "backlog_full"
            elif arrived_s + self._settings.most_age_s <= now_s:
                reason = "backlog_old"
            else:
                break
            self.remove(position)
            gone.append((position, reason))
        return gone

    @property
    def full(self) -> bool:
        """Whether more waits than may."""
        return self._bytes > self._settings.most_bytes


def _waiting(
    position: int, event: Any, hops: int, arrived_s: float, handed: int, length: int
) -> QueuedEvent | UnreadableEvent:
    try:
        return QueuedEvent(position, _decode(event), int(hops), float(arrived_s), bool(handed), length)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        return UnreadableEvent(position, str(error))
