"""Numbered streams: both ends, with losses, duplicates and reordering."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import Event, EventId
from carrycast.protocols.overlay.streams import MAX_REORDERED, StreamEvent, StreamReceiver, StreamSender


def make_event(number: int, until: float = 10.0) -> StreamEvent:
    return StreamEvent(Event(EventId(1, number), {}), 0, until)


def test_acknowledged_events_are_removed_and_the_rest_stays_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.streams.MAX_BUFFERED", 3)
    stream = StreamSender()
    assert [stream.add(make_event(number))[0] for number in range(3)] == [0, 1, 2]
    number, gone = stream.add(make_event(3))
    assert (number, gone) == (3, make_event(0)), "the oldest makes room"
    assert stream.first == 1
    assert stream.acknowledge(3)
    assert not stream.acknowledge(2), "an older acknowledgement"
    assert [number for number, _ in stream] == [3]
    assert stream.acknowledge(4)
    assert stream.first == stream.number == 4


def test_expired_events_are_removed_from_the_head_only() -> None:
    stream = StreamSender()
    for number, until in enumerate([5.0, 1.0, 9.0]):
        stream.add(make_event(number, until))
    assert stream.expire(2.0) == []
    assert [one.event.id.sequence for one in stream.expire(5.0)] == [0, 1]
    assert stream.first == 2


def test_a_number_too_far_ahead_is_rejected() -> None:
    stream: StreamReceiver[str] = StreamReceiver()
    assert stream.accept(MAX_REORDERED, 0, "far") is None
    assert stream.accept(MAX_REORDERED - 1, 0, "held") == []
    assert stream.accept(0, 0, "first") == [(0, "first")]
    assert stream.accept(0, 0, "again") is None
    assert stream.skip_to(MAX_REORDERED - 1) == [(MAX_REORDERED - 1, "held")]


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_a_receiver_returns_each_item_once_and_in_order(seed: int, count: int) -> None:
    rng = Random(seed)
    out, stream = StreamSender(), StreamReceiver[int]()
    lost = {number for number in range(count) if rng.random() < 0.2}
    received: list[int] = []
    for number in range(count):
        out.add(make_event(number))
    in_transit = [number for number in range(count) for _ in range(rng.randrange(1, 3))]
    rng.shuffle(in_transit)
    for number in in_transit:
        if number not in lost:
            received += [one for one, _ in stream.accept(number, 0, number) or ()]
    assert received == list(range(len(received)))
    # Lost numbers are skipped when the sender says so.
    for number in sorted(lost):
        received += [one for one, _ in stream.skip_to(number + 1)]
    received += [one for one, _ in stream.skip_to(count)]
    assert received == sorted(received)
    assert set(received).isdisjoint(lost)
    assert stream.expected == count
    assert len(stream) == 0
