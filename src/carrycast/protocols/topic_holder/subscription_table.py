"""Subscription tables as soft state: an entry expires unless it is refreshed. Holders and publishers have one. A holder
that leaves a topic's place may hand its table over."""

from collections.abc import Iterator
from typing import NamedTuple

from carrycast.core.model import Position, SubscriptionId
from carrycast.core.protocol import Place
from carrycast.protocols.topic_holder.holder_lookup import HolderLookup
from carrycast.protocols.topic_holder.messages import HandOver, HandOverEntry, SubscriptionEntry, split_entries


class LeasedEntry(NamedTuple):
    """An entry and when it expires."""

    entry: SubscriptionEntry
    until: float


class SubscriptionTable:
    """[003 §3.4] Subscriptions by topic. Each entry expires unless it is refreshed."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._topics: dict[str, dict[SubscriptionId, LeasedEntry]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def refresh(self, now: float, topic: str, entry: SubscriptionEntry, until: float) -> bool:
        """Store an entry if it is the newest of its subscriber, whatever the order of messages; False if the table is
        full."""
        by_id = self._topics.get(topic, {})
        known = by_id.pop(entry.subscription.id, None)
        if known is not None:
            # The most recently refreshed entry is last, so that expired entries are mostly the first.
            is_newer = known.until > now and (known.entry.version, known.until) > (entry.version, until)
            by_id[entry.subscription.id] = known if is_newer else LeasedEntry(entry, until)
            return True
        if self._size >= self._capacity:
            self._sweep(now)
            if self._size >= self._capacity:
                return False
        by_id = self._topics.setdefault(topic, {})
        by_id[entry.subscription.id] = LeasedEntry(entry, until)
        self._size += 1
        self._remove_expired(now, by_id)
        return True

    def entries(self, now: float, topic: str) -> list[SubscriptionEntry]:
        """The valid entries of a topic, the least recently refreshed first."""
        return [entry for entry, until in self._topics.get(topic, {}).values() if until > now]

    def leased_entries(self, now: float, topic: str) -> list[LeasedEntry]:
        """The same, with their expiry times."""
        return [leased for leased in self._topics.get(topic, {}).values() if leased.until > now]

    def remove_topic(self, topic: str) -> None:
        """Remove all entries of a topic."""
        self._size -= len(self._topics.pop(topic, {}))

    def _remove_expired(self, now: float, by_id: dict[SubscriptionId, LeasedEntry]) -> None:
        while by_id:
            first = next(iter(by_id))
            if by_id[first].until > now:
                return
            del by_id[first]
            self._size -= 1

    def _sweep(self, now: float) -> None:
        valid = {
            topic: {id: leased for id, leased in entries.items() if leased.until > now}
            for topic, entries in self._topics.items()
        }
        self._topics = {topic: entries for topic, entries in valid.items() if entries}
        self._size = sum(map(len, self._topics.values()))


class TableHandOver:
    """The topics that a node holds within K of their place, and the messages that hand their subscriptions over when
    the node leaves the place. Beyond [003 §3.4].

    Soft state fills the table of a node that comes to a place within one refresh [003 §3.4]. The less often subscribers
    refresh, the longer an event may reach a table that is not complete yet; so a node that leaves sends its table to
    the nodes that stay.
    """

    def __init__(self, holders: HolderLookup, table: SubscriptionTable, most_bytes: int) -> None:
        self._holders = holders
        self._table = table
        self._most_bytes = most_bytes
        self._topics: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def on_entry(self, topic: str, here: Position | None) -> None:
        """The node has stored a subscription of a topic: if it is within K, it watches whether it leaves the place."""
        if topic not in self._topics and self._holders.is_within(topic, here):
            self._topics[topic] = None

    def make_hand_overs(self, now: float, here: Position | None) -> Iterator[tuple[Place, HandOver]]:
        """The tables to send, and where to, of the topics whose place the node has left; none without a position."""
        for topic in list(self._topics):
            valid = {leased.entry.subscription.id: leased for leased in self._table.leased_entries(now, topic)}
            if valid and self._holders.is_within(topic, here):
                continue
            del self._topics[topic]
            if not valid or here is None:
                continue
            for part in split_entries((leased.entry for leased in valid.values()), self._most_bytes):
                ends = [valid[entry.subscription.id].until for entry in part]
                last = max(ends)
                entries = tuple(HandOverEntry(entry, last - end) for entry, end in zip(part, ends, strict=True))
                yield self._holders.find_nearest_place(topic, here), HandOver(topic, entries, last - now)
