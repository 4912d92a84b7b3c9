"""Requests and histories that come before anybody can answer: they wait for a way, and end with their patience."""

from carrycast.core.model import Failure, NodeId, RequestId, Subscription, SubscriptionId
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import AnswerRequest, CloseHistory, CloseRequest
from carrycast.protocols.tree.messages import Advertise, ForwardedFilter
from carrycast.protocols.tree.tests.test_retrieval import answers_to, asks, keeps, line, policy, publishes
from carrycast.protocols.tree.tests.web import Web
from carrycast.services.retrieval import RetrievalRequest
from carrycast.services.retrieval.messages import RetrievalId

ROUTER = "role = 'router'"


def subscribes(web: Web, node: NodeId, number: int = 1) -> SubscriptionId:
    id = SubscriptionId(node, number)
    web.nodes[node].on_subscribe(web.now, Subscription(id, ROUTER, history=True))
    web.settle()
    return id


def ends(web: Web, node: NodeId) -> list[bool]:
    return [effect.complete for effect in web.of(node, CloseHistory) if isinstance(effect, CloseHistory)]


def test_a_request_waits_for_the_link_and_is_answered_as_soon_as_it_is_there() -> None:
    web = Web(2, None, links="given")
    keeps(web, 1)
    publishes(web, policy(1))
    request = asks(web, 0)
    web.run(9.0)
    assert web.of(0, CloseRequest) == []
    web.link(0, 1)
    assert web.of(0, AnswerRequest) == [AnswerRequest(request, policy(1), 1)]
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_nobody_ever_answers_and_the_request_ends_with_its_patience_as_not_complete() -> None:
    web = line(2)
    request = asks(web, 0)
    web.run(9.9)
    assert web.of(0, CloseRequest) == []
    web.run(0.2)
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=False)]
    keeps(web, 1)
    assert web.of(0, AnswerRequest) == []
    assert len(web.of(0, CloseRequest)) == 1


def test_a_request_of_a_client_waits_at_its_broker_for_an_advertisement() -> None:
    web = Web(4, brokers=(1, 2), links="given")
    publishes(web, policy(3))
    web.link(0, 1)
    request = asks(web, 0)
    web.run(3.0)
    keeps(web, 3)
    publishes(web, policy(3, 1))
    web.link(3, 2)
    web.link(1, 2)
    assert answers_to(web, 0) == [1]
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=True)]
    assert web.drops(1) == []


def test_what_waits_at_a_broker_ends_with_its_patience_and_is_dropped_by_name() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.link(0, 1)
    request = asks(web, 0)
    web.run(11.0)
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=False)]
    assert web.drops(1) == ["no_advertisement"]


def test_a_request_that_comes_before_its_sender_is_known_waits_for_the_way_back() -> None:
    web = Web(2, None, links="given")
    keeps(web, 1)
    publishes(web, policy(1))
    asked = RetrievalRequest(RetrievalId(0, 1), ROUTER, {}, (0,), 10.0)
    web.nodes[1].on_message(0.0, 0, asked, "radio")
    web.settle()
    assert web.drops(1) == []
    web.link(0, 1)
    assert len([message for sender, target, message in web.take_sent() if target == 0]) > 0
    assert [fact.event for _, fact in web.facts("respond")] == [policy(1).id]


def test_a_request_that_was_lost_with_its_neighbor_is_asked_again_through_another() -> None:
    web = Web(3, brokers=(1, 2), links="given")
    keeps(web, 2)
    publishes(web, policy(2))
    web.link(1, 2)
    web.link(0, 1)
    # The broker hears the request no more; the client learns so a moment later.
    web.links -= {(0, 1), (1, 0)}
    request = asks(web, 0)
    assert web.of(0, CloseRequest) == []
    web.cut(0, 1)
    web.link(0, 2)
    assert answers_to(web, 0) == [0]
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_a_history_is_told_as_not_complete_in_time_and_as_complete_when_it_is() -> None:
    web = Web(2, None, links="given", history_s=10.0)
    keeps(web, 1)
    publishes(web, policy(1))
    subscribes(web, 0)
    web.run(600.0)
    assert ends(web, 0) == [False]
    web.link(0, 1)
    assert [event.sequence for event in web.delivered(0)] == [0]
    assert ends(web, 0) == [False, True]
    web.run(600.0)
    assert ends(web, 0) == [False, True]


def test_a_history_of_a_client_waits_at_a_broker_for_longer_than_it_takes_to_say_so() -> None:
    web = Web(3, brokers=(1,), links="given", history_s=10.0)
    keeps(web, 2)
    publishes(web, policy(2))
    web.link(0, 1)
    subscribes(web, 0)
    web.run(100.0)
    assert ends(web, 0) == [False]
    web.link(1, 2)
    assert [event.sequence for event in web.delivered(0)] == [0]
    assert ends(web, 0) == [False, True]


def test_a_history_that_has_ended_is_asked_for_no_more() -> None:
    web = Web(2, None, links="given")
    keeps(web, 1)
    id = subscribes(web, 0)
    web.nodes[0].on_unsubscribe(1.0, id)
    web.settle()
    web.take_sent()
    web.link(0, 1)
    assert not [message for _, _, message in web.take_sent() if isinstance(message, RetrievalRequest)]


def test_advertisements_do_not_make_a_node_ask_more_often_than_it_would_wait() -> None:
    """A neighbor that advertises all the time draws one request in `history_s`, not one for each advertisement."""
    web = line(2, history_s=10.0)
    advertised = Advertise((ForwardedFilter(ROUTER, 1),))
    web.nodes[0].on_message(web.now, 1, advertised, "radio")
    web.settle()
    subscribes(web, 0)
    web.links.clear()
    web.run(60.0)
    assert ends(web, 0) == [False]
    web.take_sent()
    for _ in range(100):
        web.run(0.5)
        web.nodes[0].on_message(web.now, 1, advertised, "radio")
        web.settle()
    asked = [message for _, _, message in web.take_sent() if isinstance(message, RetrievalRequest)]
    assert 4 <= len(asked) <= 7


def test_the_neighbor_with_the_most_waiting_requests_makes_room() -> None:
    web = Web(4, brokers=(1,), links="given", max_asks=4)
    for client in (0, 2):
        web.link(client, 1)
    honest = asks(web, 2)
    for number in range(20):
        forged = RetrievalRequest(RetrievalId(0, number), ROUTER, {}, (0,), 1000.0)
        web.nodes[1].on_message(web.now, 0, forged, "radio")
    web.settle()
    assert web.drops(1) == ["too_many_waiting_requests"] * 17
    keeps(web, 3)
    publishes(web, policy(3))
    web.link(3, 1)
    assert answers_to(web, 2) == [0]
    assert web.of(2, CloseRequest) == [CloseRequest(honest, complete=True)]


def test_a_request_that_nobody_waits_for_makes_room_for_others() -> None:
    web = Web(2, None, links="given", max_asks=2)
    for number in range(50):
        request = asks(web, 0, number=number)
        web.nodes[0].on_request_canceled(web.now, request)
    web.settle()
    assert web.drops(0) == []
    assert web.of(0, CloseRequest) == []
    assert not any(isinstance(key, tuple) for key in web.timers[0])


def test_a_stop_leaves_no_timer() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.link(0, 1)
    asks(web, 0)
    for node in (0, 1):
        web.nodes[node].on_stop(web.now)
    web.settle()
    assert web.timers == [{}, {}]


def test_attempts_may_be_very_many() -> None:
    """An attempt has a byte; a client whose link comes and goes, and carries nothing, asks more often than that."""
    web = Web(2, brokers=(1,), links="given")
    keeps(web, 1)
    publishes(web, policy(1))
    subscribes(web, 0)
    link = Link(1, "radio", 0.01)
    for _ in range(300):
        web.nodes[0].on_link_up(web.now, link)
        web.settle()
        web.nodes[0].on_link_down(web.now, link, Failure.SILENT)
    web.link(0, 1)
    assert [event.sequence for event in web.delivered(0)] == [0]
    assert ends(web, 0) == [True]


def test_a_request_id_and_a_subscription_id_with_the_same_number_are_two() -> None:
    web = Web(2, None, links="given")
    keeps(web, 1)
    publishes(web, policy(1))
    request = asks(web, 0, number=1)
    subscription = subscribes(web, 0, number=1)
    assert request == RequestId(*subscription)
    web.link(0, 1)
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=True)]
    assert ends(web, 0) == [True]
