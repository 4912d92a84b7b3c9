"""The retention log keeps guaranteed events, evicts others, and is bounded in bytes."""

import msgspec
import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.parts.buffer import BufferedEvent, DurableBuffer
from carrycast.core.parts.log import DurableLog, LogRecord
from carrycast.core.protocol.retention import RetentionLevel
from carrycast.errors import UserError, WorkError
from carrycast.sim.engine.host import MemoryStore

LOG_BYTES = 1 << 20


def event(number: int, size: int = 1000, lease_s: float = 60.0) -> Event:
    return Event(EventId(7, number), {"n": number}, bytes(size), lease_s=lease_s)


def log_on(store: MemoryStore, most_events: int | None = None) -> DurableLog:
    return DurableLog(store, LOG_BYTES, 3600.0, "max_lease_s", most_events)


def publish(log: DurableLog, buffer: DurableBuffer, one: Event, promised: bool = True) -> list[int]:
    """The events that had to make room."""
    log.guarantee(one.id if promised else None)
    gone = buffer.add(BufferedEvent(100.0, one.id, one, 0))
    log.guarantee(None)
    return [stored.id.sequence for stored in gone]


def carry(buffer: DurableBuffer, one: Event) -> list[int]:
    return [stored.id.sequence for stored in buffer.add(BufferedEvent(100.0, one.id, one, 1))]


def test_promised_events_make_room_for_nobody_and_are_not_counted_in_the_buffer() -> None:
    log = log_on(MemoryStore())
    buffer = DurableBuffer(2, log)
    for number in range(10):
        assert publish(log, buffer, event(number)) == []
    assert [carry(buffer, event(number)) for number in (10, 11, 12, 13)] == [[], [], [10], [11]]
    assert publish(log, buffer, event(14), promised=False) == [12], "an own event that is only accepted is one of them"
    assert [id.sequence for id in buffer] == [*range(10), 13, 14]
    assert log.level(EventId(7, 3)) is RetentionLevel.STORED
    assert log.level(EventId(7, 13)) is RetentionLevel.CARRIED
    assert log.level(EventId(7, 14)) is RetentionLevel.ACCEPTED
    assert log.level(EventId(7, 12)) is None


def test_half_of_the_log_is_for_stored_events_and_then_they_are_refused() -> None:
    """G-4, G-18"""
    log = log_on(MemoryStore())
    buffer = DurableBuffer(10_000, log)
    number = 0
    while (refused := log.rejection(event(number))) is None:
        publish(log, buffer, event(number))
        number += 1
    assert isinstance(refused, WorkError)
    assert "the retention log is full" in str(refused)
    assert "log_bytes" in str(refused)
    assert log.full is not None
    assert LOG_BYTES / 2 - 2200 < log.usage[RetentionLevel.STORED].length_bytes <= LOG_BYTES / 2
    assert log.usage[RetentionLevel.STORED].events == number
    buffer.discard(EventId(7, 0))
    assert log.rejection(event(number)) is None
    for gone in range(1, 10):
        buffer.discard(EventId(7, gone))
    assert log.full is None


def test_copies_use_what_promised_events_leave_and_give_it_back() -> None:
    """G-18"""
    log = log_on(MemoryStore())
    buffer = DurableBuffer(10_000, log)
    for number in range(2000):
        carry(buffer, event(number))
    assert LOG_BYTES - 1100 < log.usage[RetentionLevel.CARRIED].length_bytes <= LOG_BYTES
    gone = []
    for number in range(2000, 2400):
        assert log.rejection(event(number)) is None, "copies of others crowd out nothing"
        gone += publish(log, buffer, event(number))
    assert gone == list(range(gone[0], gone[0] + len(gone))), "the oldest copies"
    assert sum(used.length_bytes for used in log.usage.values()) <= LOG_BYTES


def test_a_longer_lease_than_events_are_kept_for_is_refused_with_the_setting() -> None:
    log = log_on(MemoryStore())
    refused = log.rejection(event(1, lease_s=3601.0))
    assert isinstance(refused, UserError)
    assert "max_lease_s" in str(refused)
    assert log.rejection(event(1, lease_s=3600.0)) is None


def test_an_event_that_is_larger_than_the_share_is_refused() -> None:
    assert isinstance(log_on(MemoryStore()).rejection(event(1, size=LOG_BYTES // 2)), WorkError)


def test_a_protocol_may_bound_the_number_of_promised_events() -> None:
    log = log_on(MemoryStore(), most_events=3)
    buffer = DurableBuffer(10, log)
    for number in range(3):
        assert log.rejection(event(number)) is None
        publish(log, buffer, event(number))
    assert "at most 3 guaranteed events" in str(log.rejection(event(3)))


def test_levels_and_bytes_are_the_same_after_a_restart() -> None:
    store = MemoryStore()
    log = log_on(store)
    buffer = DurableBuffer(10, log)
    publish(log, buffer, event(1))
    publish(log, buffer, event(2), promised=False)
    carry(buffer, event(3))
    buffer.add(BufferedEvent(100.0, event(4).id, event(4), 1), custody=True)
    again = log_on(store)
    DurableBuffer(10, again).load(1000.0)
    assert again.usage == log.usage
    assert {again.level(EventId(7, number)) for number in (1, 2, 3, 4)} == set(RetentionLevel)


def test_custody_is_taken_up_to_a_quarter_of_the_log_and_for_no_longer_than_events_are_kept() -> None:
    """G-11, G-18"""
    log = log_on(MemoryStore())
    buffer = DurableBuffer(10, log)
    number = 0
    while log.can_take(event(number), 60.0):
        buffer.add(BufferedEvent(100.0, event(number).id, event(number), 1), custody=True)
        number += 1
    assert LOG_BYTES / 4 - 2200 < log.usage[RetentionLevel.CUSTODY].length_bytes <= LOG_BYTES / 4
    assert len(buffer) == number
    assert not log_on(MemoryStore()).can_take(event(1), 3601.0)


@pytest.mark.parametrize(("hops", "level"), [(0, RetentionLevel.STORED), (2, RetentionLevel.CARRIED)])
def test_an_own_event_in_a_store_that_does_not_say_its_level_is_kept_as_promised(
    hops: int, level: RetentionLevel
) -> None:
    store = MemoryStore()
    log_on(store).put(LogRecord(100.0, event(1), hops))
    [(key, value)] = list(store.items())
    store.put(key, msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:5]))
    again = log_on(store)
    again.load()
    assert again.level(EventId(7, 1)) is level


def test_writing_a_record_again_keeps_its_place_among_those_that_make_room() -> None:
    log = log_on(MemoryStore())
    for number in range(3):
        log.put(LogRecord(100.0, event(number), 1, attempts=9))
    log.put(LogRecord(100.0, event(0), 1, attempts=8))
    assert log.next_eviction(2) == EventId(7, 0)
