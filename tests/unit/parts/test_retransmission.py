"""Copies for retransmission: the times of attempts, and the reasons for removal."""

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.parts.log import DurableLog
from carrycast.core.parts.retransmission import UNLIMITED, RetryBuffer, RetryCopy, RetryStore
from carrycast.core.protocol import Fact, RecordingPort
from carrycast.core.protocol.effects import Note, SetTimer
from carrycast.sim.engine.host import MemoryStore


def event(number: int) -> Event:
    return Event(EventId(1, number), {})


def copy(number: int, until: float = 1000.0, attempts: int = UNLIMITED) -> RetryCopy:
    return RetryCopy(event(number), 1, None, until, attempts)


def tried(buffer: RetryBuffer, now: float) -> list[int]:
    return [copy.event.id.sequence for copy in buffer.take_due(now)[0]]


def test_a_copy_is_due_at_every_interval_after_it_was_stored() -> None:
    buffer = RetryBuffer(10, 60.0)
    buffer.add(5.0, copy(1))
    buffer.add(20.0, copy(2))
    assert buffer.next_due() == 65.0
    assert tried(buffer, 64.0) == []
    assert tried(buffer, 65.0) == [1]
    assert tried(buffer, 80.0) == [2]
    assert tried(buffer, 125.0) == [1]


def test_with_a_phase_all_copies_are_due_together_oldest_arrival_first() -> None:
    """Every 60 s from 25 s on: the copy of 80 s waits for 85 s, that of 86 s and that of just after 85 s for 145 s."""
    buffer = RetryBuffer(10, 60.0, 25.0)
    buffer.add(5.0, copy(3))
    assert buffer.next_due() == 25.0
    buffer.add(20.0, copy(2))
    assert tried(buffer, 24.9) == []
    assert tried(buffer, 25.0) == [3, 2]
    buffer.add(80.0, copy(1))
    assert tried(buffer, 85.0) == [3, 2, 1]
    buffer.add(85.0, copy(5))
    buffer.add(86.0, copy(4))
    assert buffer.next_due() == 145.0
    assert tried(buffer, 145.0) == [3, 2, 1, 5, 4]


def test_with_a_phase_a_timer_that_is_a_clock_step_early_is_for_this_time_and_not_for_the_next_too() -> None:
    buffer = RetryBuffer(10, 60.0, 25.1)
    buffer.add(5.0, copy(1))
    assert tried(buffer, 25.1 - 1e-9) == [1]
    assert buffer.next_due() == pytest.approx(85.1)


def test_with_a_phase_the_lease_still_ends_a_copy_at_its_own_time() -> None:
    buffer = RetryBuffer(10, 60.0, 25.0)
    buffer.add(5.0, copy(1, until=50.0))
    assert tried(buffer, 25.0) == [1]
    assert buffer.next_due() == 50.0
    assert buffer.take_due(50.0) == ([], [(EventId(1, 1), "lease_over")])


@pytest.mark.parametrize("phase_s", [None, 0.0, 5e-7])
def test_an_interval_shorter_than_a_clock_step_gives_one_attempt_at_a_time(phase_s: float | None) -> None:
    buffer = RetryBuffer(10, 1e-6, phase_s)
    buffer.add(5.0, copy(1))
    assert tried(buffer, 5.1) == [1]
    assert tried(buffer, 5.2) == [1]


@pytest.mark.parametrize("phase_s", [None, 25.0])
def test_copies_that_made_room_are_not_held_on_to(phase_s: float | None) -> None:
    buffer = RetryBuffer(3, 3600.0, phase_s)
    for number in range(1000):
        buffer.add(30.0 + number, copy(number, until=5000.0))
    assert len(buffer._dues) <= 2 * 3 + 64 + 1
    assert tried(buffer, 4999.0) == [997, 998, 999]


def test_a_timer_that_is_a_clock_step_early_is_not_set_again_for_nothing() -> None:
    buffer = RetryBuffer(10, 60.0)
    buffer.add(0.1, copy(1))
    assert tried(buffer, 60.1 - 1e-9) == [1]


def test_the_oldest_arrival_makes_room() -> None:
    buffer = RetryBuffer(2, 60.0)
    assert buffer.add(0.0, copy(1)) is None
    assert buffer.add(1.0, copy(2)) is None
    assert buffer.add(2.0, copy(3)) == EventId(1, 1)
    assert len(buffer) == 2
    assert tried(buffer, 100.0) == [2, 3]


def test_free_is_the_unused_share() -> None:
    buffer = RetryBuffer(4, 60.0)
    assert buffer.free == 1.0
    buffer.add(0.0, copy(1))
    assert buffer.free == 0.75


def test_the_lease_ends_a_copy_between_two_attempts() -> None:
    buffer = RetryBuffer(10, 60.0)
    buffer.add(0.0, copy(1, until=90.0))
    assert tried(buffer, 60.0) == [1]
    assert buffer.next_due() == 90.0
    assert buffer.take_due(90.0) == ([], [(EventId(1, 1), "lease_over")])
    assert buffer.next_due() is None


def test_the_last_attempt_is_made_and_ends_the_copy() -> None:
    buffer = RetryBuffer(10, 60.0)
    buffer.add(0.0, copy(1, attempts=2))
    assert tried(buffer, 60.0) == [1]
    trying, gone = buffer.take_due(120.0)
    assert [copy.event for copy in trying] == [event(1)]
    assert gone == [(EventId(1, 1), "attempts_over")]
    assert len(buffer) == 0


def test_a_carrier_tells_what_it_keeps_and_lets_go_and_arms_one_timer() -> None:
    port = RecordingPort()
    carrier = RetryStore(port, 1, 60.0)
    carrier.store(0.0, copy(1))
    carrier.store(10.0, copy(2))
    assert port.take() == [
        Note(Fact("store", EventId(1, 1))),
        SetTimer("retry", 60.0),
        Note(Fact("evict", EventId(1, 1), reason="buffer_full")),
        Note(Fact("store", EventId(1, 2))),
    ]
    # The timer was set for the copy that had to go; it finds nothing and is set for the other.
    assert carrier.on_timer(60.0) == []
    assert port.take() == [SetTimer("retry", 10.0)]
    assert [copy.event for copy in carrier.on_timer(70.0)] == [event(2)]


@pytest.mark.parametrize("kept", [True, False])
def test_holders_are_noted_only_where_they_are_kept(kept: bool) -> None:
    carrier = RetryStore(RecordingPort(), 5, 60.0)
    stored = RetryCopy(event(1), 1, None, 1000.0, UNLIMITED, {8} if kept else None)
    carrier.store(0.0, stored)
    carrier.add_holder(EventId(1, 1), 9)
    carrier.add_holder(EventId(1, 2), 9)
    assert stored.holders == ({8, 9} if kept else None)


def test_a_carrier_with_a_log_keeps_promised_copies_beside_those_that_make_room() -> None:
    port, store = RecordingPort(), MemoryStore()
    log = DurableLog(store, 1 << 20, 3600.0, "lease_s")
    carrier = RetryStore(port, 2, 60.0, log=log)
    log.guarantee(EventId(1, 1))
    carrier.store(0.0, copy(1))
    log.guarantee(None)
    for number in (2, 3, 4):
        carrier.store(0.0, copy(number))
    gone = [effect.fact for effect in port.take() if isinstance(effect, Note) and effect.fact.kind == "evict"]
    assert gone == [Fact("evict", EventId(1, 2), reason="buffer_full")]
    assert carrier.free == 0.0
    assert [tried.event for tried in carrier.on_timer(60.0)] == [event(1), event(3), event(4)]
    again = DurableLog(store, 1 << 20, 3600.0, "lease_s")
    assert [kept.event.id.sequence for kept in again.load()] == [1, 3, 4]
    assert again.is_guaranteed(EventId(1, 1))
