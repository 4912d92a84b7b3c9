"""Subscriptions that stand until they are not refreshed any more: soft state, at holders and in publishers' lists."""

from typing import NamedTuple

from carrycast.core.model import SubscriptionId
from carrycast.protocols.topic_holder.messages import Entry


class Held(NamedTuple):
    """One that stands until a time."""

    entry: Entry
    until: float


class SubscriptionTable:
    """[003 §3.4] Subscriptions by topic. Each has an end, and what has ended is as if it had never been."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._topics: dict[str, dict[SubscriptionId, Held]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def hold(self, now: float, topic: str, entry: Entry, until: float) -> bool:
        """Keep the newest that a subscriber said, however messages overtook each other; False if there is no room."""
        held = self._topics.get(topic, {})
        known = held.pop(entry.subscription.id, None)
        if known is not None:
            # Those refreshed last come last, so that those that ended are mostly the first.
            stands = known.until > now and (known.entry.version, known.until) > (entry.version, until)
            held[entry.subscription.id] = known if stands else Held(entry, until)
            return True
        if self._size >= self._capacity:
            self._sweep(now)
            if self._size >= self._capacity:
                return False
        held = self._topics.setdefault(topic, {})
        held[entry.subscription.id] = Held(entry, until)
        self._size += 1
        self._forget_first(now, held)
        return True

    def entries(self, now: float, topic: str) -> list[Entry]:
        """Those of a topic that stand, the least lately refreshed first."""
        return [entry for entry, until in self._topics.get(topic, {}).values() if until > now]

    def standing(self, now: float, topic: str) -> list[Held]:
        """The same, with their ends."""
        return [held for held in self._topics.get(topic, {}).values() if held.until > now]

    def forget(self, topic: str) -> None:
        """All of a topic."""
        self._size -= len(self._topics.pop(topic, {}))

    def _forget_first(self, now: float, held: dict[SubscriptionId, Held]) -> None:
        while held:
            first = next(iter(held))
            if held[first].until > now:
                return
            del held[first]
            self._size -= 1

    def _sweep(self, now: float) -> None:
        standing = {
            topic: {id: held for id, held in entries.items() if held.until > now}
            for topic, entries in self._topics.items()
        }
        self._topics = {topic: entries for topic, entries in standing.items() if entries}
        self._size = sum(map(len, self._topics.values()))
