"""Single mechanisms that protocols compose."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import AccessPolicy, Event, EventId, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent, LeasedBuffer
from carrycast.core.parts.flood import Relay, RelaySettings
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.parts.seen import BoundedSeenCache, SeenCache
from carrycast.core.protocol import Fact, Link, RecordingPort
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Note, SetTimer
from carrycast.core.wire import EventMessage


class Sample(EventMessage, frozen=True, gc=False, tag=1):
    """An event on its way."""


def event(number: int, **attributes: int) -> Event:
    return Event(EventId(0, number), dict(attributes))


def stored(number: int, until: float = 100.0) -> BufferedEvent:
    return BufferedEvent(until, event(number).id, event(number), 0)


# The seen-cache.


def test_an_event_is_new_once_and_again_when_it_is_forgotten() -> None:
    seen = SeenCache()
    assert seen.add(0.0, EventId(0, 0), 10.0)
    assert not seen.add(9.0, EventId(0, 0), 50.0), "and its end stays as it was"
    assert EventId(0, 0) in seen
    assert seen.add(10.0, EventId(0, 0), 20.0)


def test_what_has_ended_takes_no_room() -> None:
    seen = SeenCache()
    for number in range(1000):
        seen.add(float(number), EventId(0, number), number + 10.0)
        assert len(seen) <= 10


# The leased buffer.


def test_the_oldest_arrival_makes_room() -> None:
    buffer = LeasedBuffer(2)
    assert buffer.add(stored(0, until=1e9)) == ()
    assert buffer.add(stored(1, until=1.0)) == ()
    assert buffer.add(stored(2)) == (stored(0, until=1e9),)
    assert list(buffer) == [EventId(0, 1), EventId(0, 2)]


def test_leases_end_in_order_and_at_their_end_not_after() -> None:
    buffer = LeasedBuffer(10)
    for number, until in ((0, 30.0), (1, 10.0), (2, 20.0)):
        buffer.add(stored(number, until))
    assert buffer.next_end() == 10.0
    assert buffer.expire(9.9) == []
    assert [gone.id for gone in buffer.expire(20.0)] == [EventId(0, 1), EventId(0, 2)]
    assert buffer.next_end() == 30.0
    assert [gone.id for gone in buffer.expire(100.0)] == [EventId(0, 0)]
    assert buffer.next_end() is None


def test_an_event_that_left_early_and_came_back_has_its_new_lease() -> None:
    buffer = LeasedBuffer(10)
    buffer.add(stored(0, 10.0))
    assert buffer.discard(EventId(0, 0))
    assert not buffer.discard(EventId(0, 0))
    buffer.add(stored(0, 50.0))
    assert buffer.expire(20.0) == []
    assert buffer.next_end() == 50.0
    assert EventId(0, 0) in buffer


def test_a_buffer_that_is_always_full_does_not_grow_however_long_the_leases() -> None:
    buffer = LeasedBuffer(10)
    for number in range(5000):
        buffer.add(stored(number, until=float("inf")))
        assert buffer.next_end() == float("inf")
    assert len(buffer) == 10
    assert buffer._ends is not None
    assert len(buffer._ends) < 200


@given(
    st.lists(st.tuples(st.sampled_from(["add", "expire", "discard"]), st.integers(0, 8), st.floats(0, 100))),
    st.integers(1, 5),
)
def test_a_buffer_is_a_dictionary_that_forgets(steps: list[tuple[str, int, float]], capacity: int) -> None:
    buffer, plain = LeasedBuffer(capacity), dict[EventId, float]()
    for step, number, time_s in steps:
        id = EventId(0, number)
        if step == "add" and id not in plain:
            evicted = buffer.add(stored(number, time_s))
            assert [gone.id for gone in evicted] == ([next(iter(plain))] if len(plain) == capacity else [])
            for gone in evicted:
                del plain[gone.id]
            plain[id] = time_s
        elif step == "discard":
            assert buffer.discard(id) == (plain.pop(id, None) is not None)
        elif step == "expire":
            over = [one for one, until in plain.items() if until <= time_s]
            assert sorted(gone.id for gone in buffer.expire(time_s)) == sorted(over)
            for one in over:
                del plain[one]
        assert list(buffer) == list(plain)
        assert buffer.next_end() == min(plain.values(), default=None)


# Neighbors.


def test_a_neighbor_over_two_interfaces_is_one_until_both_links_are_gone() -> None:
    neighbors = Neighbors()
    radio, wire = Link(5, "radio", 0.2), Link(5, "wire", 0.1)
    assert neighbors.add(radio)
    assert not neighbors.add(wire)
    assert neighbors.cost_s(5) == 0.1
    assert not neighbors.remove(wire)
    assert 5 in neighbors
    assert neighbors.remove(radio)
    assert 5 not in neighbors
    assert not neighbors.remove(radio), "a link that is not there is no mistake"


def test_neighbors_stand_in_the_order_in_which_they_came() -> None:
    neighbors = Neighbors()
    for node in (3, 1, 2):
        neighbors.add(Link(node, "radio", 0.1))
    assert (list(neighbors), len(neighbors)) == ([3, 1, 2], 3)


# Local subscriptions.


def local_with(*filters: str, rank: int = 0) -> tuple[LocalSubscriptions, RecordingPort]:
    port = RecordingPort()
    local = LocalSubscriptions(port)
    for number, text in enumerate(filters):
        local.add(Subscription(SubscriptionId(0, number), text, attributes={"rank": rank}))
    return local, port


def test_an_event_goes_to_every_subscription_that_it_serves() -> None:
    local, port = local_with("a = 1", "b = 1", "a > 0")
    one = event(0, a=1)
    local.deliver(one, 3)
    assert port.take() == [Deliver(SubscriptionId(0, 0), one, 3), Deliver(SubscriptionId(0, 2), one, 3)]
    assert local.wants(one)
    assert not local.wants(event(1, b=2))


def test_an_access_policy_is_asked_about_the_subscriber() -> None:
    secret = Event(EventId(0, 0), {"a": 1}, access=AccessPolicy("rank >= 2"))
    broken = Event(EventId(0, 1), {"a": 1}, access=AccessPolicy("rank >="))
    for rank, served in ((1, False), (2, True)):
        local, port = local_with("a = 1", rank=rank)
        local.deliver(secret, 0)
        local.deliver(broken, 0)
        assert bool(port.take()) == served == local.wants(secret)


def test_the_same_id_again_replaces_the_subscription_and_its_end_is_final() -> None:
    local, port = local_with("a = 1")
    local.add(Subscription(SubscriptionId(0, 0), "a = 2"))
    local.deliver(event(0, a=1), 0)
    assert port.take() == []
    assert len(local) == 1
    local.remove(SubscriptionId(0, 0))
    local.remove(SubscriptionId(0, 0))
    local.deliver(event(1, a=2), 0)
    assert (port.take(), list(local)) == ([], [])


# Relaying.


def relay_with(**settings: float) -> tuple[Relay, RecordingPort]:
    port = RecordingPort()
    return Relay(port, Random(1), RelaySettings(**settings)), port  # type: ignore[arg-type]  # numbers all


def test_without_jitter_an_event_is_passed_on_at_once() -> None:
    relay, port = relay_with()
    message = Sample(event(0), 1, 10.0)
    relay.forward(0.0, message)
    assert port.take() == [Broadcast(message)]


def test_with_jitter_it_waits_and_its_lease_shrinks_by_the_wait() -> None:
    relay, port = relay_with(jitter_s=2.0)
    relay.forward(0.0, Sample(event(0), 1, 10.0))
    (timer,) = port.take()
    assert isinstance(timer, SetTimer)
    assert timer.key == ("relay", EventId(0, 0))
    assert 0 <= timer.delay_s <= 2.0
    relay.on_timer(1.5, timer.key)
    assert port.take() == [Broadcast(Sample(event(0), 1, 8.5))]


def test_a_lease_that_ends_while_waiting_is_a_drop() -> None:
    relay, port = relay_with(jitter_s=2.0)
    relay.forward(0.0, Sample(event(0), 1, 1.0))
    port.take()
    relay.on_timer(1.0, ("relay", EventId(0, 0)))
    assert port.take() == [Note(Fact("drop", EventId(0, 0), reason="lease_over"))]


@pytest.mark.parametrize(("hops", "passed"), [(3, True), (4, False)])
def test_an_event_that_has_come_too_far_is_a_drop(hops: int, passed: bool) -> None:
    relay, port = relay_with(max_hops=3)
    relay.forward(0.0, Sample(event(0), hops, 10.0))
    (effect,) = port.take()
    assert isinstance(effect, Broadcast) == passed
    if not passed:
        assert effect == Note(Fact("drop", EventId(0, 0), reason="too_many_hops"))


def test_a_stop_disarms_every_wait() -> None:
    relay, port = relay_with(jitter_s=2.0)
    for number in range(2):
        relay.forward(0.0, Sample(event(number), 1, 10.0))
    port.take()
    relay.stop()
    assert port.take() == [CancelTimer(("relay", EventId(0, 0))), CancelTimer(("relay", EventId(0, 1)))]


def test_an_event_is_met_once_until_it_is_forgotten() -> None:
    """Not before copies have ended of which each hop took two milliseconds that nobody counts."""
    relay, _ = relay_with(seen_s=60.0, max_hops=100)
    assert relay.receive(0.0, EventId(0, 0))
    assert not relay.receive(60.1, EventId(0, 0))
    assert relay.receive(60.2, EventId(0, 0))


def test_a_bounded_cache_forgets_first_what_would_end_first() -> None:
    cache = BoundedSeenCache(2)
    assert cache.add(0.0, EventId(0, 1), 9.0)
    assert cache.add(0.0, EventId(0, 2), 5.0)
    assert not cache.add(0.0, EventId(0, 2), 99.0)
    assert cache.add(0.0, EventId(0, 3), 7.0)
    assert cache.ids == {EventId(0, 1), EventId(0, 3)}
    assert cache.add(7.0, EventId(0, 4), 8.0)
    assert cache.ids == {EventId(0, 1), EventId(0, 4)}
