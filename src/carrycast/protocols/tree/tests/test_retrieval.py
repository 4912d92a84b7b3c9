"""Retrieval along the tree: the example of the paper's Figure 2, replicas, split requests, losses, bad input."""

import msgspec
import pytest

from carrycast.core.model import (
    AccessPolicy,
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    NodeId,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol.effects import AnswerRequest, CloseRequest, Deliver
from carrycast.protocols.tree.messages import Advertise, Publish, RecoveryRequest, Subscribe
from carrycast.protocols.tree.tests.web import Web
from carrycast.services.retrieval import ResponseEnd, RetrievalRequest, RetrievalResponse
from carrycast.services.retrieval.messages import MAX_PATH, WHOLE, RetrievalId

ASK = RetrievalId(0, 1)


def make_policy(source: NodeId, sequence: int = 0, role: str = "router", access: str | None = None) -> Event:
    return Event(
        EventId(source, sequence),
        {"role": role},
        lease_s=1000.0,
        access=None if access is None else AccessPolicy(access),
    )


def advertise_stored(web: Web, node: NodeId, filter: str = "role = 'router'") -> None:
    web.nodes[node].on_advertise(web.now, Advertisement(AdvertisementId(node, 1), filter, stored=True))
    web.settle()


def publish(web: Web, event: Event) -> None:
    web.nodes[event.source].on_publish(web.now, event)
    web.settle()


def send_request(
    web: Web, node: NodeId, filter: str = "role = 'router'", number: int = 1, **attributes: int
) -> RequestId:
    id = RequestId(node, number)
    web.nodes[node].on_request(web.now, Request(id, filter, attributes=dict(attributes)))
    web.settle()
    return id


def list_answers(web: Web, node: NodeId) -> list[int]:
    """Return the numbers of the events that answered the requests of a node."""
    return [
        effect.event.id.sequence
        for effect in web.list_effects(node, AnswerRequest)
        if isinstance(effect, AnswerRequest)
    ]


def make_line(nodes: int, **settings: object) -> Web:
    web = Web(nodes, None, links="given", **settings)
    for node in range(nodes - 1):
        web.link(node, node + 1)
    return web


def test_figure_2_of_the_paper_step_by_step() -> None:
    n_a, n_b, n_c, s_2, pr_1, pmt, s_1 = range(7)
    web = Web(7, brokers=(n_a, n_b, n_c), links="given")
    for a, b in ((n_a, n_b), (n_b, n_c), (s_2, n_a), (pr_1, n_c), (pmt, n_b), (s_1, n_c)):
        web.link(a, b)
    web.take_sent()
    # The repository advertises its roles, and subscribes to them; both travel to all brokers.
    advertise_stored(web, pr_1)
    forwarded = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Advertise)]
    assert forwarded == [(pr_1, n_c), (n_c, n_b), (n_b, n_a)]
    # Step 1: a subscription. Toward n_b it is covered by that of the repository, so it ends at n_c.
    web.nodes[s_1].on_subscribe(web.now, Subscription(SubscriptionId(s_1, 1), "role = 'router'"))
    web.settle()
    forwarded = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Subscribe)]
    assert forwarded == [(s_1, n_c)]
    # Step 2: a policy is published and follows the subscriptions; no path leads to n_a.
    event = make_policy(pmt)
    publish(web, event)
    published = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Publish)]
    assert published == [(pmt, n_b), (n_b, n_c), (n_c, pr_1), (n_c, s_1)]
    assert web.list_effects(s_1, Deliver) == [Deliver(SubscriptionId(s_1, 1), event, 3)]
    # Step 3: S_2 subscribes and requests earlier events. The request collects the nodes of its path.
    subscription = Subscription(SubscriptionId(s_2, 1), "role = 'router'", history=True)
    web.nodes[s_2].on_subscribe(web.now, subscription)
    web.settle()
    sent = web.take_sent()
    paths = [
        (sender, target, message.path) for sender, target, message in sent if isinstance(message, RetrievalRequest)
    ]
    assert paths == [
        (s_2, n_a, (s_2,)),
        (n_a, n_b, (n_a, s_2)),
        (n_b, n_c, (n_b, n_a, s_2)),
        (n_c, pr_1, (n_c, n_b, n_a, s_2)),
    ]
    # Step 4: the response travels the path back; each broker removes its identifier.
    back = [
        (sender, target, message.path) for sender, target, message in sent if isinstance(message, RetrievalResponse)
    ]
    assert back == [
        (pr_1, n_c, (n_c, n_b, n_a, s_2)),
        (n_c, n_b, (n_b, n_a, s_2)),
        (n_b, n_a, (n_a, s_2)),
        (n_a, s_2, (s_2,)),
    ]
    assert web.list_effects(s_2, Deliver) == [Deliver(subscription.id, event, 4)]
    # "every new subscriber and only that one will receive every old event": S_1 has it once, from step 2.
    assert len(web.list_effects(s_1, Deliver)) == 1


def test_a_request_is_answered_with_accessible_events_and_closed() -> None:
    web = make_line(3)
    advertise_stored(web, 2)
    seen, secret = make_policy(0), make_policy(0, 1, access="rank > 5")
    for event in (seen, secret, make_policy(0, 2, role="switch")):
        publish(web, event)
    low, high = send_request(web, 0, number=1, rank=3), send_request(web, 0, number=2, rank=6)
    assert web.list_effects(0, AnswerRequest) == [
        AnswerRequest(low, seen, 2),
        AnswerRequest(high, seen, 2),
        AnswerRequest(high, secret, 2),
    ]
    assert web.list_effects(0, CloseRequest) == [CloseRequest(low, complete=True), CloseRequest(high, complete=True)]


def test_a_repository_answers_its_own_application_without_a_message() -> None:
    web = make_line(2)
    advertise_stored(web, 1)
    publish(web, make_policy(1))
    web.take_sent()
    request = send_request(web, 1)
    assert web.list_effects(1, AnswerRequest) == [AnswerRequest(request, make_policy(1), 0)]
    assert web.take_sent() == []


def test_with_no_route_drop_a_request_without_an_advertisement_is_closed_at_once() -> None:
    web = make_line(2, no_route="drop")
    request = send_request(web, 0)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=False)]
    assert web.list_drops(0) == ["no_advertisement"]


def make_replicas(choice: str) -> Web:
    """Make the line 1 - 0 - 2 - 3, in which 1 and 3 store the same events."""
    web = Web(4, None, links="given", choice=choice)
    for edge in ((1, 0), (0, 2), (2, 3)):
        web.link(*edge)
    for node in (1, 3):
        advertise_stored(web, node)
    publish(web, make_policy(0))
    return web


def list_answerers(web: Web) -> list[NodeId]:
    return [node for node, _ in web.list_facts("asked")]


def test_a_random_replica_is_queried() -> None:
    web = make_replicas("random")
    for number in range(60):
        send_request(web, 0, number=number)
    assert len(list_answerers(web)) == 60
    assert 15 <= list_answerers(web).count(1) <= 45


def test_the_nearest_replica_is_queried() -> None:
    web = make_replicas("nearest")
    for number in range(10):
        send_request(web, 0, number=number)
    assert list_answerers(web) == [1] * 10
    # When the nearest replica withdraws its advertisement, the other is queried.
    web.nodes[1].on_unadvertise(web.now, Advertisement(AdvertisementId(1, 1), "role = 'router'", stored=True))
    web.settle()
    send_request(web, 0, number=11)
    assert list_answerers(web)[-1] == 3


def test_the_least_loaded_replica_is_queried() -> None:
    web = make_replicas("least_loaded")
    for number in range(10):
        send_request(web, 0, number=number)
    assert sorted(list_answerers(web)) == [1] * 5 + [3] * 5


def test_a_request_split_over_repositories_is_complete_with_all_parts() -> None:
    web = Web(4, None, links="given")
    for node in (1, 2, 3):
        web.link(0, node)
    advertise_stored(web, 1, "role = 'router'")
    advertise_stored(web, 2, "role = 'switch'")
    for event in (make_policy(3, 0, "router"), make_policy(3, 1, "switch"), make_policy(3, 2, "other")):
        publish(web, event)
    request = send_request(web, 3, "role in ('router', 'switch')")
    assert [
        effect.event.id.sequence for effect in web.list_effects(3, AnswerRequest) if isinstance(effect, AnswerRequest)
    ] == [
        0,
        1,
    ]
    assert web.list_effects(3, CloseRequest) == [CloseRequest(request, complete=True)]


def test_a_request_with_a_missing_part_is_not_complete() -> None:
    web = Web(4, None, links="given")
    for node in (1, 2, 3):
        web.link(0, node)
    advertise_stored(web, 1, "role = 'router'")
    advertise_stored(web, 2, "role = 'switch'")
    publish(web, make_policy(3, 0, "router"))
    # The link loses messages, and no node has noticed yet.
    web.links -= {(0, 2)}
    request = send_request(web, 3, "role in ('router', 'switch')")
    assert web.list_effects(3, CloseRequest) == []
    web.run(20.0)
    assert web.list_effects(3, CloseRequest) == [CloseRequest(request, complete=False)]
    assert len(web.list_effects(3, AnswerRequest)) == 1


def test_lost_responses_are_reported_as_missing() -> None:
    web = make_line(2)
    advertise_stored(web, 1)
    for number in range(3):
        publish(web, make_policy(0, number))
    web.nodes[0].on_request(0.0, Request(RequestId(0, 1), "role = 'router'"))
    web.settle()
    web.effects.clear()
    web.nodes[0].on_request(0.0, Request(RequestId(0, 2), "role = 'router'"))
    second = RetrievalId(0, 2)
    for message in (
        RetrievalResponse(make_policy(0, 1), 1, 900.0, ask=second, path=(0,)),
        ResponseEnd(second, (0,), WHOLE, (EventId(0, 0), EventId(0, 1), EventId(0, 2))),
    ):
        web.nodes[0].on_message(0.0, 1, message, "radio")
    # The repository's own answers are lost.
    web.links.clear()
    web.settle()
    web.run(20.0)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(RequestId(0, 2), complete=False)]
    assert [fact.event for _, fact in web.list_facts("missing")] == [EventId(0, 0), EventId(0, 2)]


def test_only_lost_responses_are_requested_again() -> None:
    web = make_line(2, retries=2, retry_s=1.0)
    advertise_stored(web, 1)
    for number in range(3):
        publish(web, make_policy(0, number))
    web.links -= {(1, 0)}
    request = send_request(web, 0)
    assert web.list_effects(0, AnswerRequest) == []
    web.links |= {(1, 0)}
    # One of them arrives nevertheless.
    web.nodes[0].on_message(0.5, 1, RetrievalResponse(make_policy(0, 1), 1, 900.0, ask=ASK, path=(0,)), "radio")
    web.settle()
    web.effects.clear()
    web.run(1.5)
    assert [
        effect.event.id.sequence for effect in web.list_effects(0, AnswerRequest) if isinstance(effect, AnswerRequest)
    ] == [
        0,
        2,
    ]
    assert web.list_effects(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_credit_of_an_earlier_attempt_is_not_added_to_a_later_one() -> None:
    web = make_line(2, retries=2, retry_s=1.0)
    web.nodes[0].on_message(0.0, 1, Advertise(()), "radio")
    advertise_stored(web, 1)
    web.links.clear()
    send_request(web, 0)
    web.run(1.5)
    for attempt in (0, 1):
        web.nodes[0].on_message(1.6, 1, ResponseEnd(RetrievalId(0, 1, attempt), (0,), WHOLE // 2, ()), "radio")
    web.settle()
    assert web.list_effects(0, CloseRequest) == []
    web.nodes[0].on_message(1.7, 1, ResponseEnd(RetrievalId(0, 1, 1), (0,), WHOLE // 2, ()), "radio")
    web.settle()
    assert web.list_effects(0, CloseRequest) == [CloseRequest(RequestId(0, 1), complete=True)]


def test_answers_are_cached_on_their_path() -> None:
    web = make_line(4, cache=10)
    advertise_stored(web, 3)
    publish(web, make_policy(0))
    send_request(web, 0)
    web.take_sent()
    second = send_request(web, 1)
    # From node 2, which has cached it.
    assert web.list_effects(1, AnswerRequest) == [AnswerRequest(second, make_policy(0), 1)]
    web.take_sent()
    third = send_request(web, 0, number=9)
    sent = web.take_sent()
    assert [(sender, target) for sender, target, message in sent if isinstance(message, RetrievalResponse)] == [(1, 0)]
    assert web.list_effects(0, CloseRequest)[-1] == CloseRequest(third, complete=True)


def test_a_repository_that_crashes_keeps_events_until_their_lease_expires() -> None:
    web = make_line(2)
    advertise_stored(web, 1)
    publish(web, make_policy(0))
    # The durable store survives; a new protocol object uses it.
    again = Web(2, None, links="given")
    again.nodes[1] = type(web.nodes[1])(1, web.nodes[1]._settings, again.ports[1], web.nodes[1].host, web.nodes[1].rng)
    again.nodes[1].on_start(1.0)
    again.link(0, 1)
    advertise_stored(again, 1)
    send_request(again, 0)
    assert [effect.event for effect in again.list_effects(0, AnswerRequest) if isinstance(effect, AnswerRequest)] == [
        make_policy(0)
    ]
    again.run(2000.0)
    assert [fact.event for _, fact in again.list_facts("evict")] == [EventId(0, 0)]
    send_request(again, 0, number=2)
    assert again.list_effects(0, CloseRequest)[-1] == CloseRequest(RequestId(0, 2), complete=True)


def test_a_renewed_subscription_sends_no_request_and_an_ended_one_ignores_answers() -> None:
    web = make_line(2)
    advertise_stored(web, 1)
    subscription = Subscription(SubscriptionId(0, 1), "role = 'router'", history=True)
    web.nodes[0].on_subscribe(0.0, subscription)
    web.settle()
    web.take_sent()
    web.nodes[0].on_subscribe(1.0, subscription)
    web.settle()
    assert web.take_sent() == []
    web.links.clear()
    web.nodes[0].on_subscribe(1.0, Subscription(SubscriptionId(0, 2), "role = 'router'", history=True))
    web.nodes[0].on_unsubscribe(1.0, SubscriptionId(0, 2))
    web.settle()
    late = RetrievalResponse(make_policy(9), 1, 900.0, ask=RetrievalId(0, 2), path=(0,))
    web.nodes[0].on_message(2.0, 1, late, "radio")
    web.settle()
    assert web.list_effects(0, Deliver) == []
    assert "answer_for_nobody" in web.list_drops(0)


def test_a_client_that_was_disconnected_requests_only_missed_events() -> None:
    web = Web(3, brokers=(1, 2), links="given", catch_up_s=1.0)
    web.link(1, 2)
    advertise_stored(web, 2)
    web.link(0, 1)
    subscription = Subscription(SubscriptionId(0, 1), "role = 'router'", history=True)
    web.nodes[0].on_subscribe(0.0, subscription)
    web.settle()
    publish(web, make_policy(1, 0))
    web.cut(0, 1)
    publish(web, make_policy(1, 1))
    web.run(5.0)
    web.take_sent()
    web.link(0, 1)
    web.run(5.0)
    sent = web.take_sent()
    assert [(a, b, m.event.id.sequence) for a, b, m in sent if isinstance(m, RetrievalResponse)] == [
        (2, 1, 1),
        (1, 0, 1),
    ]
    assert [effect.event.id.sequence for effect in web.list_effects(0, Deliver) if isinstance(effect, Deliver)] == [
        0,
        1,
    ]


# Bad input.


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (RetrievalRequest(ASK, "true", {}, (), 1.0), "path_forged"),
        (RetrievalRequest(ASK, "true", {}, (7,), 1.0), "path_forged"),
        (RetrievalRequest(ASK, "true", {}, (0, 1, 5), 1.0), "path_loops"),
        (RetrievalRequest(ASK, "true", {}, (0, 5, 0), 1.0), "path_loops"),
        (RetrievalRequest(ASK, "true", {}, (0, *range(100, 99 + MAX_PATH)), 1.0), "path_too_long"),
        (RetrievalRequest(ASK, "role =", {}, (0,), 1.0), "filter_unreadable"),
        (RetrievalRequest(ASK, "role = 'nobody'", {}, (0,), 1.0), "no_advertisement"),
        (RetrievalRequest(ASK, "role in ('a', 'b')", {}, (0,), 1.0, credit=1), "request_split_too_often"),
    ],
)
def test_an_invalid_request_is_dropped_with_a_reason(asked: RetrievalRequest, reason: str) -> None:
    web = make_line(3)
    advertise_stored(web, 2, "role = 'a'")
    advertise_stored(web, 1, "role = 'b'")
    web.take_sent()
    web.nodes[1].on_message(0.0, 0, asked, "radio")
    web.settle()
    # The request has a patience of one second.
    web.run(2.0)
    assert web.list_drops(1) == [reason]
    assert web.take_sent() == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RetrievalResponse(make_policy(9), 1, 9.0, ask=RetrievalId(0, 77), path=(1,)), "answer_for_nobody"),
        (ResponseEnd(RetrievalId(0, 77), (1,), WHOLE, ()), "answer_for_nobody"),
        (RetrievalResponse(make_policy(9), 1, 9.0, ask=ASK, path=()), "path_forged"),
        (RetrievalResponse(make_policy(9), 1, 9.0, ask=ASK, path=(5, 1)), "path_forged"),
        (RetrievalResponse(make_policy(9), 1, 9.0, ask=ASK, path=(1, 8)), "path_broken"),
        (RetrievalResponse(make_policy(9, role="switch"), 1, 9.0, ask=ASK, path=(1,)), "answer_unasked"),
    ],
)
def test_an_invalid_answer_is_dropped_with_a_reason(answer: RetrievalResponse | ResponseEnd, reason: str) -> None:
    web = make_line(3)
    advertise_stored(web, 2)
    web.links.clear()
    send_request(web, 1)
    web.nodes[1].on_message(0.0, 2, answer, "radio")
    web.settle()
    assert web.list_drops(1) == [reason]
    assert web.list_effects(1, AnswerRequest) == []


@pytest.mark.parametrize("settings", [{}, {"recover_s": 1.0, "recover_lease_s": 1e6}, {"cache": 9}])
def test_no_node_extends_the_lease_of_an_event(settings: dict[str, float]) -> None:
    """Neither by forwarding it nor by answering with it."""
    web = make_line(3, **settings)
    advertise_stored(web, 1)
    brief = [msgspec.structs.replace(make_policy(9, number), lease_s=10.0) for number in range(3)]
    web.nodes[1].on_message(web.now, 0, Publish(brief[0], 1, 1e6), "radio")
    web.nodes[1].on_request(web.now, Request(RequestId(1, 1), "role = 'router'", 1e6, elsewhere=True))
    web.nodes[1].on_message(web.now, 2, RetrievalResponse(brief[1], 1, 1e6, ask=ASK, path=(1,)), "radio")
    web.nodes[1].on_message(web.now, 2, RetrievalResponse(brief[2], 1, 1e6, ask=ASK, path=(1, 0)), "radio")
    web.settle()
    web.run(11.0)
    web.take_sent()
    send_request(web, 0)
    web.nodes[1].on_message(web.now, 0, RecoveryRequest(((9, 0),)), "radio")
    web.settle()
    assert [message for _, _, message in web.take_sent() if isinstance(message, RetrievalResponse | Publish)] == []


def test_a_duplicate_answer_is_dropped() -> None:
    web = make_line(2)
    advertise_stored(web, 1)
    web.links.clear()
    send_request(web, 0)
    for _ in range(2):
        web.nodes[0].on_message(0.0, 1, RetrievalResponse(make_policy(9), 1, 9.0, ask=ASK, path=(0,)), "radio")
    web.settle()
    assert len(web.list_effects(0, AnswerRequest)) == 1
    assert web.list_drops(0) == ["answer_repeated"]


def test_open_requests_are_bounded() -> None:
    web = make_line(2, max_asks=2)
    advertise_stored(web, 1)
    web.links.clear()
    for number in range(3):
        send_request(web, 0, number=number)
    assert web.list_effects(0, CloseRequest) == [CloseRequest(RequestId(0, 2), complete=False)]
    assert web.list_drops(0) == ["too_many_asks"]
