"""The backlog of a named subscription: events that its client has not acknowledged, in the order of arrival.

The backlog is a table of the node's store, bounded in bytes and in age. The id of an event is remembered for longer
than the event, so that a duplicate, which a protocol may deliver after a restart, is not delivered again.
"""

from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from carrycast.core.model import Event, SubscriptionId
from carrycast.node.storage.store import NodeStore

MAX_SEEN_IDS = 1_000_000
"""The most event ids that are remembered, for all subscriptions together: some 60 MB. A duplicate of an older event is
delivered again."""
TRIM_EVERY = 1000
"""Old event ids are deleted once in so many events."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Event).decode


class BacklogSettings(NamedTuple):
    """The bounds of one backlog. 64 MiB hold a quarter of a million events of 200 bytes."""

    max_bytes: int = 1 << 26
    max_age_s: float = 7 * 86_400.0


class QueuedEvent(NamedTuple):
    """An event of a backlog, and whether it may have been delivered to the client before."""

    position: int
    event: Event
    hops: int
    arrived_s: float
    delivered: bool
    length: int
    """In bytes, as stored."""


class UnreadableEvent(NamedTuple):
    """A row of the backlog that cannot be decoded because the file or the disk is damaged, and the error."""

    position: int
    why: str


class Backlog:
    """The backlog of one subscription. Positions increase in the order of arrival."""

    def __init__(self, store: NodeStore, subscription: SubscriptionId, settings: BacklogSettings) -> None:
        self._store = store
        self._subscription = subscription.sequence
        self._settings = settings
        self._bytes: int
        self.count: int
        self._bytes, self.count, newest = store.query(
            "SELECT coalesce(sum(length(event)), 0), count(*), coalesce(max(position), 0) FROM backlog "
            "WHERE subscription = ?",
            (self._subscription,),
        )[0]
        # Acknowledged events are deleted; the remembered ids still tell the newest position.
        taken: int = store.query("SELECT coalesce(max(number), 0) FROM taken")[0][0]
        self.newest: int = max(newest, taken)
        self._committed = (store.commits, self._bytes, self.count)
        """The number of commits, and the size of the backlog then, for a rollback."""

    def rollback(self) -> None:
        """The transaction was rolled back: restore the size of the backlog at the last commit."""
        commits, length, count = self._committed
        if commits == self._store.commits:
            self._bytes, self.count = length, count

    def _add_size(self, length: int, count: int) -> None:
        if self._committed[0] != self._store.commits:
            self._committed = (self._store.commits, self._bytes, self.count)
        self._bytes += length
        self.count += count

    def add(self, event: Event, hops: int, now_s: float, delivered: bool) -> QueuedEvent | None:
        """Append an event; None if it is a duplicate."""
        id = event.id
        fresh = self._store.execute(
            "INSERT OR IGNORE INTO taken (subscription, source, sequence) VALUES (?, ?, ?)",
            (self._subscription, id.source, id.sequence),
        )
        if not fresh:
            return None
        self.newest += 1
        encoded = _encode(event)
        row = (self._subscription, self.newest, encoded, hops, now_s, delivered)
        self._store.execute("INSERT INTO backlog VALUES (?, ?, ?, ?, ?, ?)", row)
        self._add_size(len(encoded), 1)
        if self.newest % TRIM_EVERY == 0:
            self._store.execute(
                "DELETE FROM taken WHERE number <= (SELECT max(number) FROM taken) - ?", (MAX_SEEN_IDS,)
            )
        return QueuedEvent(self.newest, event, hops, now_s, False, len(encoded))

    def take_after(self, position: int, max_count: int, max_bytes: float) -> list[QueuedEvent | UnreadableEvent]:
        """Return the next events after a position, at least one if there is any, and mark them as delivered."""
        rows: list[tuple[Any, ...]] = []
        with closing(
            self._store.iterate(
                "SELECT position, event, hops, arrived_s, handed, length(event) FROM backlog "
                "WHERE subscription = ? AND position > ? ORDER BY position LIMIT ?",
                (self._subscription, position, max_count),
            )
        ) as cursor:
            for row in cursor:
                rows.append(row)
                max_bytes -= row[5] or 0
                if max_bytes <= 0:
                    break
        if rows:
            self._store.execute(
                "UPDATE backlog SET handed = 1 WHERE subscription = ? AND position BETWEEN ? AND ? AND NOT handed",
                (self._subscription, rows[0][0], rows[-1][0]),
            )
        return [_decode_row(*row) for row in rows]

    def remove(self, position: int) -> None:
        """Remove an event, if it is there."""
        rows = self._store.query(
            "SELECT coalesce(length(event), 0) FROM backlog WHERE subscription = ? AND position = ?",
            (self._subscription, position),
        )
        if rows:
            self._store.execute(
                "DELETE FROM backlog WHERE subscription = ? AND position = ?", (self._subscription, position)
            )
            self._add_size(-rows[0][0], -1)

    def remove_excess(self, now_s: float) -> list[tuple[int, str]]:
        """Remove the events that are too old or too many, the oldest first; their positions and the reasons."""
        removed: list[tuple[int, str]] = []
        while self.count:
            position, arrived_s = self._store.query(
                "SELECT position, arrived_s FROM backlog WHERE subscription = ? ORDER BY position LIMIT 1",
                (self._subscription,),
            )[0]
            if self._bytes > self._settings.max_bytes:
                reason = "backlog_full"
            elif arrived_s + self._settings.max_age_s <= now_s:
                reason = "backlog_old"
            else:
                break
            self.remove(position)
            removed.append((position, reason))
        return removed

    @property
    def is_full(self) -> bool:
        """Whether the backlog exceeds its bound in bytes."""
        return self._bytes > self._settings.max_bytes


def _decode_row(
    position: int, event: Any, hops: int, arrived_s: float, handed: int, length: int
) -> QueuedEvent | UnreadableEvent:
    try:
        return QueuedEvent(position, _decode(event), int(hops), float(arrived_s), bool(handed), length)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        return UnreadableEvent(position, str(error))
