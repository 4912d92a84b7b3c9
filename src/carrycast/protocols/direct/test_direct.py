"""Direct delivery: its handlers one by one, and stories of small networks."""

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.parts.exchange_messages import CopyOffer, CopyRequest, CopyTransfer
from carrycast.core.parts.subscription_exchange import MAX_UNKNOWN_SENDERS, SubscriptionUpdate, split_filters
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import CancelTimer, Note, Send, SetTimer
from carrycast.core.wire import Message
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)


def take_sends(port: RecordingPort) -> list[tuple[int, Message]]:
    return [(effect.target, effect.message) for effect in port.take() if isinstance(effect, Send)]


def take_tokens(port: RecordingPort) -> list[int]:
    return [effect.token for effect in port.take() if isinstance(effect, Send) and effect.token is not None]


def make_publisher(*interested: int, **settings: float) -> tuple[Protocol, RecordingPort]:
    """Make a publisher with neighbors 1 and 2, of which some subscribe to topic 1."""
    direct, port = isolate_protocol("direct", 7, None, 1, **settings)
    for neighbor in (1, 2):
        direct.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        direct.on_message(0.0, neighbor, SubscriptionUpdate(("topic = 1",) if neighbor in interested else ()), "radio")
    port.take()
    return direct, port


def test_new_neighbors_exchange_their_subscriptions() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_subscribe(0.0, Subscription(SubscriptionId(7, 0), "topic = 1"))
    direct.on_link_up(1.0, Link(1, "radio", 0.001))
    assert take_sends(port) == [(1, SubscriptionUpdate(("topic = 1",), answer=True))]
    direct.on_message(1.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert take_sends(port) == [], "both have sent their update"
    direct.on_subscribe(2.0, Subscription(SubscriptionId(7, 1), "topic = 2"))
    assert take_sends(port) == [(1, SubscriptionUpdate(("topic = 1", "topic = 2")))]
    direct.on_unsubscribe(3.0, SubscriptionId(7, 0))
    assert take_sends(port) == [(1, SubscriptionUpdate(("topic = 2",)))]


def test_a_subscription_update_before_the_link_is_answered_once() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_message(0.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert take_sends(port) == [(1, SubscriptionUpdate(()))]
    direct.on_link_up(1.0, Link(1, "radio", 0.001))
    assert take_sends(port) == []
    direct.on_message(5.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert take_sends(port) == [(1, SubscriptionUpdate(()))], "it requests the update again"


def test_an_event_goes_to_interested_neighbors_that_request_it() -> None:
    direct, port = make_publisher(1)
    direct.on_publish(1.0, EVENT)
    assert take_sends(port) == [(1, CopyOffer((EVENT.id,)))]
    direct.on_message(2.0, 1, CopyRequest((EVENT.id,)), "radio")
    assert take_sends(port) == [(1, CopyTransfer(EVENT, 1, 59.0, 0))], "no copy to carry"
    direct.on_message(2.0, 2, CopyRequest((EVENT.id,)), "radio")
    assert take_sends(port) == [], "2 is not interested"


def test_a_receiver_delivers_an_event_once_and_does_not_carry_it() -> None:
    direct, port = isolate_protocol("direct", node=1)
    direct.on_subscribe(0.0, Subscription(SubscriptionId(1, 0), "topic = 1"))
    direct.on_link_up(0.0, Link(7, "radio", 0.001))
    port.take()
    direct.on_message(1.0, 7, CopyOffer((EVENT.id,)), "radio")
    assert take_sends(port) == [(7, CopyRequest((EVENT.id,)))]
    for _ in range(2):
        direct.on_message(1.0, 7, CopyTransfer(EVENT, 1, 59.0, 0), "radio")
    assert len([effect for effect in port.take() if type(effect).__name__ == "Deliver"]) == 1
    direct.on_message(2.0, 7, CopyOffer((EVENT.id,)), "radio")
    assert take_sends(port) == [(7, CopyRequest(()))], "an offer is answered even if nothing is requested"


def test_a_failed_transfer_is_offered_again_later() -> None:
    direct, port = make_publisher(1, again_s=10.0)
    direct.on_publish(1.0, EVENT)
    port.take()
    direct.on_message(1.0, 1, CopyRequest((EVENT.id,)), "radio")
    [token] = take_tokens(port)
    direct.on_sent(2.0, token, Failure.UNREACHABLE)
    assert SetTimer("again", 10.0) in port.take()
    direct.on_timer(12.0, "again")
    assert take_sends(port) == [(1, CopyOffer((EVENT.id,)))]


def test_a_failed_offer_or_subscription_update_is_sent_again_later() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_publish(0.0, EVENT)
    direct.on_link_up(0.0, Link(1, "radio", 0.001))
    [update] = take_tokens(port)
    direct.on_message(0.0, 1, SubscriptionUpdate(("",)), "radio")
    [offer] = take_tokens(port)
    direct.on_sent(1.0, update, Failure.UNREACHABLE)
    direct.on_sent(1.0, offer, Failure.QUEUE_FULL)
    port.take()
    direct.on_timer(11.0, "again")
    assert take_sends(port) == [(1, SubscriptionUpdate(())), (1, CopyOffer((EVENT.id,)))]


def test_a_missing_event_is_requested_from_another_neighbor() -> None:
    direct, port = isolate_protocol("direct", node=3, again_s=10.0)
    for neighbor in (1, 2):
        direct.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        direct.on_message(0.0, neighbor, CopyOffer((EVENT.id,)), "radio")
    assert [one for one in take_sends(port) if isinstance(one[1], CopyRequest)] == [
        (1, CopyRequest((EVENT.id,))),
        (2, CopyRequest(())),
    ]
    direct.on_timer(10.0, "again")
    assert take_sends(port) == [(2, CopyRequest((EVENT.id,)))]
    direct.on_link_down(11.0, Link(2, "radio", 0.001), Failure.SILENT)
    direct.on_message(12.0, 1, CopyOffer((EVENT.id,)), "radio")
    assert take_sends(port) == [(1, CopyRequest((EVENT.id,)))], "no request was pending"


def test_malformed_filters_are_dropped_with_a_reason() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic =",)), "radio")
    assert Note(Fact("drop", peer=1, reason="wants_unreadable")) in port.take()


def test_remembered_senders_without_a_link_are_bounded() -> None:
    direct, port = isolate_protocol("direct", node=7)
    for stranger in range(100, 101 + MAX_UNKNOWN_SENDERS):
        direct.on_message(0.0, stranger, SubscriptionUpdate(("",)), "radio")
    assert Note(Fact("drop", peer=100, reason="too_many_strangers")) in port.take()


def test_many_filters_travel_in_several_messages() -> None:
    assert list(split_filters(())) == [()]
    long = tuple(f"name = '{number}{'x' * 4000}'" for number in range(9))
    assert [len(part) for part in split_filters(long)] == [4, 4, 1]


def test_filters_of_a_further_message_are_added_to_those_of_the_first() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_link_up(0.0, Link(1, "radio", 0.001))
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic = 1",)), "radio")
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic = 2",), instead=False), "radio")
    port.take()
    other, third = (Event(EventId(7, number), {"topic": number + 1}) for number in (1, 2))
    for event in (EVENT, other, third):
        direct.on_publish(0.0, event)
    assert take_sends(port) == [(1, CopyOffer((EVENT.id,))), (1, CopyOffer((other.id,)))]
    direct.on_message(0.0, 1, CopyRequest((EVENT.id, other.id)), "radio")
    assert [message.event for _, message in take_sends(port) if isinstance(message, CopyTransfer)] == [EVENT, other]
    # Another first message replaces both.
    direct.on_message(1.0, 1, SubscriptionUpdate(("topic = 3",)), "radio")
    assert take_sends(port) == [(1, CopyOffer((third.id,)))]


def test_expired_events_and_the_oldest_of_a_full_buffer_are_evicted() -> None:
    direct, port = make_publisher(1, buffer=1)
    direct.on_publish(0.0, EVENT)
    direct.on_publish(0.0, Event(EventId(7, 1), {"topic": 1}, lease_s=5.0))
    assert Note(Fact("evict", EVENT.id, reason="buffer_full")) in port.take()
    direct.on_timer(5.0, "lease")
    assert Note(Fact("evict", EventId(7, 1), reason="lease_over")) in port.take()
    direct.on_message(6.0, 1, CopyRequest((EVENT.id, EventId(7, 1))), "radio")
    assert take_sends(port) == []
    direct.on_stop(7.0)
    assert port.take() == [CancelTimer("lease"), CancelTimer("again"), CancelTimer("silent")]


def test_a_subscription_with_history_begins_with_carried_events() -> None:
    direct, port = make_publisher()
    direct.on_publish(0.0, EVENT)
    port.take()
    direct.on_subscribe(1.0, Subscription(SubscriptionId(7, 0), "topic = 1", history=True))
    assert len([effect for effect in port.take() if type(effect).__name__ == "Deliver"]) == 1


def test_only_the_publisher_delivers_to_nodes_that_it_meets() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0), (0, 3, 100.0, 110.0)], "direct")
    for node in (1, 2, 3):
        net.subscribe(node, "topic = 1")
    net.run(1)
    event = net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(150)
    assert [net.list_delivered(node) for node in (1, 2, 3)] == [[event], [], [event]]
    assert {row["hops"] for row in net.rows("deliver")} == {1}
    assert net.count_sent("CopyTransfer") == 2


def test_all_events_arrive_over_a_lossy_radio() -> None:
    net = Net.line(2, "direct", {"radio": {"loss": 0.33, "retries": 0}}, again_s=1.0)
    net.subscribe(1)
    net.run(1)
    events = [net.publish(0, {"n": n}) for n in range(10)]
    net.run(100)
    assert sorted(event.id for event in net.list_delivered(1)) == [event.id for event in events]
