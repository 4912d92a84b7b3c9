"""Streams stay whole."""

from random import Random

from hypothesis import given, strategies as st

from carrycast.core.model import Event, EventId
from carrycast.protocols.overlay.streams import MAX_REORDERED, StreamEvent, StreamReceiver, StreamSender


def waiting(number: int, until: float = 10.0) -> StreamEvent:
    return StreamEvent(Event(EventId(1, number), {}), 0, until)


def test_what_is_taken_is_let_go_and_the_rest_stays_in_order() -> None:
    flow = StreamSender(3)
    assert [flow.add(waiting(number))[0] for number in range(3)] == [0, 1, 2]
    number, gone = flow.add(waiting(3))
    assert (number, gone) == (3, waiting(0)), "the oldest makes room"
    assert flow.first == 1
    assert flow.acknowledge(3)
    assert not flow.acknowledge(2), "old word"
    assert [number for number, _ in flow] == [3]
    assert flow.acknowledge(4)
    assert flow.first == flow.number == 4


def test_a_lease_that_is_over_goes_when_those_before_it_have_gone() -> None:
    flow = StreamSender(9)
    for number, until in enumerate([5.0, 1.0, 9.0]):
        flow.add(waiting(number, until))
    assert flow.expire(2.0) == []
    assert [one.event.id.sequence for one in flow.expire(5.0)] == [0, 1]
    assert flow.first == 2


def test_what_is_too_far_ahead_comes_again() -> None:
    flow: StreamReceiver[str] = StreamReceiver()
    assert flow.accept(MAX_REORDERED, 0, "far") is None
    assert flow.accept(MAX_REORDERED - 1, 0, "held") == []
    assert flow.accept(0, 0, "first") == [(0, "first")]
    assert flow.accept(0, 0, "again") is None
    assert flow.skip_to(MAX_REORDERED - 1) == [(MAX_REORDERED - 1, "held")]


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_whatever_is_doubled_swapped_or_given_up_each_comes_once_in_order(seed: int, count: int) -> None:
    rng = Random(seed)
    out, flow = StreamSender(1000), StreamReceiver[int]()
    lost = {number for number in range(count) if rng.random() < 0.2}
    came: list[int] = []
    for number in range(count):
        out.add(waiting(number))
    on_air = [number for number in range(count) for _ in range(rng.randrange(1, 3))]
    rng.shuffle(on_air)
    for number in on_air:
        if number not in lost:
            came += [one for one, _ in flow.accept(number, 0, number) or ()]
    assert came == list(range(len(came)))
    # What never comes is skipped by word of the sender, in any order of such words.
    for number in sorted(lost):
        came += [one for one, _ in flow.skip_to(number + 1)]
    came += [one for one, _ in flow.skip_to(count)]
    assert came == sorted(came)
    assert set(came).isdisjoint(lost)
    assert flow.expected == count
    assert len(flow) == 0
