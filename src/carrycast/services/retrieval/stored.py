"""What a repository keeps: in memory to be asked for, and in the durable store, so that a crash loses nothing."""

from collections.abc import Iterable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, Scalar
from carrycast.core.parts.buffer import BufferedEvent, LeasedBuffer
from carrycast.core.protocol import DurableStore, Fact, Port

_PREFIX = b"event:"


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    event: Event
    until: float


class StoredEvents:
    """Events of some filters, until the ends of their leases, which are points of the node's own clock. That runs on
    over a crash."""

    def __init__(self, port: Port, store: DurableStore, capacity: int) -> None:
        self._port = port
        self._store = store
        self._buffer = LeasedBuffer(capacity)
        self._filters: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._buffer)

    def load(self, now: float) -> None:
        """What was kept before the node started anew."""
        decode = msgspec.msgpack.Decoder(_Kept).decode
        for key, value in list(self._store.items(_PREFIX)):
            kept = decode(value)
            if kept.until <= now:
                self._store.delete(key)
            else:
                self._buffer.add(BufferedEvent(kept.until, kept.event.id, kept.event, 0))
                self._port.note(Fact("store", event=kept.event.id))
        self._watch(now)

    @property
    def filters(self) -> Iterable[str]:
        """What is kept."""
        return self._filters

    def open(self, filter: Filter) -> None:
        """Keep events of a filter from now on."""
        self._filters[filter.text] = self._filters.get(filter.text, 0) + 1

    def close(self, text: str) -> None:
        """No longer; what is kept stays until its lease is over, and is not offered any more."""
        self._filters[text] -= 1
        if not self._filters[text]:
            del self._filters[text]

    def wants(self, event: Event) -> bool:
        """Whether an event is to be kept."""
        return any(Filter(text).matches(event.attributes) for text in self._filters)

    def keep(self, now: float, event: Event, remaining_s: float) -> bool:
        """Keep an event until its lease ends; False if it is kept already."""
        if event.id in self._buffer:
            return False
        # Who sends it back may say what it likes of what is left; the whole life is the event's own word.
        until = now + min(remaining_s, event.lease_s)
        evicted = self._buffer.add(BufferedEvent(until, event.id, event, 0))
        self._store.put(_key(event.id), msgspec.msgpack.encode(_Kept(event, until)))
        self._port.note(Fact("store", event=event.id))
        for one in evicted:
            self._drop(one.id)
        self._watch(now)
        return True

    def wanted(self, now: float, filter: str, attributes: dict[str, Scalar]) -> list[tuple[Event, float]]:
        """The events that match and that somebody with these attributes may see, with what is left of their leases."""
        return [(kept.event, kept.until - now) for kept in self._buffer.matching(now, filter, attributes)]

    def expire(self, now: float) -> None:
        """Let go what has reached the end of its lease."""
        for ended in self._buffer.expire(now):
            self._drop(ended.id)
        self._watch(now)

    def stop(self) -> None:
        """Disarm; what is kept stays in the durable store."""
        self._port.cancel_timer("expire")

    def _drop(self, id: EventId) -> None:
        self._store.delete(_key(id))
        self._port.note(Fact("evict", event=id))

    def _watch(self, now: float) -> None:
        end = self._buffer.next_end()
        if end is None:
            self._port.cancel_timer("expire")
        else:
            self._port.set_timer("expire", max(0.0, end - now))


def _key(event: EventId) -> bytes:
    return _PREFIX + event.source.to_bytes(8) + event.sequence.to_bytes(8)
