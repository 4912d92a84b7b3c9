"""Epidemic routing: the anti-entropy session, and stories of contacts that come and go."""

import pytest
from msgspec.structs import replace

from carrycast.core.model import AccessPolicy, Event, EventId, Failure, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.protocol import AnswersRequests, Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import (
    AnswerRequest,
    Broadcast,
    CancelTimer,
    CloseHistory,
    CloseRequest,
    Deliver,
    Effect,
    Note,
    Send,
    SetTimer,
)
from carrycast.protocols.epidemic.messages import MAX_IDS, SummaryVector, Transfer, TransferRequest
from carrycast.sim.testing import Net, isolate_protocol

WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def event(number: int = 0, lease_s: float = 60.0) -> Event:
    return Event(EventId(7, number), {"topic": 1}, lease_s=lease_s)


def make_ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(7, number) for number in numbers)


def make_node(*neighbors: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    """Make an epidemic node with links that have just come up."""
    epidemic, port = isolate_protocol("epidemic", 0, None, 1, **settings)
    for neighbor in neighbors:
        epidemic.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return epidemic, port


def take_outputs(port: RecordingPort) -> list[Effect]:
    """Return sends, broadcasts and deliveries, without the tokens of sends."""
    effects = [effect for effect in port.take() if isinstance(effect, Send | Broadcast | Deliver)]
    return [replace(effect, token=None) if isinstance(effect, Send) else effect for effect in effects]


def receive_transfer(
    epidemic: Protocol, number: int, now: float = 0.0, sender: int = 1, remaining_s: float = 60.0
) -> None:
    epidemic.on_message(now, sender, Transfer(event(number), 1, remaining_s), "radio")


# The anti-entropy session.


def test_a_published_event_is_delivered_stored_and_advertised_to_all_neighbors() -> None:
    epidemic, port = make_node(1, 2)
    epidemic.on_subscribe(0.0, WANTED)
    epidemic.on_publish(1.0, event())
    assert port.take() == [
        Deliver(WANTED.id, event(), 0),
        Note(Fact("store", event().id)),
        SetTimer("lease", 60.0),
        Broadcast(SummaryVector(make_ids(0))),
    ]


def test_an_event_is_advertised_to_a_single_neighbor_by_unicast() -> None:
    epidemic, port = make_node(1)
    epidemic.on_publish(1.0, event())
    assert take_outputs(port) == [Send(1, SummaryVector(make_ids(0)))]


def test_a_new_neighbor_gets_the_complete_summary_vector() -> None:
    epidemic, port = make_node()
    for number in range(3):
        epidemic.on_publish(0.0, event(number))
    port.take()
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    assert take_outputs(port) == [Send(5, SummaryVector(make_ids(0, 1, 2)))]
    epidemic.on_link_up(1.0, Link(5, "wire", 0.001))
    assert take_outputs(port) == [], "a second link starts no session"


def test_only_missing_events_are_requested() -> None:
    epidemic, port = make_node(1)
    receive_transfer(epidemic, 0)
    port.take()
    epidemic.on_message(1.0, 1, SummaryVector(make_ids(0, 1, 2)), "radio")
    assert take_outputs(port) == [Send(1, TransferRequest(make_ids(1, 2)))]
    epidemic.on_message(1.0, 1, SummaryVector(make_ids(1, 2)), "radio")
    assert take_outputs(port) == [], "pending events are not requested again"


def test_a_request_is_answered_with_buffered_events_and_their_remaining_lease() -> None:
    epidemic, port = make_node(1)
    epidemic.on_publish(0.0, event(0, lease_s=60.0))
    port.take()
    epidemic.on_message(20.0, 1, TransferRequest(make_ids(0, 5)), "radio")
    assert take_outputs(port) == [Send(1, Transfer(event(0, lease_s=60.0), 1, 40.0))]


def test_a_transfer_is_delivered_once_and_advertised_to_neighbors_not_known_to_hold_it() -> None:
    epidemic, port = make_node(1, 2, 3)
    epidemic.on_subscribe(0.0, WANTED)
    epidemic.on_message(0.0, 2, SummaryVector(make_ids(0)), "radio")
    port.take()
    receive_transfer(epidemic, 0, sender=1)
    assert take_outputs(port) == [Deliver(WANTED.id, event(), 1), Send(3, SummaryVector(make_ids(0)))]
    receive_transfer(epidemic, 0, sender=3)
    assert take_outputs(port) == []


def test_a_transfer_that_was_not_requested_is_accepted() -> None:
    epidemic, port = make_node()
    epidemic.on_subscribe(0.0, WANTED)
    receive_transfer(epidemic, 0, sender=9)
    assert take_outputs(port) == [Deliver(WANTED.id, event(), 1)]


def test_more_ids_than_fit_in_a_message_travel_in_more_messages() -> None:
    epidemic, port = make_node()
    for number in range(MAX_IDS + 1):
        epidemic.on_publish(0.0, event(number))
    port.take()
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    summaries = [message for message in port.take_messages() if isinstance(message, SummaryVector)]
    assert [len(message.ids) for message in summaries] == [MAX_IDS, 1]


# Failures.


def test_a_missing_event_is_requested_from_another_holder() -> None:
    epidemic, port = make_node(1, 2, ask_again_s=10.0)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(0)), "radio")
    epidemic.on_message(0.0, 2, SummaryVector(make_ids(0)), "radio")
    assert take_outputs(port) == [Send(1, TransferRequest(make_ids(0)))]
    epidemic.on_timer(10.0, "retry")
    assert take_outputs(port) == [Send(2, TransferRequest(make_ids(0)))]
    epidemic.on_timer(20.0, "retry")
    assert take_outputs(port) == [Send(1, TransferRequest(make_ids(0)))]


def test_when_a_holder_leaves_its_events_are_requested_from_another_at_once() -> None:
    epidemic, port = make_node(1, 2)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(0, 1)), "radio")
    epidemic.on_message(0.0, 2, SummaryVector(make_ids(1)), "radio")
    port.take()
    epidemic.on_link_down(1.0, Link(1, "radio", 0.001), Failure.SILENT)
    assert take_outputs(port) == [Send(2, TransferRequest(make_ids(1)))]


def test_requests_to_a_holder_that_never_answers_end() -> None:
    epidemic, port = make_node(1, ask_again_s=10.0, asks=5)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(0)), "radio")
    for attempt in range(1, 20):
        epidemic.on_timer(10.0 * attempt, "retry")
    effects = port.take()
    assert effects.count(Send(1, TransferRequest(make_ids(0)))) == 5
    assert effects.count(Note(Fact("drop", EventId(7, 0), 1, "asks_exhausted"))) == 1
    epidemic.on_message(300.0, 1, SummaryVector(make_ids(0)), "radio")
    assert take_outputs(port) == [Send(1, TransferRequest(make_ids(0)))], "advertised again, it is requested again"


def test_summary_vectors_are_repeated_for_events_that_neighbors_may_miss() -> None:
    epidemic, port = make_node(1, tell_again_s=60.0)
    for number in range(3):
        epidemic.on_publish(0.0, event(number, lease_s=600.0))
    first, second, third = [effect.token for effect in port.take() if isinstance(effect, Send)]
    assert first is not None
    assert second is not None
    assert third is not None
    epidemic.on_sent(0.1, first, Failure.UNREACHABLE)
    epidemic.on_sent(0.1, second, Failure.UNREACHABLE)
    epidemic.on_sent(0.1, third, None)
    epidemic.on_message(1.0, 1, TransferRequest(make_ids(1)), "radio")
    port.take()
    epidemic.on_timer(60.0, "repeat")
    assert take_outputs(port) == [Send(1, SummaryVector(make_ids(0)))], (
        "1 was requested, and the summary vector with 2 has arrived"
    )


def test_a_failed_summary_vector_to_a_new_neighbor_is_repeated() -> None:
    epidemic, port = make_node(tell_again_s=60.0)
    epidemic.on_publish(0.0, event(0, lease_s=600.0))
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    [token] = [effect.token for effect in port.take() if isinstance(effect, Send)]
    assert token is not None
    epidemic.on_sent(1.1, token, Failure.UNREACHABLE)
    epidemic.on_publish(2.0, event(1, lease_s=600.0))
    port.take()
    epidemic.on_timer(60.0, "repeat")
    assert take_outputs(port) == [Send(5, SummaryVector(make_ids(0, 1)))]


def test_a_full_buffer_evicts_the_oldest_event_for_good() -> None:
    epidemic, port = make_node(buffer=2)
    for number in range(3):
        epidemic.on_publish(0.0, event(number))
    assert Note(Fact("evict", EventId(7, 0), reason="buffer_full")) in port.take()
    receive_transfer(epidemic, 0)
    epidemic.on_message(0.0, 1, TransferRequest(make_ids(0, 1, 2)), "radio")
    sent = [message.event.id for message in port.take_messages() if isinstance(message, Transfer)]
    assert sent == list(make_ids(1, 2))


def test_an_event_is_evicted_when_its_lease_expires_and_not_requested_again() -> None:
    epidemic, port = make_node(1)
    receive_transfer(epidemic, 0, now=0.0, remaining_s=5.0)
    assert SetTimer("lease", 5.0) in port.take()
    epidemic.on_timer(5.0, "lease")
    assert Note(Fact("evict", EventId(7, 0), reason="lease_over")) in port.take()
    epidemic.on_message(6.0, 1, SummaryVector(make_ids(0)), "radio")
    epidemic.on_message(6.0, 1, TransferRequest(make_ids(0)), "radio")
    assert take_outputs(port) == []


def test_no_event_is_kept_longer_than_max_lease() -> None:
    epidemic, port = make_node(max_lease_s=100.0)
    epidemic.on_publish(0.0, event(0, lease_s=float("inf")))
    assert SetTimer("lease", 100.0) in port.take()


def test_stopping_cancels_all_timers() -> None:
    epidemic, port = make_node(1)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(0)), "radio")
    epidemic.on_publish(0.0, event(1))
    port.take()
    epidemic.on_stop(1.0)
    assert port.take() == [CancelTimer("retry"), CancelTimer("repeat"), CancelTimer("lease")]


# Stories.


def test_a_carrier_brings_an_event_across_a_partition() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0), (2, 3, 100.0, 110.0)], "epidemic")
    net.subscribe(3, "topic = 1")
    net.run(1)
    event = net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(98)
    assert net.list_delivered(3) == []
    net.run(10)
    assert net.list_delivered(3) == [event]
    assert [row["hops"] for row in net.rows("deliver")] == [3]


def test_an_event_whose_lease_expires_in_transit_is_not_delivered() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0)], "epidemic")
    net.subscribe(2)
    net.run(1)
    net.publish(0, lease_s=30.0)
    net.run(70)
    assert net.list_delivered(2) == []
    assert [row["time_s"] for row in net.rows("evict", reason="lease_over")] == [
        pytest.approx(31.0, abs=0.01),
        pytest.approx(31.0, abs=0.01),
    ]


def test_a_carrier_with_a_small_buffer_carries_the_newest() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0)], "epidemic", buffer=2)
    net.subscribe(2)
    net.run(1)
    events = [net.publish(0, {"n": n}) for n in range(4)]
    net.run(98)
    assert sorted(event.id for event in net.list_delivered(2)) == [event.id for event in events[2:]]


def test_an_event_reaches_all_nodes_of_a_connected_network_in_one_copy_each() -> None:
    net = Net.grid(4, 4, "epidemic")
    for node in range(16):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0)
    net.run(5)
    assert all(net.list_delivered(node) == [event] for node in range(16))
    assert net.count_sent("Transfer") == 15


def test_all_events_arrive_over_a_lossy_radio() -> None:
    radio = {"loss": 0.33, "retries": 0}
    net = Net.line(4, "epidemic", {"radio": radio}, ask_again_s=2.0, tell_again_s=5.0)
    net.subscribe(3)
    net.run(1)
    events = [net.publish(0, {"n": n}) for n in range(10)]
    net.run(200)
    assert net.count_dropped("loss") > 0
    assert sorted(event.id for event in net.list_delivered(3)) == [event.id for event in events]


def test_a_lost_summary_vector_is_repaired_by_repetition() -> None:
    net = Net.line(2, "epidemic", {"radio": {"delay_s": 0.5}}, tell_again_s=30.0)
    net.subscribe(1)
    net.run(5)
    event = net.publish(0)
    net.run(0.1)
    network = net.simulation.network
    network.medium.topology.set_cut(0, 1, cut=True)  # unnoticed by either: no link goes down
    net.run(1)
    network.medium.topology.set_cut(0, 1, cut=False)
    net.run(5)
    assert net.list_delivered(1) == []
    net.run(60)
    assert net.list_delivered(1) == [event]


def test_an_event_comes_from_another_holder_if_the_requested_one_leaves() -> None:
    """0 and 1 advertise the event to 2, which requests it from 0, and 0 leaves before it answers."""
    net = Net.contacts(
        [(0, 1, 0.0, 5.0), (0, 2, 10.0, 10.15), (1, 2, 10.01, 100.0)], "epidemic", {"radio": {"delay_s": 0.1}}
    )
    net.subscribe(2)
    net.run(1)
    event = net.publish(0)
    net.run(9.16)
    assert net.list_delivered(2) == []
    net.run(2)
    assert net.list_delivered(2) == [event]
    assert [row["peer"] for row in net.rows("receive", node=2, message="Transfer")] == [1]


def test_after_a_crash_a_node_catches_up_from_its_neighbors() -> None:
    net = Net.line(2, "epidemic")
    net.subscribe(1)
    net.run(1)
    event = net.publish(0)
    net.run(1)
    net.crash(1)
    net.run(1)
    net.restart(1)
    net.run(1)
    assert net.list_delivered(1) == [event, event], "its applications crashed with it and get the event again"


def test_requests_and_histories_are_answered_from_the_buffer() -> None:
    epidemic, port = isolate_protocol("epidemic")
    assert isinstance(epidemic, AnswersRequests)
    old, secret = (
        Event(EventId(1, 0), {"topic": 1}),
        Event(EventId(1, 1), {"topic": 1}, access=AccessPolicy("rank > 5")),
    )
    for event in (old, secret, Event(EventId(1, 2), {"topic": 2})):
        epidemic.on_message(1.0, 1, Transfer(event, 1, 50.0), "radio")
    port.take()
    request = Request(RequestId(0, 1), "topic = 1", attributes={"rank": 3})
    epidemic.on_request(2.0, request)
    # No neighbor has been there for as long as the request's patience, so events that arrive meanwhile are answers.
    assert port.take() == [AnswerRequest(request.id, old, 1), SetTimer("requests", 10.0)]
    late = Event(EventId(1, 3), {"topic": 1})
    for event in (late, Event(EventId(1, 4), {"topic": 1}, access=AccessPolicy("rank > 5"))):
        epidemic.on_message(2.5, 1, Transfer(event, 2, 10.0), "radio")
    assert [effect for effect in port.take() if isinstance(effect, AnswerRequest)] == [
        AnswerRequest(request.id, late, 2)
    ]
    epidemic.on_timer(12.0, "requests")
    # Other nodes may hold more events, so the request is never closed as complete.
    assert CloseRequest(request.id, complete=False) in port.take()
    epidemic.on_timer(12.5, "lease")
    port.take()
    epidemic.on_subscribe(13.0, Subscription(SubscriptionId(0, 1), "topic = 1", history=True, attributes={"rank": 6}))
    assert port.take() == [
        Deliver(SubscriptionId(0, 1), old, 1),
        Deliver(SubscriptionId(0, 1), secret, 1),
        CloseHistory(SubscriptionId(0, 1), complete=False),
    ]
    epidemic.on_subscribe(14.0, Subscription(SubscriptionId(0, 1), "topic = 1", history=True, attributes={"rank": 6}))
    epidemic.on_message(15.0, 2, Transfer(old, 1, 50.0), "radio")
    assert port.take() == [], "neither a renewal nor a duplicate delivers it again"
    epidemic.on_link_up(16.0, Link(1, "radio", 0.01))
    port.take()
    # A neighbor has been there for as long as the request's patience, so the request is closed at once.
    epidemic.on_request(51.0, Request(RequestId(0, 2), "true"))
    assert port.take() == [CloseRequest(RequestId(0, 2), complete=False)], "without expired events"


def test_a_durable_node_keeps_its_events_over_a_crash() -> None:
    """Without the setting the event is lost with its only holder."""
    for durable, delivered in ((True, True), (False, False)):
        net = Net.contacts([(0, 1, 50.0, 60.0)], "epidemic", durable=durable)
        net.subscribe(1)
        net.run(1)
        event = net.publish(0, lease_s=600.0)
        net.run(1)
        net.crash(0)
        net.run(1)
        net.restart(0)
        net.run(60)
        assert net.list_delivered(1) == ([event] if delivered else [])


def test_a_durable_node_delivers_no_duplicate_after_a_crash() -> None:
    net = Net.line(2, "epidemic", durable=True)
    net.subscribe(1)
    net.run(1)
    event = net.publish(0)
    net.run(1)
    net.crash(1)
    net.run(1)
    net.restart(1)
    net.run(1)
    assert net.list_delivered(1) == [event]
    assert net.count_sent("Transfer") == 1
