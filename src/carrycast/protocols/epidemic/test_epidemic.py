"""Epidemic: the exchange alone, and stories of contacts that come and go."""

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


def ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(7, number) for number in numbers)


def linked(*neighbors: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    """An epidemic node with links that have just come up."""
    epidemic, port = isolate_protocol("epidemic", 0, None, 1, **settings)
    for neighbor in neighbors:
        epidemic.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return epidemic, port


def said(port: RecordingPort) -> list[Effect]:
    """What went to neighbors and applications; timers and notes aside, and whatever the tokens of sends are."""
    effects = [effect for effect in port.take() if isinstance(effect, Send | Broadcast | Deliver)]
    return [replace(effect, token=None) if isinstance(effect, Send) else effect for effect in effects]


def give(epidemic: Protocol, number: int, now: float = 0.0, sender: int = 1, remaining_s: float = 60.0) -> None:
    epidemic.on_message(now, sender, Transfer(event(number), 1, remaining_s), "radio")


# The exchange.


def test_an_own_event_is_delivered_kept_and_told_to_all_neighbors_at_once() -> None:
    epidemic, port = linked(1, 2)
    epidemic.on_subscribe(0.0, WANTED)
    epidemic.on_publish(1.0, event())
    assert port.take() == [
        Deliver(WANTED.id, event(), 0),
        Note(Fact("store", event().id)),
        SetTimer("lease", 60.0),
        Broadcast(SummaryVector(ids(0))),
    ]


def test_to_a_single_neighbor_it_is_told_by_unicast() -> None:
    epidemic, port = linked(1)
    epidemic.on_publish(1.0, event())
    assert said(port) == [Send(1, SummaryVector(ids(0)))]


def test_a_new_neighbor_is_told_everything() -> None:
    epidemic, port = linked()
    for number in range(3):
        epidemic.on_publish(0.0, event(number))
    port.take()
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    assert said(port) == [Send(5, SummaryVector(ids(0, 1, 2)))]
    epidemic.on_link_up(1.0, Link(5, "wire", 0.001))
    assert said(port) == [], "a second link to it is no news"


def test_what_is_lacking_is_asked_for_and_only_that() -> None:
    epidemic, port = linked(1)
    give(epidemic, 0)
    port.take()
    epidemic.on_message(1.0, 1, SummaryVector(ids(0, 1, 2)), "radio")
    assert said(port) == [Send(1, TransferRequest(ids(1, 2)))]
    epidemic.on_message(1.0, 1, SummaryVector(ids(1, 2)), "radio")
    assert said(port) == [], "what is asked for already is not asked for again"


def test_an_ask_is_answered_with_what_is_kept_and_the_rest_of_its_lease() -> None:
    epidemic, port = linked(1)
    epidemic.on_publish(0.0, event(0, lease_s=60.0))
    port.take()
    epidemic.on_message(20.0, 1, TransferRequest(ids(0, 5)), "radio")
    assert said(port) == [Send(1, Transfer(event(0, lease_s=60.0), 1, 40.0))]


def test_a_transfer_is_delivered_once_and_offered_to_those_not_known_to_hold_it() -> None:
    epidemic, port = linked(1, 2, 3)
    epidemic.on_subscribe(0.0, WANTED)
    epidemic.on_message(0.0, 2, SummaryVector(ids(0)), "radio")
    port.take()
    give(epidemic, 0, sender=1)
    assert said(port) == [Deliver(WANTED.id, event(), 1), Send(3, SummaryVector(ids(0)))]
    give(epidemic, 0, sender=3)
    assert said(port) == []


def test_a_transfer_of_which_nobody_was_asked_is_taken_all_the_same() -> None:
    epidemic, port = linked()
    epidemic.on_subscribe(0.0, WANTED)
    give(epidemic, 0, sender=9)
    assert said(port) == [Deliver(WANTED.id, event(), 1)]


def test_more_ids_than_fit_in_a_message_travel_in_more_messages() -> None:
    epidemic, port = linked()
    for number in range(MAX_IDS + 1):
        epidemic.on_publish(0.0, event(number))
    port.take()
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    told = [message for message in port.take_messages() if isinstance(message, SummaryVector)]
    assert [len(message.ids) for message in told] == [MAX_IDS, 1]


# What goes wrong.


def test_an_event_that_does_not_come_is_asked_for_again_of_another_holder() -> None:
    epidemic, port = linked(1, 2, ask_again_s=10.0)
    epidemic.on_message(0.0, 1, SummaryVector(ids(0)), "radio")
    epidemic.on_message(0.0, 2, SummaryVector(ids(0)), "radio")
    assert said(port) == [Send(1, TransferRequest(ids(0)))]
    epidemic.on_timer(10.0, "retry")
    assert said(port) == [Send(2, TransferRequest(ids(0)))]
    epidemic.on_timer(20.0, "retry")
    assert said(port) == [Send(1, TransferRequest(ids(0)))]


def test_when_the_one_who_was_asked_leaves_another_is_asked_at_once() -> None:
    epidemic, port = linked(1, 2)
    epidemic.on_message(0.0, 1, SummaryVector(ids(0, 1)), "radio")
    epidemic.on_message(0.0, 2, SummaryVector(ids(1)), "radio")
    port.take()
    epidemic.on_link_down(1.0, Link(1, "radio", 0.001), Failure.SILENT)
    assert said(port) == [Send(2, TransferRequest(ids(1)))]


def test_a_holder_that_never_answers_is_not_asked_for_ever() -> None:
    epidemic, port = linked(1, ask_again_s=10.0, asks=5)
    epidemic.on_message(0.0, 1, SummaryVector(ids(0)), "radio")
    for turn in range(1, 20):
        epidemic.on_timer(10.0 * turn, "retry")
    effects = port.take()
    assert effects.count(Send(1, TransferRequest(ids(0)))) == 5
    assert effects.count(Note(Fact("drop", EventId(7, 0), 1, "asks_exhausted"))) == 1
    epidemic.on_message(300.0, 1, SummaryVector(ids(0)), "radio")
    assert said(port) == [Send(1, TransferRequest(ids(0)))], "told of it anew, it asks anew"


def test_neighbors_are_told_again_of_what_they_are_not_known_to_hold() -> None:
    epidemic, port = linked(1, tell_again_s=60.0)
    for number in range(3):
        epidemic.on_publish(0.0, event(number, lease_s=600.0))
    first, second, third = [effect.token for effect in port.take() if isinstance(effect, Send)]
    assert first is not None
    assert second is not None
    assert third is not None
    epidemic.on_sent(0.1, first, Failure.UNREACHABLE)
    epidemic.on_sent(0.1, second, Failure.UNREACHABLE)
    epidemic.on_sent(0.1, third, None)
    epidemic.on_message(1.0, 1, TransferRequest(ids(1)), "radio")
    port.take()
    epidemic.on_timer(60.0, "repeat")
    assert said(port) == [Send(1, SummaryVector(ids(0)))], "1 was asked for, of 2 the neighbor has heard"


def test_a_new_neighbor_that_was_not_reached_is_told_everything_again() -> None:
    epidemic, port = linked(tell_again_s=60.0)
    epidemic.on_publish(0.0, event(0, lease_s=600.0))
    epidemic.on_link_up(1.0, Link(5, "radio", 0.001))
    [token] = [effect.token for effect in port.take() if isinstance(effect, Send)]
    assert token is not None
    epidemic.on_sent(1.1, token, Failure.UNREACHABLE)
    epidemic.on_publish(2.0, event(1, lease_s=600.0))
    port.take()
    epidemic.on_timer(60.0, "repeat")
    assert said(port) == [Send(5, SummaryVector(ids(0, 1)))]


def test_a_full_buffer_lets_the_oldest_go_and_does_not_take_it_back() -> None:
    epidemic, port = linked(buffer=2)
    for number in range(3):
        epidemic.on_publish(0.0, event(number))
    assert Note(Fact("evict", EventId(7, 0), reason="buffer_full")) in port.take()
    give(epidemic, 0)
    epidemic.on_message(0.0, 1, TransferRequest(ids(0, 1, 2)), "radio")
    sent = [message.event.id for message in port.take_messages() if isinstance(message, Transfer)]
    assert sent == list(ids(1, 2))


def test_an_event_is_let_go_at_the_end_of_its_lease_and_not_taken_again() -> None:
    epidemic, port = linked(1)
    give(epidemic, 0, now=0.0, remaining_s=5.0)
    assert SetTimer("lease", 5.0) in port.take()
    epidemic.on_timer(5.0, "lease")
    assert Note(Fact("evict", EventId(7, 0), reason="lease_over")) in port.take()
    epidemic.on_message(6.0, 1, SummaryVector(ids(0)), "radio")
    epidemic.on_message(6.0, 1, TransferRequest(ids(0)), "radio")
    assert said(port) == []


def test_no_event_is_kept_longer_than_the_node_allows() -> None:
    epidemic, port = linked(max_lease_s=100.0)
    epidemic.on_publish(0.0, event(0, lease_s=float("inf")))
    assert SetTimer("lease", 100.0) in port.take()


def test_a_stop_disarms_every_timer() -> None:
    epidemic, port = linked(1)
    epidemic.on_message(0.0, 1, SummaryVector(ids(0)), "radio")
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
    assert net.delivered(3) == []
    net.run(10)
    assert net.delivered(3) == [event]
    assert [row["hops"] for row in net.rows("deliver")] == [3]


def test_an_event_whose_lease_ended_on_the_way_does_not_arrive() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0)], "epidemic")
    net.subscribe(2)
    net.run(1)
    net.publish(0, lease_s=30.0)
    net.run(70)
    assert net.delivered(2) == []
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
    assert sorted(event.id for event in net.delivered(2)) == [event.id for event in events[2:]]


def test_an_event_reaches_everybody_of_a_connected_network_and_each_gets_one_copy() -> None:
    net = Net.grid(4, 4, "epidemic")
    for node in range(16):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0)
    net.run(5)
    assert all(net.delivered(node) == [event] for node in range(16))
    assert net.sent("Transfer") == 15


def test_on_a_radio_that_loses_a_third_everything_arrives_in_the_end() -> None:
    radio = {"loss": 0.33, "retries": 0}
    net = Net.line(4, "epidemic", {"radio": radio}, ask_again_s=2.0, tell_again_s=5.0)
    net.subscribe(3)
    net.run(1)
    events = [net.publish(0, {"n": n}) for n in range(10)]
    net.run(200)
    assert net.dropped("loss") > 0
    assert sorted(event.id for event in net.delivered(3)) == [event.id for event in events]


def test_a_lost_summary_is_repaired_by_telling_again() -> None:
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
    assert net.delivered(1) == []
    net.run(60)
    assert net.delivered(1) == [event]


def test_with_the_asked_neighbor_gone_the_event_comes_from_another() -> None:
    """2 hears of the event from 0 and from 1, asks 0, and 0 leaves before it answers."""
    net = Net.contacts(
        [(0, 1, 0.0, 5.0), (0, 2, 10.0, 10.15), (1, 2, 10.01, 100.0)], "epidemic", {"radio": {"delay_s": 0.1}}
    )
    net.subscribe(2)
    net.run(1)
    event = net.publish(0)
    net.run(9.16)
    assert net.delivered(2) == []
    net.run(2)
    assert net.delivered(2) == [event]
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
    assert net.delivered(1) == [event, event], "its applications crashed with it and get the event again"


def test_a_node_answers_from_what_it_carries_and_a_subscription_may_begin_with_it() -> None:
    epidemic, port = isolate_protocol("epidemic")
    assert isinstance(epidemic, AnswersRequests)
    old, secret = (
        Event(EventId(1, 0), {"topic": 1}),
        Event(EventId(1, 1), {"topic": 1}, access=AccessPolicy("rank > 5")),
    )
    for event in (old, secret, Event(EventId(1, 2), {"topic": 2})):
        epidemic.on_message(1.0, 1, Transfer(event, 1, 50.0), "radio")
    port.take()
    asked = Request(RequestId(0, 1), "topic = 1", attributes={"rank": 3})
    epidemic.on_request(2.0, asked)
    # There has been no neighbor yet for as long as the requester waits: what comes meanwhile belongs to the answer.
    assert port.take() == [AnswerRequest(asked.id, old, 1), SetTimer("requests", 10.0)]
    late = Event(EventId(1, 3), {"topic": 1})
    for event in (late, Event(EventId(1, 4), {"topic": 1}, access=AccessPolicy("rank > 5"))):
        epidemic.on_message(2.5, 1, Transfer(event, 2, 10.0), "radio")
    assert [effect for effect in port.take() if isinstance(effect, AnswerRequest)] == [AnswerRequest(asked.id, late, 2)]
    epidemic.on_timer(12.0, "requests")
    # What others carry nobody knows, so it is never said to be all.
    assert CloseRequest(asked.id, complete=False) in port.take()
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
    assert port.take() == [], "neither a renewal nor another copy brings it again"
    epidemic.on_link_up(16.0, Link(1, "radio", 0.01))
    port.take()
    # A neighbor for as long as the requester waits: they have exchanged, and the request is closed at once.
    epidemic.on_request(51.0, Request(RequestId(0, 2), "true"))
    assert port.take() == [CloseRequest(RequestId(0, 2), complete=False)], "and nothing past its lease"


def test_a_durable_node_that_crashes_alone_still_brings_what_it_held() -> None:
    """Without the setting the event dies with its only holder."""
    for durable, brought in ((True, True), (False, False)):
        net = Net.contacts([(0, 1, 50.0, 60.0)], "epidemic", durable=durable)
        net.subscribe(1)
        net.run(1)
        event = net.publish(0, lease_s=600.0)
        net.run(1)
        net.crash(0)
        net.run(1)
        net.restart(0)
        net.run(60)
        assert net.delivered(1) == ([event] if brought else [])


def test_a_durable_node_does_not_take_again_what_it_has_met() -> None:
    net = Net.line(2, "epidemic", durable=True)
    net.subscribe(1)
    net.run(1)
    event = net.publish(0)
    net.run(1)
    net.crash(1)
    net.run(1)
    net.restart(1)
    net.run(1)
    assert net.delivered(1) == [event]
    assert net.sent("Transfer") == 1
