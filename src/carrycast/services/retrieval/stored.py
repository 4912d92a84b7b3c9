"""The stored events of a repository: in memory for requests, and in the durable store to survive a crash."""

from collections.abc import Iterable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, Scalar
from carrycast.core.parts import BufferedEvent, LeasedBuffer
from carrycast.core.protocol import DurableStore, Fact, Port

_PREFIX = b"event:"


class _StoredEvent(msgspec.Struct, frozen=True, array_like=True):
    event: Event
    until: float


class StoredEvents:
    """The events of some filters, until they expire on the node's own clock, which continues over a crash."""

    def __init__(self, port: Port, store: DurableStore, capacity: int) -> None:
        self._port = port
        self._store = store
        self._buffer = LeasedBuffer(capacity)
        self._filters: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._buffer)

    def load(self, now: float) -> None:
        """Load the events that were stored before a restart."""
        decode = msgspec.msgpack.Decoder(_StoredEvent).decode
        for key, value in list(self._store.items(_PREFIX)):
            kept = decode(value)
            if kept.until <= now:
                self._store.delete(key)
            else:
                self._buffer.add(BufferedEvent(kept.until, kept.event.id, kept.event, 0))
                self._port.note(Fact("store", event=kept.event.id))
        self._restart_timer(now)

    @property
    def filters(self) -> Iterable[str]:
        """The filters of the stored events."""
        return self._filters

    def open(self, filter: Filter) -> None:
        """Store events of a filter from now on."""
        self._filters[filter.text] = self._filters.get(filter.text, 0) + 1

    def close(self, text: str) -> None:
        """Stop storing events of a filter. Its stored events stay until they expire, and are no longer advertised."""
        self._filters[text] -= 1
        if not self._filters[text]:
            del self._filters[text]

    def wants(self, event: Event) -> bool:
        """Whether an event matches one of the filters."""
        return any(Filter(text).matches(event.attributes) for text in self._filters)

    def keep(self, now: float, event: Event, remaining_s: float) -> bool:
        """Store an event until it expires; False if it is stored already."""
        if event.id in self._buffer:
            return False
        # A forged remaining lease cannot exceed the lease of the event itself.
        until = now + min(remaining_s, event.lease_s)
        evicted = self._buffer.add(BufferedEvent(until, event.id, event, 0))
        self._store.put(_key(event.id), msgspec.msgpack.encode(_StoredEvent(event, until)))
        self._port.note(Fact("store", event=event.id))
        for one in evicted:
            self._drop(one.id)
        self._restart_timer(now)
        return True

    def find_matching(self, now: float, filter: str, attributes: dict[str, Scalar]) -> list[tuple[Event, float]]:
        """Find the events that match a filter and admit a node with these attributes, with their remaining leases."""
        return [(kept.event, kept.until - now) for kept in self._buffer.find_matching(now, filter, attributes)]

    def expire(self, now: float) -> None:
        """Remove expired events."""
        for ended in self._buffer.expire(now):
            self._drop(ended.id)
        self._restart_timer(now)

    def stop(self) -> None:
        """Stop the timer; the events stay in the durable store."""
        self._port.cancel_timer("expire")

    def _drop(self, id: EventId) -> None:
        self._store.delete(_key(id))
        self._port.note(Fact("evict", event=id))

    def _restart_timer(self, now: float) -> None:
        end = self._buffer.next_end()
        if end is None:
            self._port.cancel_timer("expire")
        else:
            self._port.set_timer("expire", max(0.0, end - now))


def _key(event: EventId) -> bytes:
    return _PREFIX + event.source.to_bytes(8) + event.sequence.to_bytes(8)
