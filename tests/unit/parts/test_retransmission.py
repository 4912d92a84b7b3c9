"""Store and forward: when copies are due, and what makes them go."""

import pytest

from driftcast.model import Event, EventId
from driftcast.parts.retransmission import UNLIMITED, Carrier, Copy, RetryBuffer
from driftcast.protocol import Fact, RecordingPort
from driftcast.protocol.effects import Note, SetTimer


def event(number: int) -> Event:
    return Event(EventId(1, number), {})


def copy(number: int, until: float = 1000.0, attempts: int = UNLIMITED) -> Copy:
    return Copy(event(number), 1, None, until, attempts)


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
    carrier = Carrier(port, 1, 60.0)
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
    carrier = Carrier(RecordingPort(), 5, 60.0)
    stored = Copy(event(1), 1, None, 1000.0, UNLIMITED, {8} if kept else None)
    carrier.store(0.0, stored)
    carrier.held_by(EventId(1, 1), 9)
    carrier.held_by(EventId(1, 2), 9)
    assert stored.holders == ({8, 9} if kept else None)
