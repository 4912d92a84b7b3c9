"""000: the tree of brokers, and retrieval of stored events over it."""

from random import Random

import pytest

from driftcast.model import (
    AccessPolicy,
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    Failure,
    NodeId,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from driftcast.protocol import Fact, RecordingPort, Settings
from driftcast.protocol.effects import (
    Answer,
    CancelTimer,
    Close,
    Deliver,
    Note,
    Send,
    SetTimer,
)

from . import retrieval, tree
from .fake_host import FakeHost
from .rounds import Round
from .samples import event, link

S = SubscriptionId(0, 1)
ADVERTISEMENT = Advertisement(AdvertisementId(2, 1), "role = 'router'", stored=True)
FIRST_ASK = Round(1, 1)


def broker(node: NodeId, *neighbors: NodeId, host: FakeHost | None = None) -> tuple[tree.Tree, RecordingPort]:
    port = RecordingPort()
    made = tree.Tree(node, Settings(), port, host or FakeHost(), Random(1))
    for neighbor in neighbors:
        made.on_link_up(0.0, link(neighbor))
    port.take()
    return made, port


def test_a_covered_subscription_goes_no_further() -> None:
    node, port = broker(1, 0, 2)
    node.on_message(1.0, 0, tree.Subscribe("temperature > 10"), "radio")
    assert port.take() == [Send(2, tree.Subscribe("temperature > 10"))]
    node.on_message(2.0, 0, tree.Subscribe("temperature > 20"), "radio")
    assert port.take() == []


def test_a_publication_follows_subscriptions_backward() -> None:
    node, port = broker(1, 0, 2)
    node.on_message(1.0, 0, tree.Subscribe("role = 'router'"), "radio")
    port.take()
    policy = event(2, role="router")
    node.on_message(2.0, 2, tree.Publish(policy, 1, 90.0), "radio")
    assert port.take() == [Send(0, tree.Publish(policy, 2, 90.0))]


def test_a_link_that_returns_in_time_costs_no_unsubscription() -> None:
    node, port = broker(1, 0, 2)
    node.on_message(1.0, 0, tree.Subscribe("role = 'router'"), "radio")
    port.take()
    node.on_link_down(2.0, link(0), Failure.SILENT)
    assert port.take() == [SetTimer(("deferred", 0), 3.0)]
    node.on_link_up(3.0, link(0))
    assert port.take() == [CancelTimer(("deferred", 0))]


def test_a_link_that_stays_away_is_unsubscribed_after_the_wait() -> None:
    node, port = broker(1, 0, 2)
    node.on_message(1.0, 0, tree.Subscribe("role = 'router'"), "radio")
    node.on_link_down(2.0, link(0), Failure.SILENT)
    port.take()
    node.on_timer(5.0, ("deferred", 0))
    assert port.take() == [Send(2, tree.Unsubscribe("role = 'router'"))]


# Retrieval of stored events, over the tree.


def test_a_request_walks_to_the_store_and_each_answer_walks_back_along_its_path() -> None:
    asker, asker_port = broker(0, 1)
    middle, middle_port = broker(1, 0, 2)
    store, store_port = broker(2, 1)
    policies = [event(9, sequence, role="router") for sequence in (1, 2)]

    store.on_advertise(0.0, ADVERTISEMENT)
    assert store_port.take() == [Send(1, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"))]
    for policy in policies:
        store.on_publish(1.0, policy)
    assert store_port.take() == [Note(Fact("store", event=policy.id)) for policy in policies]
    middle.on_message(1.0, 2, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"), "radio")
    assert middle_port.take() == [Send(0, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"))]
    asker.on_message(1.0, 1, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"), "radio")

    request = Request(RequestId(0, 7), "role = 'router'", attributes={"rank": 3})
    asker.on_request(11.0, request)
    first = retrieval.Asked(FIRST_ASK, request.filter, {"rank": 3}, (0,), 10.0)
    assert asker_port.take() == [SetTimer(("patience", FIRST_ASK), 10.0), Send(1, first)]
    middle.on_message(11.0, 0, first, "radio")
    second = retrieval.Asked(FIRST_ASK, request.filter, {"rank": 3}, (1, 0), 10.0)
    assert middle_port.take() == [Send(2, second)]
    store.on_message(11.0, 1, second, "radio")
    answers = [retrieval.Answered(policy, 1, 90.0, ask=FIRST_ASK, path=(1, 0)) for policy in policies]
    end = retrieval.AllAnswered(FIRST_ASK, (1, 0), 2)
    assert store_port.take() == [*(Send(1, answer) for answer in answers), Send(1, end)]
    for message in (*answers, end):
        middle.on_message(11.0, 2, message, "radio")
    passed = [retrieval.Answered(policy, 2, 90.0, ask=FIRST_ASK, path=(0,)) for policy in policies]
    passed_end = retrieval.AllAnswered(FIRST_ASK, (0,), 2)
    assert middle_port.take() == [*(Send(0, answer) for answer in passed), Send(0, passed_end)]

    # The end overtakes the second answer, which then comes twice.
    for message in (passed[0], passed_end, passed[1], passed[1]):
        asker.on_message(11.0, 1, message, "radio")
    assert asker_port.take() == [
        Answer(request.id, policies[0], 2),
        Answer(request.id, policies[1], 2),
        CancelTimer(("patience", FIRST_ASK)),
        Close(request.id, complete=True),
    ]


def test_a_request_that_loses_an_answer_is_closed_when_its_patience_is_over() -> None:
    node, port = broker(0, 1)
    node.on_message(0.0, 1, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"), "radio")
    request = Request(RequestId(0, 1), "role = 'router'")
    node.on_request(1.0, request)
    node.on_message(2.0, 1, retrieval.AllAnswered(FIRST_ASK, (0,), 1), "radio")
    port.take()
    node.on_timer(11.0, ("patience", FIRST_ASK))
    assert Close(request.id, complete=False) in port.take()
    node.on_message(12.0, 1, retrieval.Answered(event(9), 1, 90.0, ask=FIRST_ASK, path=(0,)), "radio")
    assert port.take() == [], "what comes after the end is not handed on"


def test_an_answer_to_an_earlier_life_of_the_node_is_not_taken_for_one_of_this() -> None:
    host = FakeHost()
    host.incarnation = 2
    node, port = broker(0, 1, host=host)
    node.on_message(0.0, 1, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"), "radio")
    node.on_request(1.0, Request(RequestId(0, 2), "role = 'router'"))
    port.take()
    node.on_message(2.0, 1, retrieval.Answered(event(9), 1, 90.0, ask=FIRST_ASK, path=(0,)), "radio")
    assert port.take() == []
    node.on_message(2.0, 1, retrieval.Answered(event(9), 1, 90.0, ask=Round(2, 1), path=(0,)), "radio")
    assert port.take() == [Answer(RequestId(0, 2), event(9), 1)]


def test_a_request_that_no_advertisement_overlaps_is_dropped() -> None:
    node, port = broker(1, 0, 2)
    node.on_message(1.0, 0, retrieval.Asked(FIRST_ASK, "role = 'router'", {}, (0,), 10.0), "radio")
    assert port.take() == [Note(Fact("drop", reason="no_advertisement"))]
    node.on_request(2.0, Request(RequestId(1, 5), "role = 'router'"))
    assert port.take()[-1] == Close(RequestId(1, 5), complete=False)


def test_a_withdrawn_advertisement_draws_no_more_requests() -> None:
    store, store_port = broker(2, 1)
    node, port = broker(1, 0, 2)
    store.on_advertise(0.0, ADVERTISEMENT)
    store.on_unadvertise(1.0, ADVERTISEMENT)
    for message in store_port.take_messages():
        node.on_message(1.0, 2, message, "radio")
    assert port.take_messages()[-1] == tree.Unadvertise(ADVERTISEMENT.id)
    node.on_message(2.0, 0, retrieval.Asked(FIRST_ASK, "role = 'router'", {}, (0,), 10.0), "radio")
    assert port.take() == [Note(Fact("drop", reason="no_advertisement"))]


def test_a_repository_answers_its_own_application_without_a_message() -> None:
    node, port = broker(2, 1)
    node.on_advertise(0.0, ADVERTISEMENT)
    open_to_all = event(2, role="router")
    secret = Event(EventId(2, 2), {"role": "router"}, access=AccessPolicy("rank > 5"))
    node.on_publish(0.0, open_to_all)
    node.on_publish(0.0, secret)
    port.take()
    for sequence, rank, policies in ((1, 3, [open_to_all]), (2, 6, [open_to_all, secret])):
        request = Request(RequestId(2, sequence), "role = 'router'", attributes={"rank": rank})
        node.on_request(1.0, request)
        patience = ("patience", Round(1, sequence))
        assert port.take() == [
            SetTimer(patience, 10.0),
            *(Answer(request.id, policy, 0) for policy in policies),
            CancelTimer(patience),
            Close(request.id, complete=True),
        ]


def test_a_subscription_with_history_also_asks_but_not_again_when_it_is_renewed() -> None:
    node, port = broker(0, 1)
    node.on_message(0.0, 1, tree.Advertise(ADVERTISEMENT.id, "role = 'router'"), "radio")
    subscription = Subscription(S, "role = 'router'", history=True)
    node.on_subscribe(1.0, subscription)
    asked = retrieval.Asked(FIRST_ASK, "role = 'router'", {}, (0,), 10.0)
    assert port.take_messages() == [tree.Subscribe("role = 'router'"), asked]
    policy = event(9, role="router")
    node.on_message(2.0, 1, retrieval.Answered(policy, 1, 90.0, ask=FIRST_ASK, path=(0,)), "radio")
    assert port.take() == [Deliver(S, policy, 1)]
    node.on_message(2.0, 1, retrieval.AllAnswered(FIRST_ASK, (0,), 1), "radio")
    assert port.take() == [CancelTimer(("patience", FIRST_ASK))], "no application's request, so nothing to close"
    node.on_subscribe(3.0, subscription)
    assert port.take() == []


def test_stored_events_outlive_a_crash_but_not_their_lease() -> None:
    host = FakeHost()
    node, _ = broker(2, 1, host=host)
    node.on_advertise(0.0, ADVERTISEMENT)
    node.on_publish(0.0, event(2, role="router"))
    again, port = broker(2, 1, host=host)
    again.on_advertise(1.0, ADVERTISEMENT)
    port.take()
    again.on_message(40.0, 1, retrieval.Asked(Round(1, 1), "role = 'router'", {}, (1,), 10.0), "radio")
    answer, _ = port.take_messages()
    assert isinstance(answer, retrieval.Answered)
    assert answer.remaining_s == pytest.approx(60.0)
    again.on_message(100.0, 1, retrieval.Asked(Round(1, 2), "role = 'router'", {}, (1,), 10.0), "radio")
    assert port.take_messages() == [retrieval.AllAnswered(Round(1, 2), (1,), 0)]
