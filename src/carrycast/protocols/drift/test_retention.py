"""Drift keeps guaranteed events, however many others there are."""

from carrycast.core.model import Event, EventId
from carrycast.core.protocol import KeepsEvents
from carrycast.core.protocol.retention import RetentionLevel
from carrycast.sim.testing import isolate_protocol


def publish(drift: KeepsEvents, number: int, guaranteed: bool, lease_s: float = 60.0) -> bool:
    """Publish an event; returns whether it was admitted."""
    event = Event(EventId(7, number), {"n": number}, lease_s=lease_s)
    assert drift.log is not None
    if guaranteed and drift.log.rejection(event) is not None:
        return False
    drift.log.guarantee(event.id if guaranteed else None)
    drift.on_publish(0.0, event)  # type: ignore[attr-defined]
    drift.log.guarantee(None)
    return True


def test_guaranteed_events_are_not_forgotten() -> None:
    drift, port = isolate_protocol("drift", node=7, durable=True, max_met=40, buffer=100)
    assert isinstance(drift, KeepsEvents)
    assert drift.log is not None
    for number in range(20):
        assert publish(drift, number, guaranteed=True)
    for number in range(20, 200):
        publish(drift, number, guaranteed=False, lease_s=600.0)
    port.take()
    assert drift.log.usage[RetentionLevel.STORED].events == 20
    assert all(drift.log.level(EventId(7, number)) is RetentionLevel.STORED for number in range(20))
    assert drift.log.usage[RetentionLevel.ACCEPTED].events <= 20


def test_no_more_events_are_guaranteed_than_can_be_known() -> None:
    drift, _ = isolate_protocol("drift", node=7, durable=True, max_met=40)
    assert isinstance(drift, KeepsEvents)
    assert [publish(drift, number, guaranteed=True) for number in range(40)] == [True] * 30 + [False] * 10


def test_a_small_buffer_evicts_only_copies() -> None:
    drift, _ = isolate_protocol("drift", node=7, durable=True, buffer=3)
    assert isinstance(drift, KeepsEvents)
    assert drift.log is not None
    for number in range(10):
        publish(drift, number, guaranteed=number % 2 == 0)
    assert drift.log.usage[RetentionLevel.STORED].events == 5
    assert drift.log.usage[RetentionLevel.ACCEPTED].events == 3


def test_a_clock_that_is_set_back_shortens_leases_and_keeps_levels() -> None:
    drift, _ = isolate_protocol("drift", node=7, durable=True)
    assert isinstance(drift, KeepsEvents)
    assert drift.log is not None
    drift.on_start(1000.0)
    publish(drift, 1, guaranteed=True)
    drift.on_publish(-500.0, Event(EventId(7, 2), {"n": 2}, lease_s=60.0))
    assert drift.log.level(EventId(7, 1)) is RetentionLevel.STORED
