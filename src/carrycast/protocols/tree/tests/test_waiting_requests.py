"""Requests and histories without a path to a repository: they wait for one, and end with their patience."""

from carrycast.core.model import Failure, NodeId, RequestId, Subscription, SubscriptionId
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import AnswerRequest, CloseHistory, CloseRequest
from carrycast.protocols.tree.messages import Advertise, ForwardedFilter
from carrycast.protocols.tree.tests.test_retrieval import (
    advertise_stored,
    list_answers,
    make_line,
    make_policy,
    publish,
    send_request,
)
from carrycast.protocols.tree.tests.web import Web
from carrycast.services.retrieval import RetrievalRequest
from carrycast.services.retrieval.messages import RetrievalId

ROUTER = "role = 'router'"


def subscribe(web: Web, node: NodeId, number: int = 1) -> SubscriptionId:
    id = SubscriptionId(node, number)
    web.nodes[node].on_subscribe(web.now, Subscription(id, ROUTER, history=True))
    web.settle()
    return id


def list_closed_histories(web: Web, node: NodeId) -> list[bool]:
    return [effect.complete for effect in web.list_effects(node, CloseHistory) if isinstance(effect, CloseHistory)]


def test_a_request_waits_for_a_link_and_is_then_answered() -> None:
    web = Web(2, None, links="given")
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    request = send_request(web, 0)
    web.run(9.0)
    assert web.list_effects(0, CloseRequest) == []
    web.link(0, 1)
    assert web.list_effects(0, AnswerRequest) == [AnswerRequest(request, make_policy(1), 1)]
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_a_request_without_an_answer_is_closed_after_its_patience() -> None:
    web = make_line(2)
    request = send_request(web, 0)
    web.run(9.9)
    assert web.list_effects(0, CloseRequest) == []
    web.run(0.2)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=False)]
    advertise_stored(web, 1)
    assert web.list_effects(0, AnswerRequest) == []
    assert len(web.list_effects(0, CloseRequest)) == 1


def test_a_request_of_a_client_waits_at_its_broker_for_an_advertisement() -> None:
    web = Web(4, brokers=(1, 2), links="given")
    publish(web, make_policy(3))
    web.link(0, 1)
    request = send_request(web, 0)
    web.run(3.0)
    advertise_stored(web, 3)
    publish(web, make_policy(3, 1))
    web.link(3, 2)
    web.link(1, 2)
    assert list_answers(web, 0) == [1]
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=True)]
    assert web.list_drops(1) == []


def test_a_request_waiting_at_a_broker_is_dropped_after_its_patience() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.link(0, 1)
    request = send_request(web, 0)
    web.run(11.0)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=False)]
    assert web.list_drops(1) == ["no_advertisement"]


def test_a_request_from_a_node_without_a_link_waits_for_the_link() -> None:
    web = Web(2, None, links="given")
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    asked = RetrievalRequest(RetrievalId(0, 1), ROUTER, {}, (0,), 10.0)
    web.nodes[1].on_message(0.0, 0, asked, "radio")
    web.settle()
    assert web.list_drops(1) == []
    web.link(0, 1)
    assert len([message for sender, target, message in web.take_sent() if target == 0]) > 0
    assert [fact.event for _, fact in web.list_facts("respond")] == [make_policy(1).id]


def test_a_request_lost_with_its_neighbor_is_sent_through_another() -> None:
    web = Web(3, brokers=(1, 2), links="given")
    advertise_stored(web, 2)
    publish(web, make_policy(2))
    web.link(1, 2)
    web.link(0, 1)
    # The request does not reach the broker; the client notices a moment later.
    web.links -= {(0, 1), (1, 0)}
    request = send_request(web, 0)
    assert web.list_effects(0, CloseRequest) == []
    web.cut(0, 1)
    web.link(0, 2)
    assert list_answers(web, 0) == [0]
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_a_history_is_closed_as_incomplete_in_time_and_later_as_complete() -> None:
    web = Web(2, None, links="given", history_s=10.0)
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    subscribe(web, 0)
    web.run(600.0)
    assert list_closed_histories(web, 0) == [False]
    web.link(0, 1)
    assert [event.sequence for event in web.list_delivered(0)] == [0]
    assert list_closed_histories(web, 0) == [False, True]
    web.run(600.0)
    assert list_closed_histories(web, 0) == [False, True]


def test_a_history_request_waits_at_a_broker_after_it_was_closed_as_incomplete() -> None:
    web = Web(3, brokers=(1,), links="given", history_s=10.0)
    advertise_stored(web, 2)
    publish(web, make_policy(2))
    web.link(0, 1)
    subscribe(web, 0)
    web.run(100.0)
    assert list_closed_histories(web, 0) == [False]
    web.link(1, 2)
    assert [event.sequence for event in web.list_delivered(0)] == [0]
    assert list_closed_histories(web, 0) == [False, True]


def test_the_history_of_an_ended_subscription_is_not_requested() -> None:
    web = Web(2, None, links="given")
    advertise_stored(web, 1)
    id = subscribe(web, 0)
    web.nodes[0].on_unsubscribe(1.0, id)
    web.settle()
    web.take_sent()
    web.link(0, 1)
    assert not [message for _, _, message in web.take_sent() if isinstance(message, RetrievalRequest)]


def test_frequent_advertisements_do_not_cause_frequent_requests() -> None:
    """A neighbor that advertises all the time causes one request in `history_s`, not one for each advertisement."""
    web = make_line(2, history_s=10.0)
    advertised = Advertise((ForwardedFilter(ROUTER, 1),))
    web.nodes[0].on_message(web.now, 1, advertised, "radio")
    web.settle()
    subscribe(web, 0)
    web.links.clear()
    web.run(60.0)
    assert list_closed_histories(web, 0) == [False]
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
    honest = send_request(web, 2)
    for number in range(20):
        forged = RetrievalRequest(RetrievalId(0, number), ROUTER, {}, (0,), 1000.0)
        web.nodes[1].on_message(web.now, 0, forged, "radio")
    web.settle()
    assert web.list_drops(1) == ["too_many_waiting_requests"] * 17
    advertise_stored(web, 3)
    publish(web, make_policy(3))
    web.link(3, 1)
    assert list_answers(web, 2) == [0]
    assert web.list_effects(2, CloseRequest) == [CloseRequest(honest, complete=True)]


def test_a_canceled_request_makes_room_for_others() -> None:
    web = Web(2, None, links="given", max_asks=2)
    for number in range(50):
        request = send_request(web, 0, number=number)
        web.nodes[0].on_request_canceled(web.now, request)
    web.settle()
    assert web.list_drops(0) == []
    assert web.list_effects(0, CloseRequest) == []
    assert not any(isinstance(key, tuple) for key in web.timers[0])


def test_a_stop_leaves_no_timer() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.link(0, 1)
    send_request(web, 0)
    for node in (0, 1):
        web.nodes[node].on_stop(web.now)
    web.settle()
    assert web.timers == [{}, {}]


def test_the_number_of_attempts_may_exceed_a_byte() -> None:
    """The attempt number has one byte; a client whose link flaps sends more requests than that."""
    web = Web(2, brokers=(1,), links="given")
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    subscribe(web, 0)
    link = Link(1, "radio", 0.01)
    for _ in range(300):
        web.nodes[0].on_link_up(web.now, link)
        web.settle()
        web.nodes[0].on_link_down(web.now, link, Failure.SILENT)
    web.link(0, 1)
    assert [event.sequence for event in web.list_delivered(0)] == [0]
    assert list_closed_histories(web, 0) == [True]


def test_a_request_id_and_a_subscription_id_with_the_same_number_are_two() -> None:
    web = Web(2, None, links="given")
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    request = send_request(web, 0, number=1)
    subscription = subscribe(web, 0, number=1)
    assert request == RequestId(*subscription)
    web.link(0, 1)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=True)]
    assert list_closed_histories(web, 0) == [True]
