"""Direct delivery: hand-overs one by one, and stories of small networks."""

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.parts.exchange_messages import CopyOffer, CopyRequest, CopyTransfer
from carrycast.core.parts.subscription_exchange import MAX_UNKNOWN_SENDERS, SubscriptionUpdate, split_filters
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import CancelTimer, Note, Send, SetTimer
from carrycast.core.wire import Message
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)


def said(port: RecordingPort) -> list[tuple[int, Message]]:
    return [(effect.target, effect.message) for effect in port.take() if isinstance(effect, Send)]


def tokens(port: RecordingPort) -> list[int]:
    return [effect.token for effect in port.take() if isinstance(effect, Send) and effect.token is not None]


def linked(*wanting: int, **settings: float) -> tuple[Protocol, RecordingPort]:
    """A publisher with neighbors 1 and 2, of whom some want topic 1."""
    direct, port = isolate_protocol("direct", 7, None, 1, **settings)
    for neighbor in (1, 2):
        direct.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        direct.on_message(0.0, neighbor, SubscriptionUpdate(("topic = 1",) if neighbor in wanting else ()), "radio")
    port.take()
    return direct, port


def test_neighbors_that_meet_tell_each_other_what_they_want() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_subscribe(0.0, Subscription(SubscriptionId(7, 0), "topic = 1"))
    direct.on_link_up(1.0, Link(1, "radio", 0.001))
    assert said(port) == [(1, SubscriptionUpdate(("topic = 1",), answer=True))]
    direct.on_message(1.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert said(port) == [], "both have spoken at once"
    direct.on_subscribe(2.0, Subscription(SubscriptionId(7, 1), "topic = 2"))
    assert said(port) == [(1, SubscriptionUpdate(("topic = 1", "topic = 2")))]
    direct.on_unsubscribe(3.0, SubscriptionId(7, 0))
    assert said(port) == [(1, SubscriptionUpdate(("topic = 2",)))]


def test_who_asks_before_it_was_noticed_here_is_told_once() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_message(0.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert said(port) == [(1, SubscriptionUpdate(()))]
    direct.on_link_up(1.0, Link(1, "radio", 0.001))
    assert said(port) == []
    direct.on_message(5.0, 1, SubscriptionUpdate((), answer=True), "radio")
    assert said(port) == [(1, SubscriptionUpdate(()))], "it has forgotten what it was told"


def test_an_event_goes_to_those_who_want_it_and_only_when_they_ask() -> None:
    direct, port = linked(1)
    direct.on_publish(1.0, EVENT)
    assert said(port) == [(1, CopyOffer((EVENT.id,)))]
    direct.on_message(2.0, 1, CopyRequest((EVENT.id,)), "radio")
    assert said(port) == [(1, CopyTransfer(EVENT, 1, 59.0, 0))], "for itself alone"
    direct.on_message(2.0, 2, CopyRequest((EVENT.id,)), "radio")
    assert said(port) == [], "2 does not want it"


def test_who_gets_an_event_delivers_it_once_and_does_not_carry_it() -> None:
    direct, port = isolate_protocol("direct", node=1)
    direct.on_subscribe(0.0, Subscription(SubscriptionId(1, 0), "topic = 1"))
    direct.on_link_up(0.0, Link(7, "radio", 0.001))
    port.take()
    direct.on_message(1.0, 7, CopyOffer((EVENT.id,)), "radio")
    assert said(port) == [(7, CopyRequest((EVENT.id,)))]
    for _ in range(2):
        direct.on_message(1.0, 7, CopyTransfer(EVENT, 1, 59.0, 0), "radio")
    assert len([effect for effect in port.take() if type(effect).__name__ == "Deliver"]) == 1
    direct.on_message(2.0, 7, CopyOffer((EVENT.id,)), "radio")
    assert said(port) == [(7, CopyRequest(()))], "an offer is answered even if nothing is asked for"


def test_a_hand_over_that_failed_is_offered_again_later() -> None:
    direct, port = linked(1, again_s=10.0)
    direct.on_publish(1.0, EVENT)
    port.take()
    direct.on_message(1.0, 1, CopyRequest((EVENT.id,)), "radio")
    [token] = tokens(port)
    direct.on_sent(2.0, token, Failure.UNREACHABLE)
    assert SetTimer("again", 10.0) in port.take()
    direct.on_timer(12.0, "again")
    assert said(port) == [(1, CopyOffer((EVENT.id,)))]


def test_an_offer_or_an_introduction_that_failed_is_made_again_later() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_publish(0.0, EVENT)
    direct.on_link_up(0.0, Link(1, "radio", 0.001))
    [told] = tokens(port)
    direct.on_message(0.0, 1, SubscriptionUpdate(("",)), "radio")
    [offered] = tokens(port)
    direct.on_sent(1.0, told, Failure.UNREACHABLE)
    direct.on_sent(1.0, offered, Failure.QUEUE_FULL)
    port.take()
    direct.on_timer(11.0, "again")
    assert said(port) == [(1, SubscriptionUpdate(())), (1, CopyOffer((EVENT.id,)))]


def test_what_does_not_come_is_asked_of_another_who_offers_it() -> None:
    direct, port = isolate_protocol("direct", node=3, again_s=10.0)
    for neighbor in (1, 2):
        direct.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        direct.on_message(0.0, neighbor, CopyOffer((EVENT.id,)), "radio")
    assert [one for one in said(port) if isinstance(one[1], CopyRequest)] == [
        (1, CopyRequest((EVENT.id,))),
        (2, CopyRequest(())),
    ]
    direct.on_timer(10.0, "again")
    assert said(port) == [(2, CopyRequest((EVENT.id,)))]
    direct.on_link_down(11.0, Link(2, "radio", 0.001), Failure.SILENT)
    direct.on_message(12.0, 1, CopyOffer((EVENT.id,)), "radio")
    assert said(port) == [(1, CopyRequest((EVENT.id,)))], "nobody was left to wait for"


def test_words_that_are_no_filters_are_dropped() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic =",)), "radio")
    assert Note(Fact("drop", peer=1, reason="wants_unreadable")) in port.take()


def test_of_strangers_only_so_many_are_remembered() -> None:
    direct, port = isolate_protocol("direct", node=7)
    for stranger in range(100, 101 + MAX_UNKNOWN_SENDERS):
        direct.on_message(0.0, stranger, SubscriptionUpdate(("",)), "radio")
    assert Note(Fact("drop", peer=100, reason="too_many_strangers")) in port.take()


def test_many_filters_travel_in_several_messages() -> None:
    assert list(split_filters(())) == [()]
    long = tuple(f"name = '{number}{'x' * 4000}'" for number in range(9))
    assert [len(part) for part in split_filters(long)] == [4, 4, 1]


def test_filters_of_a_further_message_are_wanted_besides_those_of_the_first() -> None:
    direct, port = isolate_protocol("direct", node=7)
    direct.on_link_up(0.0, Link(1, "radio", 0.001))
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic = 1",)), "radio")
    direct.on_message(0.0, 1, SubscriptionUpdate(("topic = 2",), instead=False), "radio")
    port.take()
    other, third = (Event(EventId(7, number), {"topic": number + 1}) for number in (1, 2))
    for event in (EVENT, other, third):
        direct.on_publish(0.0, event)
    assert said(port) == [(1, CopyOffer((EVENT.id,))), (1, CopyOffer((other.id,)))]
    direct.on_message(0.0, 1, CopyRequest((EVENT.id, other.id)), "radio")
    assert [message.event for _, message in said(port) if isinstance(message, CopyTransfer)] == [EVENT, other]
    # Another first message stands in the place of both.
    direct.on_message(1.0, 1, SubscriptionUpdate(("topic = 3",)), "radio")
    assert said(port) == [(1, CopyOffer((third.id,)))]


def test_leases_end_and_full_buffers_let_the_oldest_go() -> None:
    direct, port = linked(1, buffer=1)
    direct.on_publish(0.0, EVENT)
    direct.on_publish(0.0, Event(EventId(7, 1), {"topic": 1}, lease_s=5.0))
    assert Note(Fact("evict", EVENT.id, reason="buffer_full")) in port.take()
    direct.on_timer(5.0, "lease")
    assert Note(Fact("evict", EventId(7, 1), reason="lease_over")) in port.take()
    direct.on_message(6.0, 1, CopyRequest((EVENT.id, EventId(7, 1))), "radio")
    assert said(port) == []
    direct.on_stop(7.0)
    assert port.take() == [CancelTimer("lease"), CancelTimer("again"), CancelTimer("silent")]


def test_a_subscription_with_history_begins_with_what_is_carried() -> None:
    direct, port = linked()
    direct.on_publish(0.0, EVENT)
    port.take()
    direct.on_subscribe(1.0, Subscription(SubscriptionId(7, 0), "topic = 1", history=True))
    assert len([effect for effect in port.take() if type(effect).__name__ == "Deliver"]) == 1


def test_only_the_publisher_serves_and_only_whom_it_meets() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0), (0, 3, 100.0, 110.0)], "direct")
    for node in (1, 2, 3):
        net.subscribe(node, "topic = 1")
    net.run(1)
    event = net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(150)
    assert [net.delivered(node) for node in (1, 2, 3)] == [[event], [], [event]]
    assert {row["hops"] for row in net.rows("deliver")} == {1}
    assert net.sent("CopyTransfer") == 2


def test_on_a_radio_that_loses_a_third_everything_arrives_in_the_end() -> None:
    net = Net.line(2, "direct", {"radio": {"loss": 0.33, "retries": 0}}, again_s=1.0)
    net.subscribe(1)
    net.run(1)
    events = [net.publish(0, {"n": n}) for n in range(10)]
    net.run(100)
    assert sorted(event.id for event in net.delivered(1)) == [event.id for event in events]
