"""Requests and answers along the tree: the walk-through of the paper's Figure 2, replicas, parts, losses, bad input."""

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


def policy(source: NodeId, sequence: int = 0, role: str = "router", access: str | None = None) -> Event:
    return Event(
        EventId(source, sequence),
        {"role": role},
        lease_s=1000.0,
        access=None if access is None else AccessPolicy(access),
    )


def keeps(web: Web, node: NodeId, filter: str = "role = 'router'") -> None:
    web.nodes[node].on_advertise(web.now, Advertisement(AdvertisementId(node, 1), filter, stored=True))
    web.settle()


def publishes(web: Web, event: Event) -> None:
    web.nodes[event.source].on_publish(web.now, event)
    web.settle()


def asks(web: Web, node: NodeId, filter: str = "role = 'router'", number: int = 1, **attributes: int) -> RequestId:
    id = RequestId(node, number)
    web.nodes[node].on_request(web.now, Request(id, filter, attributes=dict(attributes)))
    web.settle()
    return id


def answers_to(web: Web, node: NodeId) -> list[int]:
    """The numbers of the events that requests of a node were answered with."""
    return [effect.event.id.sequence for effect in web.of(node, AnswerRequest) if isinstance(effect, AnswerRequest)]


def line(nodes: int, **settings: object) -> Web:
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
    keeps(web, pr_1)
    told = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Advertise)]
    assert told == [(pr_1, n_c), (n_c, n_b), (n_b, n_a)]
    # Step 1: a subscription. Toward n_b it is covered by that of the repository, so it ends at n_c.
    web.nodes[s_1].on_subscribe(web.now, Subscription(SubscriptionId(s_1, 1), "role = 'router'"))
    web.settle()
    told = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Subscribe)]
    assert told == [(s_1, n_c)]
    # Step 2: a policy is published and follows the subscriptions; no way leads to n_a.
    event = policy(pmt)
    publishes(web, event)
    went = [(sender, target) for sender, target, message in web.take_sent() if isinstance(message, Publish)]
    assert went == [(pmt, n_b), (n_b, n_c), (n_c, pr_1), (n_c, s_1)]
    assert web.of(s_1, Deliver) == [Deliver(SubscriptionId(s_1, 1), event, 3)]
    # Step 3: S_2 subscribes, and asks for what was before. The request gathers the nodes it passes.
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
    # Step 4: the response walks the path back, one identifier less at each broker.
    back = [
        (sender, target, message.path) for sender, target, message in sent if isinstance(message, RetrievalResponse)
    ]
    assert back == [
        (pr_1, n_c, (n_c, n_b, n_a, s_2)),
        (n_c, n_b, (n_b, n_a, s_2)),
        (n_b, n_a, (n_a, s_2)),
        (n_a, s_2, (s_2,)),
    ]
    assert web.of(s_2, Deliver) == [Deliver(subscription.id, event, 4)]
    # "every new subscriber and only that one will receive every old event": S_1 has it once, from step 2.
    assert len(web.of(s_1, Deliver)) == 1


def test_a_request_is_answered_with_what_the_asker_may_see_and_then_closed() -> None:
    web = line(3)
    keeps(web, 2)
    seen, secret = policy(0), policy(0, 1, access="rank > 5")
    for event in (seen, secret, policy(0, 2, role="switch")):
        publishes(web, event)
    low, high = asks(web, 0, number=1, rank=3), asks(web, 0, number=2, rank=6)
    assert web.of(0, AnswerRequest) == [
        AnswerRequest(low, seen, 2),
        AnswerRequest(high, seen, 2),
        AnswerRequest(high, secret, 2),
    ]
    assert web.of(0, CloseRequest) == [CloseRequest(low, complete=True), CloseRequest(high, complete=True)]


def test_a_repository_answers_its_own_application_without_a_message() -> None:
    web = line(2)
    keeps(web, 1)
    publishes(web, policy(1))
    web.take_sent()
    request = asks(web, 1)
    assert web.of(1, AnswerRequest) == [AnswerRequest(request, policy(1), 0)]
    assert web.take_sent() == []


def test_in_the_paper_a_request_without_an_advertisement_is_dropped_and_closed_at_once() -> None:
    web = line(2, no_route="drop")
    request = asks(web, 0)
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=False)]
    assert web.drops(0) == ["no_advertisement"]


def replicas(choice: str) -> Web:
    """0 is in the middle of 1 - 0 - 2 - 3; 1 and 3 keep the same."""
    web = Web(4, None, links="given", choice=choice)
    for edge in ((1, 0), (0, 2), (2, 3)):
        web.link(*edge)
    for node in (1, 3):
        keeps(web, node)
    publishes(web, policy(0))
    return web


def answerers(web: Web) -> list[NodeId]:
    return [node for node, _ in web.facts("asked")]


def test_of_two_replicas_one_is_asked_at_random() -> None:
    web = replicas("random")
    for number in range(60):
        asks(web, 0, number=number)
    assert len(answerers(web)) == 60
    assert 15 <= answerers(web).count(1) <= 45


def test_or_the_nearest() -> None:
    web = replicas("nearest")
    for number in range(10):
        asks(web, 0, number=number)
    assert answerers(web) == [1] * 10
    # When it is no more, the other is.
    web.nodes[1].on_unadvertise(web.now, Advertisement(AdvertisementId(1, 1), "role = 'router'", stored=True))
    web.settle()
    asks(web, 0, number=11)
    assert answerers(web)[-1] == 3


def test_or_the_one_whose_branch_has_carried_the_fewest_answers() -> None:
    web = replicas("least_loaded")
    for number in range(10):
        asks(web, 0, number=number)
    assert sorted(answerers(web)) == [1] * 5 + [3] * 5


def test_parts_with_different_repositories_come_together_and_the_asker_knows_it() -> None:
    web = Web(4, None, links="given")
    for node in (1, 2, 3):
        web.link(0, node)
    keeps(web, 1, "role = 'router'")
    keeps(web, 2, "role = 'switch'")
    for event in (policy(3, 0, "router"), policy(3, 1, "switch"), policy(3, 2, "other")):
        publishes(web, event)
    request = asks(web, 3, "role in ('router', 'switch')")
    assert [effect.event.id.sequence for effect in web.of(3, AnswerRequest) if isinstance(effect, AnswerRequest)] == [
        0,
        1,
    ]
    assert web.of(3, CloseRequest) == [CloseRequest(request, complete=True)]


def test_while_a_part_is_missing_the_request_is_not_complete() -> None:
    web = Web(4, None, links="given")
    for node in (1, 2, 3):
        web.link(0, node)
    keeps(web, 1, "role = 'router'")
    keeps(web, 2, "role = 'switch'")
    publishes(web, policy(3, 0, "router"))
    # The link is gone for the messages, and nobody knows it yet.
    web.links -= {(0, 2)}
    request = asks(web, 3, "role in ('router', 'switch')")
    assert web.of(3, CloseRequest) == []
    web.run(20.0)
    assert web.of(3, CloseRequest) == [CloseRequest(request, complete=False)]
    assert len(web.of(3, AnswerRequest)) == 1


def test_what_was_announced_and_lost_is_known_to_be_missing() -> None:
    web = line(2)
    keeps(web, 1)
    for number in range(3):
        publishes(web, policy(0, number))
    web.nodes[0].on_request(0.0, Request(RequestId(0, 1), "role = 'router'"))
    web.settle()
    web.effects.clear()
    web.nodes[0].on_request(0.0, Request(RequestId(0, 2), "role = 'router'"))
    second = RetrievalId(0, 2)
    for message in (
        RetrievalResponse(policy(0, 1), 1, 900.0, ask=second, path=(0,)),
        ResponseEnd(second, (0,), WHOLE, (EventId(0, 0), EventId(0, 1), EventId(0, 2))),
    ):
        web.nodes[0].on_message(0.0, 1, message, "radio")
    # What the repository itself sends is held back until the patience is over.
    web.links.clear()
    web.settle()
    web.run(20.0)
    assert web.of(0, CloseRequest) == [CloseRequest(RequestId(0, 2), complete=False)]
    assert [fact.event for _, fact in web.facts("missing")] == [EventId(0, 0), EventId(0, 2)]


def test_lost_responses_are_asked_for_again_and_only_those() -> None:
    web = line(2, retries=2, retry_s=1.0)
    keeps(web, 1)
    for number in range(3):
        publishes(web, policy(0, number))
    web.links -= {(1, 0)}
    request = asks(web, 0)
    assert web.of(0, AnswerRequest) == []
    web.links |= {(1, 0)}
    # One of them came all the same.
    web.nodes[0].on_message(0.5, 1, RetrievalResponse(policy(0, 1), 1, 900.0, ask=ASK, path=(0,)), "radio")
    web.settle()
    web.effects.clear()
    web.run(1.5)
    assert [effect.event.id.sequence for effect in web.of(0, AnswerRequest) if isinstance(effect, AnswerRequest)] == [
        0,
        2,
    ]
    assert web.of(0, CloseRequest) == [CloseRequest(request, complete=True)]


def test_what_repositories_said_before_is_not_added_to_what_they_say_when_asked_again() -> None:
    web = line(2, retries=2, retry_s=1.0)
    web.nodes[0].on_message(0.0, 1, Advertise(()), "radio")
    keeps(web, 1)
    web.links.clear()
    asks(web, 0)
    web.run(1.5)
    for attempt in (0, 1):
        web.nodes[0].on_message(1.6, 1, ResponseEnd(RetrievalId(0, 1, attempt), (0,), WHOLE // 2, ()), "radio")
    web.settle()
    assert web.of(0, CloseRequest) == []
    web.nodes[0].on_message(1.7, 1, ResponseEnd(RetrievalId(0, 1, 1), (0,), WHOLE // 2, ()), "radio")
    web.settle()
    assert web.of(0, CloseRequest) == [CloseRequest(RequestId(0, 1), complete=True)]


def test_answers_are_cached_on_their_way_and_the_repository_sends_them_no_more() -> None:
    web = line(4, cache=10)
    keeps(web, 3)
    publishes(web, policy(0))
    asks(web, 0)
    web.take_sent()
    second = asks(web, 1)
    # From node 2, where it passed by.
    assert web.of(1, AnswerRequest) == [AnswerRequest(second, policy(0), 1)]
    web.take_sent()
    third = asks(web, 0, number=9)
    sent = web.take_sent()
    assert [(sender, target) for sender, target, message in sent if isinstance(message, RetrievalResponse)] == [(1, 0)]
    assert web.of(0, CloseRequest)[-1] == CloseRequest(third, complete=True)


def test_a_repository_that_crashes_has_lost_nothing_and_forgets_at_the_end_of_a_lease() -> None:
    web = line(2)
    keeps(web, 1)
    publishes(web, policy(0))
    # The store outlives the object; another one is made over it.
    again = Web(2, None, links="given")
    again.nodes[1] = type(web.nodes[1])(1, web.nodes[1]._settings, again.ports[1], web.nodes[1].host, web.nodes[1].rng)
    again.nodes[1].on_start(1.0)
    again.link(0, 1)
    keeps(again, 1)
    asks(again, 0)
    assert [effect.event for effect in again.of(0, AnswerRequest) if isinstance(effect, AnswerRequest)] == [policy(0)]
    again.run(2000.0)
    assert [fact.event for _, fact in again.facts("evict")] == [EventId(0, 0)]
    asks(again, 0, number=2)
    assert again.of(0, CloseRequest)[-1] == CloseRequest(RequestId(0, 2), complete=True)


def test_a_renewal_does_not_ask_again_and_an_end_stops_the_asking() -> None:
    web = line(2)
    keeps(web, 1)
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
    late = RetrievalResponse(policy(9), 1, 900.0, ask=RetrievalId(0, 2), path=(0,))
    web.nodes[0].on_message(2.0, 1, late, "radio")
    web.settle()
    assert web.of(0, Deliver) == []
    assert "answer_for_nobody" in web.drops(0)


def test_a_client_that_was_away_asks_for_what_it_missed_and_only_that() -> None:
    web = Web(3, brokers=(1, 2), links="given", catch_up_s=1.0)
    web.link(1, 2)
    keeps(web, 2)
    web.link(0, 1)
    subscription = Subscription(SubscriptionId(0, 1), "role = 'router'", history=True)
    web.nodes[0].on_subscribe(0.0, subscription)
    web.settle()
    publishes(web, policy(1, 0))
    web.cut(0, 1)
    publishes(web, policy(1, 1))
    web.run(5.0)
    web.take_sent()
    web.link(0, 1)
    web.run(5.0)
    sent = web.take_sent()
    assert [(a, b, m.event.id.sequence) for a, b, m in sent if isinstance(m, RetrievalResponse)] == [
        (2, 1, 1),
        (1, 0, 1),
    ]
    assert [effect.event.id.sequence for effect in web.of(0, Deliver) if isinstance(effect, Deliver)] == [0, 1]


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
def test_a_request_that_cannot_be_honest_is_dropped_with_its_reason(asked: RetrievalRequest, reason: str) -> None:
    web = line(3)
    keeps(web, 2, "role = 'a'")
    keeps(web, 1, "role = 'b'")
    web.take_sent()
    web.nodes[1].on_message(0.0, 0, asked, "radio")
    web.settle()
    # Its patience is a second.
    web.run(2.0)
    assert web.drops(1) == [reason]
    assert web.take_sent() == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RetrievalResponse(policy(9), 1, 9.0, ask=RetrievalId(0, 77), path=(1,)), "answer_for_nobody"),
        (ResponseEnd(RetrievalId(0, 77), (1,), WHOLE, ()), "answer_for_nobody"),
        (RetrievalResponse(policy(9), 1, 9.0, ask=ASK, path=()), "path_forged"),
        (RetrievalResponse(policy(9), 1, 9.0, ask=ASK, path=(5, 1)), "path_forged"),
        (RetrievalResponse(policy(9), 1, 9.0, ask=ASK, path=(1, 8)), "path_broken"),
        (RetrievalResponse(policy(9, role="switch"), 1, 9.0, ask=ASK, path=(1,)), "answer_unasked"),
    ],
)
def test_an_answer_for_nobody_or_with_a_forged_path_is_dropped(
    answer: RetrievalResponse | ResponseEnd, reason: str
) -> None:
    web = line(3)
    keeps(web, 2)
    web.links.clear()
    asks(web, 1)
    web.nodes[1].on_message(0.0, 2, answer, "radio")
    web.settle()
    assert web.drops(1) == [reason]
    assert web.of(1, AnswerRequest) == []


@pytest.mark.parametrize("settings", [{}, {"recover_s": 1.0, "recover_lease_s": 1e6}, {"cache": 9}])
def test_nobody_makes_an_event_live_longer_than_it_was_published_for(settings: dict[str, float]) -> None:
    """Neither who passes it on, nor who answers with it."""
    web = line(3, **settings)
    keeps(web, 1)
    brief = [msgspec.structs.replace(policy(9, number), lease_s=10.0) for number in range(3)]
    web.nodes[1].on_message(web.now, 0, Publish(brief[0], 1, 1e6), "radio")
    web.nodes[1].on_request(web.now, Request(RequestId(1, 1), "role = 'router'", 1e6, elsewhere=True))
    web.nodes[1].on_message(web.now, 2, RetrievalResponse(brief[1], 1, 1e6, ask=ASK, path=(1,)), "radio")
    web.nodes[1].on_message(web.now, 2, RetrievalResponse(brief[2], 1, 1e6, ask=ASK, path=(1, 0)), "radio")
    web.settle()
    web.run(11.0)
    web.take_sent()
    asks(web, 0)
    web.nodes[1].on_message(web.now, 0, RecoveryRequest(((9, 0),)), "radio")
    web.settle()
    assert [message for _, _, message in web.take_sent() if isinstance(message, RetrievalResponse | Publish)] == []


def test_an_answer_that_comes_twice_is_handed_on_once() -> None:
    web = line(2)
    keeps(web, 1)
    web.links.clear()
    asks(web, 0)
    for _ in range(2):
        web.nodes[0].on_message(0.0, 1, RetrievalResponse(policy(9), 1, 9.0, ask=ASK, path=(0,)), "radio")
    web.settle()
    assert len(web.of(0, AnswerRequest)) == 1
    assert web.drops(0) == ["answer_repeated"]


def test_more_open_requests_than_a_node_may_have_are_refused() -> None:
    web = line(2, max_asks=2)
    keeps(web, 1)
    web.links.clear()
    for number in range(3):
        asks(web, 0, number=number)
    assert web.of(0, CloseRequest) == [CloseRequest(RequestId(0, 2), complete=False)]
    assert web.drops(0) == ["too_many_asks"]
