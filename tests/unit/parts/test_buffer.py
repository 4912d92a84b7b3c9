"""A durable buffer and a durable duplicate cache are restored with the same content and order."""

from carrycast.core.model import Event, EventId
from carrycast.core.parts.buffer import BufferedEvent, DurableBuffer
from carrycast.core.parts.log import DurableLog
from carrycast.core.parts.seen import DurableSeenCache
from carrycast.sim.engine.host import MemoryStore


def stored(number: int, until: float = 100.0, hops: int = 0) -> BufferedEvent:
    event = Event(EventId(7, number), {"n": number})
    return BufferedEvent(until, event.id, event, hops)


def buffer_on(store: MemoryStore, capacity: int) -> DurableBuffer:
    return DurableBuffer(capacity, DurableLog(store, 1 << 20, 3600.0, "max_lease_s"))


def ids(buffer: DurableBuffer) -> list[int]:
    return [id.sequence for id in buffer]


def test_a_buffer_is_read_back_as_it_was_and_goes_on_counting_arrivals() -> None:
    store = MemoryStore()
    buffer = buffer_on(store, 3)
    for number in (5, 2, 9):
        assert buffer.add(stored(number, hops=number)) == []
    again = buffer_on(store, 3)
    assert again.load(1000.0) == []
    assert ids(again) == [5, 2, 9]
    assert again.get(EventId(7, 9)) == stored(9, hops=9)
    [evicted] = again.add(stored(1))
    assert evicted.id.sequence == 5, "the oldest arrival, of whichever start"
    third = buffer_on(store, 3)
    third.load(1000.0)
    assert ids(third) == [2, 9, 1]


def test_whatever_leaves_a_buffer_leaves_the_store() -> None:
    store = MemoryStore()
    buffer = buffer_on(store, 10)
    for number in range(6):
        buffer.add(stored(number, until=10.0 + number))
    assert [gone.id.sequence for gone in buffer.expire(11.0)] == [0, 1]
    assert buffer.discard(EventId(7, 2))
    assert not buffer.discard(EventId(7, 2))
    assert [gone.id.sequence for gone in buffer.resize(2)] == [3]
    again = buffer_on(store, 10)
    again.load(1000.0)
    assert ids(again) == [4, 5]


def test_a_smaller_capacity_lets_the_oldest_go_and_says_so() -> None:
    store = MemoryStore()
    buffer = buffer_on(store, 4)
    for number in range(4):
        buffer.add(stored(number))
    smaller = buffer_on(store, 1)
    assert [gone.id.sequence for gone in smaller.load(1000.0)] == [0, 1, 2]
    assert len(list(store.items())) == 1


def test_what_was_met_is_remembered_over_a_start_until_its_end() -> None:
    store = MemoryStore()
    met = DurableSeenCache(store)
    assert met.add(0.0, EventId(1, 1), 10.0)
    assert not met.add(1.0, EventId(1, 1), 20.0)
    again = DurableSeenCache(store)
    again.load(1000.0)
    assert not again.add(2.0, EventId(1, 1), 20.0)
    assert again.add(10.0, EventId(1, 2), 30.0)
    assert again.add(10.0, EventId(1, 1), 30.0), "its end came"
    assert len(list(store.items())) == 2
