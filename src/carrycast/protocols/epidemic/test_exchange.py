"""Epidemic routing: long transfers, replicas, and hostile neighbors."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.protocol import AcknowledgesReplicas, Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import AcknowledgeReplica, Note, Send
from carrycast.protocols.epidemic.messages import MAX_IDS, HolderQuery, SummaryVector, Transfer, TransferRequest
from carrycast.protocols.epidemic.transfers import BATCH, MAX_QUEUED, MIN_CAPACITY, TransferQueue, TransferRequests
from carrycast.sim.testing import Net, isolate_protocol


def event(number: int) -> Event:
    return Event(EventId(7, number), {"topic": 1}, lease_s=60.0)


def make_ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(7, number) for number in numbers)


def make_node(*neighbors: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    epidemic, port = isolate_protocol("epidemic", 0, None, 1, **settings)
    for neighbor in neighbors:
        epidemic.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return epidemic, port


def receive_transfer(epidemic: Protocol, number: int, sender: int = 1) -> None:
    epidemic.on_message(0.0, sender, Transfer(event(number), 1, 60.0), "radio")


def take_requests(port: RecordingPort) -> list[tuple[EventId, ...]]:
    return [message.ids for message in port.take_messages() if isinstance(message, TransferRequest)]


# Requests.


def test_more_events_are_requested_when_half_of_the_window_has_arrived() -> None:
    epidemic, port = make_node(1, window=4)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(*range(10))), "radio")
    assert take_requests(port) == [make_ids(0, 1, 2, 3)]
    receive_transfer(epidemic, 0)
    assert take_requests(port) == []
    receive_transfer(epidemic, 1)
    assert take_requests(port) == [make_ids(4, 5)]
    receive_transfer(epidemic, 6)  # not requested
    receive_transfer(epidemic, 2)
    receive_transfer(epidemic, 3)
    assert take_requests(port) == [make_ids(7, 8)], "an event that has arrived is not requested"


def test_repeated_requests_leave_the_window() -> None:
    epidemic, port = make_node(1, window=2, ask_again_s=10.0)
    epidemic.on_message(0.0, 1, SummaryVector(make_ids(*range(4))), "radio")
    assert take_requests(port) == [make_ids(0, 1)]
    epidemic.on_timer(10.0, "retry")
    assert take_requests(port) == [make_ids(0, 1), make_ids(2, 3)]


def test_senders_without_a_link_share_one_window() -> None:
    epidemic, port = make_node(window=3)
    epidemic.on_message(0.0, 8, SummaryVector(make_ids(0, 1)), "radio")
    epidemic.on_message(0.0, 9, SummaryVector(make_ids(2, 3, 4)), "radio")
    assert take_requests(port) == [make_ids(0, 1), make_ids(2)]
    receive_transfer(epidemic, 3, sender=5)
    receive_transfer(epidemic, 0, sender=8)
    receive_transfer(epidemic, 1, sender=8)
    receive_transfer(epidemic, 2, sender=9)
    assert take_requests(port) == [make_ids(4)], "3 has arrived from another node"
    epidemic.on_message(0.0, 9, SummaryVector(make_ids(5, 6, 7, 8)), "radio")
    assert take_requests(port) == [make_ids(5, 6)]
    epidemic.on_link_up(0.0, Link(9, "radio", 0.001))
    epidemic.on_message(0.0, 9, SummaryVector(make_ids(9, 10)), "radio")
    assert take_requests(port) == [make_ids(9, 10)], "a neighbor has its own window"
    receive_transfer(epidemic, 9, sender=9)
    assert take_requests(port) == [make_ids(7, 8)]
    epidemic.on_message(0.0, 9, SummaryVector(make_ids(11, 12)), "radio")
    assert take_requests(port) == []


def test_ids_of_senders_without_a_link_are_bounded() -> None:
    epidemic, port = make_node(buffer=10, window=3)
    for first in range(0, 6 * MAX_IDS, MAX_IDS):
        epidemic.on_message(0.0, 9, SummaryVector(make_ids(*range(first, first + MAX_IDS))), "radio")
    facts = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    assert Fact("drop", peer=9, reason="offers_full", value=MAX_IDS) in facts
    assert epidemic._transfer_requests._unlinked_ids == MIN_CAPACITY  # type: ignore[attr-defined]


def test_a_neighbor_with_many_ids_does_not_displace_those_of_another() -> None:
    epidemic, port = make_node(1, 2, buffer=10)
    for first in range(0, 20 * MAX_IDS, MAX_IDS):
        advertised = tuple(EventId(666, number) for number in range(first, first + MAX_IDS))
        epidemic.on_message(0.0, 1, SummaryVector(advertised), "radio")
    notes = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    rejected = [fact.value or 0 for fact in notes if fact.reason == "offers_full"]
    assert sum(rejected) == 20 * MAX_IDS - MIN_CAPACITY
    epidemic.on_message(0.0, 2, SummaryVector(make_ids(*range(50))), "radio")
    assert take_requests(port) == [make_ids(*range(50))]
    epidemic.on_message(0.0, 2, SummaryVector(tuple(EventId(8, n) for n in range(MAX_IDS))), "radio")
    assert sum(map(len, take_requests(port))) == MAX_IDS - 50


def test_remembered_ids_stay_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.epidemic.transfers.MIN_CAPACITY", 1)
    pending = TransferRequests(100, 10)
    for neighbor in range(5):
        wanted, _ = pending.on_advertised(neighbor, [EventId(neighbor, n) for n in range(60)], linked=True)
        pending.on_requested(neighbor, wanted, 1.0, linked=True)
        assert len(pending._holders) <= 100
    # Each neighbor has its window and a share of the rest.
    assert all(len(pending._deferred[neighbor]) >= 5 for neighbor in range(5))
    pending.on_advertised(9, [EventId(9, n) for n in range(60)], linked=False)
    assert 0 < pending._unlinked_ids <= 100 - len(pending._holders)
    for neighbor in (*range(5), 9):
        pending.retry(pending.on_link_down(neighbor), 20)
    assert (pending._holders, pending._deferred, pending._pending, pending._open) == ({}, {}, {}, {})
    assert (pending._unlinked_ids, pending._unlinked) == (0, {})


# Transfers.


def make_holder(count: int) -> tuple[Protocol, RecordingPort]:
    epidemic, port = make_node(1, 2)
    for number in range(count):
        receive_transfer(epidemic, number, sender=2)
    port.take()
    return epidemic, port


def take_transfers(port: RecordingPort) -> list[Send]:
    return [one for one in port.take() if isinstance(one, Send) and isinstance(one.message, Transfer)]


def test_a_long_request_is_answered_in_batches() -> None:
    epidemic, port = make_holder(2 * BATCH + 5)
    epidemic.on_message(1.0, 1, TransferRequest(make_ids(*range(2 * BATCH + 5))), "radio")
    counts = []
    while sent := take_transfers(port):
        counts.append(len(sent))
        assert all(send.token is None for send in sent[:-1])
        if sent[-1].token is not None:
            # An event that is requested again while it is queued is sent once.
            epidemic.on_message(1.0, 1, TransferRequest(make_ids(2 * BATCH + 4)), "radio")
            epidemic.on_sent(1.0, sent[-1].token, None)
    assert counts == [BATCH, BATCH, 5]


def test_a_failed_batch_cancels_the_queue_until_the_next_request() -> None:
    epidemic, port = make_holder(BATCH + 1)
    everything = TransferRequest(make_ids(*range(BATCH + 1)))
    epidemic.on_message(1.0, 1, everything, "radio")
    token = take_transfers(port)[-1].token
    assert token is not None
    epidemic.on_sent(1.0, token, Failure.UNREACHABLE)
    assert take_transfers(port) == []
    epidemic.on_message(2.0, 1, everything, "radio")
    assert len(take_transfers(port)) == BATCH


def test_the_queue_of_a_neighbor_is_bounded() -> None:
    queue = TransferQueue()
    queue.add(1, make_ids(*range(BATCH + 1)))
    queue.add(1, make_ids(*range(10 * MAX_QUEUED)))
    assert MAX_QUEUED - 1 <= len(queue._queued[1]) <= MAX_QUEUED


def test_a_newcomer_gets_thousands_of_events() -> None:
    net = Net.contacts([(0, 1, 50.0, 100.0)], "epidemic")
    net.subscribe(1)
    net.run(1)
    events = [net.publish(0, {"n": n}, lease_s=600.0) for n in range(3000)]
    net.run(98)
    assert sorted(one.id for one in net.list_delivered(1)) == [one.id for one in events]
    assert net.count_sent("Transfer") == 3000


# Replicas.


def test_replicas_are_acknowledged_until_there_are_enough() -> None:
    epidemic, port = make_node(1, 2, 3)
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_publish(0.0, event(0))
    epidemic.on_await_replicas(0.0, event(0).id, 2)
    port.take()
    epidemic.on_message(0.1, 1, TransferRequest(make_ids(0)), "radio")
    [sent] = take_transfers(port)
    assert sent.token is not None
    epidemic.on_sent(0.2, sent.token, None)
    assert port.take() == [Send(1, HolderQuery(make_ids(0)))], (
        "an acknowledged transfer is no proof that the event is stored"
    )
    epidemic.on_message(0.3, 1, SummaryVector(make_ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 1)]
    epidemic.on_message(0.3, 1, SummaryVector(make_ids(0)), "radio")
    assert port.take() == []
    epidemic.on_message(0.4, 2, SummaryVector(make_ids(0)), "radio")
    epidemic.on_message(0.4, 3, SummaryVector(make_ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 2)]


def test_holder_queries_are_repeated() -> None:
    epidemic, port = make_node(1, 2)
    epidemic.on_publish(0.0, event(0))
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(0.0, event(0).id, 2)
    epidemic.on_message(0.3, 1, SummaryVector(make_ids(0)), "radio")
    port.take()
    epidemic.on_timer(30.0, "repeat")
    assert Send(2, HolderQuery(make_ids(0))) in port.take()


def test_a_holder_query_is_answered_with_the_held_events() -> None:
    epidemic, port = make_node(1, 2)
    receive_transfer(epidemic, 0, sender=2)
    port.take()
    epidemic.on_message(1.0, 1, HolderQuery(make_ids(0, 1)), "radio")
    assert port.take() == [Send(1, SummaryVector(make_ids(0)))]
    epidemic.on_message(1.0, 1, HolderQuery(make_ids(1)), "radio")
    assert port.take() == []
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(1.0, EventId(9, 9), 1)  # an unknown event
    epidemic.on_message(1.0, 1, SummaryVector((EventId(9, 9),)), "radio")
    assert not [effect for effect in port.take() if isinstance(effect, AcknowledgeReplica)]


def test_an_overflowed_summary_vector_is_requested_again() -> None:
    """Otherwise ids without room would be learned only at the next contact or the next repetition."""
    epidemic, port = make_node(1, buffer=10, window=MAX_IDS)
    advertised = make_ids(*range(5 * MAX_IDS))
    for first in range(0, len(advertised), MAX_IDS):
        epidemic.on_message(0.0, 1, SummaryVector(advertised[first : first + MAX_IDS]), "radio")
    arrived = 0
    repeated = False
    while not repeated:
        for wanted in take_requests(port):
            repeated |= wanted == ()
            for id in wanted:
                receive_transfer(epidemic, id.sequence, sender=1)
                arrived += 1
    assert arrived == MIN_CAPACITY, "as many ids as can be remembered"
    assert take_requests(port) == [], "the summary vector is requested once"


def test_a_request_without_ids_is_answered_with_the_complete_summary_vector() -> None:
    epidemic, port = make_node(1)
    receive_transfer(epidemic, 3, sender=5)
    receive_transfer(epidemic, 4, sender=5)
    port.take()
    epidemic.on_message(0.0, 1, TransferRequest(()), "radio")
    assert port.take_messages() == [SummaryVector(make_ids(3, 4))]
