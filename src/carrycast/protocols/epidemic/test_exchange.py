"""Epidemic: exchanges that are long, counted or hostile."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.protocol import AcknowledgesReplicas, Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import AcknowledgeReplica, Note, Send
from carrycast.protocols.epidemic.messages import MAX_IDS, HolderQuery, SummaryVector, Transfer, TransferRequest
from carrycast.protocols.epidemic.transfers import BATCH, MAX_QUEUED, MIN_CAPACITY, TransferQueue, TransferRequests
from carrycast.sim.testing import Net, isolate_protocol


def event(number: int) -> Event:
    return Event(EventId(7, number), {"topic": 1}, lease_s=60.0)


def ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(7, number) for number in numbers)


def linked(*neighbors: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    epidemic, port = isolate_protocol("epidemic", 0, None, 1, **settings)
    for neighbor in neighbors:
        epidemic.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return epidemic, port


def give(epidemic: Protocol, number: int, sender: int = 1) -> None:
    epidemic.on_message(0.0, sender, Transfer(event(number), 1, 60.0), "radio")


def requests(port: RecordingPort) -> list[tuple[EventId, ...]]:
    return [message.ids for message in port.take_messages() if isinstance(message, TransferRequest)]


# Asking.


def test_a_neighbor_is_asked_for_a_window_and_for_more_when_half_of_it_has_come() -> None:
    epidemic, port = linked(1, window=4)
    epidemic.on_message(0.0, 1, SummaryVector(ids(*range(10))), "radio")
    assert requests(port) == [ids(0, 1, 2, 3)]
    give(epidemic, 0)
    assert requests(port) == []
    give(epidemic, 1)
    assert requests(port) == [ids(4, 5)]
    give(epidemic, 6)  # unasked, as from a neighbor that knows what is lacking
    give(epidemic, 2)
    give(epidemic, 3)
    assert requests(port) == [ids(7, 8)], "what has come by itself is not asked for"


def test_what_does_not_come_leaves_the_window_when_it_is_asked_for_again() -> None:
    epidemic, port = linked(1, window=2, ask_again_s=10.0)
    epidemic.on_message(0.0, 1, SummaryVector(ids(*range(4))), "radio")
    assert requests(port) == [ids(0, 1)]
    epidemic.on_timer(10.0, "retry")
    assert requests(port) == [ids(0, 1), ids(2, 3)]


def test_strangers_share_one_window_and_the_rest_waits_for_room_or_for_a_link() -> None:
    epidemic, port = linked(window=3)
    epidemic.on_message(0.0, 8, SummaryVector(ids(0, 1)), "radio")
    epidemic.on_message(0.0, 9, SummaryVector(ids(2, 3, 4)), "radio")
    assert requests(port) == [ids(0, 1), ids(2)]
    give(epidemic, 3, sender=5)
    give(epidemic, 0, sender=8)
    give(epidemic, 1, sender=8)
    give(epidemic, 2, sender=9)
    assert requests(port) == [ids(4)], "3 has come from somebody else"
    epidemic.on_message(0.0, 9, SummaryVector(ids(5, 6, 7, 8)), "radio")
    assert requests(port) == [ids(5, 6)]
    epidemic.on_link_up(0.0, Link(9, "radio", 0.001))
    epidemic.on_message(0.0, 9, SummaryVector(ids(9, 10)), "radio")
    assert requests(port) == [ids(9, 10)], "a neighbor has a window of its own"
    give(epidemic, 9, sender=9)
    assert requests(port) == [ids(7, 8)]
    epidemic.on_message(0.0, 9, SummaryVector(ids(11, 12)), "radio")
    assert requests(port) == []


def test_what_strangers_tell_of_is_bounded_and_dropped_by_name() -> None:
    epidemic, port = linked(buffer=10, window=3)
    for first in range(0, 6 * MAX_IDS, MAX_IDS):
        epidemic.on_message(0.0, 9, SummaryVector(ids(*range(first, first + MAX_IDS))), "radio")
    facts = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    assert Fact("drop", peer=9, reason="offers_full", value=MAX_IDS) in facts
    assert epidemic._transfer_requests._unlinked_ids == MIN_CAPACITY  # type: ignore[attr-defined]


def test_a_neighbor_that_tells_of_very_much_makes_those_of_another_not_forgotten() -> None:
    epidemic, port = linked(1, 2, buffer=10)
    for first in range(0, 20 * MAX_IDS, MAX_IDS):
        advertised = tuple(EventId(666, number) for number in range(first, first + MAX_IDS))
        epidemic.on_message(0.0, 1, SummaryVector(advertised), "radio")
    notes = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    refused = [fact.value or 0 for fact in notes if fact.reason == "offers_full"]
    assert sum(refused) == 20 * MAX_IDS - MIN_CAPACITY
    epidemic.on_message(0.0, 2, SummaryVector(ids(*range(50))), "radio")
    assert requests(port) == [ids(*range(50))]
    epidemic.on_message(0.0, 2, SummaryVector(tuple(EventId(8, n) for n in range(MAX_IDS))), "radio")
    assert sum(map(len, requests(port))) == MAX_IDS - 50


def test_offers_stay_within_their_bound_whoever_tells_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.epidemic.transfers.MIN_CAPACITY", 1)
    pending = TransferRequests(100, 10)
    for neighbor in range(5):
        wanted, _ = pending.on_advertised(neighbor, [EventId(neighbor, n) for n in range(60)], linked=True)
        pending.on_requested(neighbor, wanted, 1.0, linked=True)
        assert len(pending._holders) <= 100
    # Each has its window and a share of the rest.
    assert all(len(pending._deferred[neighbor]) >= 5 for neighbor in range(5))
    pending.on_advertised(9, [EventId(9, n) for n in range(60)], linked=False)
    assert 0 < pending._unlinked_ids <= 100 - len(pending._holders)
    for neighbor in (*range(5), 9):
        pending.retry(pending.on_link_down(neighbor), 20)
    assert (pending._holders, pending._deferred, pending._pending, pending._open) == ({}, {}, {}, {})
    assert (pending._unlinked_ids, pending._unlinked) == (0, {})


# Serving.


def holding(count: int) -> tuple[Protocol, RecordingPort]:
    epidemic, port = linked(1, 2)
    for number in range(count):
        give(epidemic, number, sender=2)
    port.take()
    return epidemic, port


def transfers(port: RecordingPort) -> list[Send]:
    return [one for one in port.take() if isinstance(one, Send) and isinstance(one.message, Transfer)]


def test_a_long_ask_is_answered_in_batches_each_when_the_last_has_arrived() -> None:
    epidemic, port = holding(2 * BATCH + 5)
    epidemic.on_message(1.0, 1, TransferRequest(ids(*range(2 * BATCH + 5))), "radio")
    counts = []
    while sent := transfers(port):
        counts.append(len(sent))
        assert all(send.token is None for send in sent[:-1])
        if sent[-1].token is not None:
            # Asked for again while it waits, it comes once.
            epidemic.on_message(1.0, 1, TransferRequest(ids(2 * BATCH + 4)), "radio")
            epidemic.on_sent(1.0, sent[-1].token, None)
    assert counts == [BATCH, BATCH, 5]


def test_a_batch_that_does_not_arrive_ends_the_serving_and_an_ask_begins_it_anew() -> None:
    epidemic, port = holding(BATCH + 1)
    everything = TransferRequest(ids(*range(BATCH + 1)))
    epidemic.on_message(1.0, 1, everything, "radio")
    token = transfers(port)[-1].token
    assert token is not None
    epidemic.on_sent(1.0, token, Failure.UNREACHABLE)
    assert transfers(port) == []
    epidemic.on_message(2.0, 1, everything, "radio")
    assert len(transfers(port)) == BATCH


def test_what_waits_for_one_neighbor_is_bounded() -> None:
    queue = TransferQueue()
    queue.add(1, ids(*range(BATCH + 1)))
    queue.add(1, ids(*range(10 * MAX_QUEUED)))
    assert MAX_QUEUED - 1 <= len(queue._queued[1]) <= MAX_QUEUED


def test_a_newcomer_catches_up_on_thousands() -> None:
    net = Net.contacts([(0, 1, 50.0, 100.0)], "epidemic")
    net.subscribe(1)
    net.run(1)
    events = [net.publish(0, {"n": n}, lease_s=600.0) for n in range(3000)]
    net.run(98)
    assert sorted(one.id for one in net.delivered(1)) == [one.id for one in events]
    assert net.sent("Transfer") == 3000


# Counting.


def test_neighbors_that_say_they_hold_it_are_told_of_until_enough_do() -> None:
    epidemic, port = linked(1, 2, 3)
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_publish(0.0, event(0))
    epidemic.on_await_replicas(0.0, event(0).id, 2)
    port.take()
    epidemic.on_message(0.1, 1, TransferRequest(ids(0)), "radio")
    [sent] = transfers(port)
    assert sent.token is not None
    epidemic.on_sent(0.2, sent.token, None)
    assert port.take() == [Send(1, HolderQuery(ids(0)))], "that it arrived does not say that it is kept"
    epidemic.on_message(0.3, 1, SummaryVector(ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 1)]
    epidemic.on_message(0.3, 1, SummaryVector(ids(0)), "radio")
    assert port.take() == []
    epidemic.on_message(0.4, 2, SummaryVector(ids(0)), "radio")
    epidemic.on_message(0.4, 3, SummaryVector(ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 2)]


def test_who_has_not_said_so_is_asked_again_with_each_telling() -> None:
    epidemic, port = linked(1, 2)
    epidemic.on_publish(0.0, event(0))
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(0.0, event(0).id, 2)
    epidemic.on_message(0.3, 1, SummaryVector(ids(0)), "radio")
    port.take()
    epidemic.on_timer(30.0, "repeat")
    assert Send(2, HolderQuery(ids(0))) in port.take()


def test_a_check_is_answered_with_what_is_held_and_with_nothing_if_nothing_is() -> None:
    epidemic, port = linked(1, 2)
    give(epidemic, 0, sender=2)
    port.take()
    epidemic.on_message(1.0, 1, HolderQuery(ids(0, 1)), "radio")
    assert port.take() == [Send(1, SummaryVector(ids(0)))]
    epidemic.on_message(1.0, 1, HolderQuery(ids(1)), "radio")
    assert port.take() == []
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(1.0, EventId(9, 9), 1)  # nothing that is here
    epidemic.on_message(1.0, 1, SummaryVector((EventId(9, 9),)), "radio")
    assert not [effect for effect in port.take() if isinstance(effect, AcknowledgeReplica)]


def test_who_told_of_more_than_could_be_remembered_is_asked_to_tell_again() -> None:
    """The ids that found no room stayed away until the next contact, or the next round a minute later."""
    epidemic, port = linked(1, buffer=10, window=MAX_IDS)
    advertised = ids(*range(5 * MAX_IDS))
    for first in range(0, len(advertised), MAX_IDS):
        epidemic.on_message(0.0, 1, SummaryVector(advertised[first : first + MAX_IDS]), "radio")
    came = 0
    repeated = False
    while not repeated:
        for wanted in requests(port):
            repeated |= wanted == ()
            for id in wanted:
                give(epidemic, id.sequence, sender=1)
                came += 1
    assert came == MIN_CAPACITY, "as much as can be remembered"
    assert requests(port) == [], "once"


def test_who_is_asked_without_ids_tells_of_all_that_it_holds() -> None:
    epidemic, port = linked(1)
    give(epidemic, 3, sender=5)
    give(epidemic, 4, sender=5)
    port.take()
    epidemic.on_message(0.0, 1, TransferRequest(()), "radio")
    assert port.take_messages() == [SummaryVector(ids(3, 4))]
