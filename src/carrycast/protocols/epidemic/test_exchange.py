"""Epidemic: exchanges that are long, counted or hostile."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.protocol import AcknowledgesReplicas, Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import AcknowledgeReplica, Note, Send
from carrycast.protocols.epidemic.messages import MAX_IDS, Ask, Check, Summary, Transfer
from carrycast.protocols.epidemic.offers import FEWEST, Offers
from carrycast.protocols.epidemic.serving import BATCH, MOST, Serving
from carrycast.sim.testing import Net, alone


def event(number: int) -> Event:
    return Event(EventId(7, number), {"topic": 1}, lease_s=60.0)


def ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(7, number) for number in numbers)


def linked(*neighbors: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    epidemic, port = alone("epidemic", 0, None, 1, **settings)
    for neighbor in neighbors:
        epidemic.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return epidemic, port


def give(epidemic: Protocol, number: int, sender: int = 1) -> None:
    epidemic.on_message(0.0, sender, Transfer(event(number), 1, 60.0), "radio")


def asked(port: RecordingPort) -> list[tuple[EventId, ...]]:
    return [message.ids for message in port.take_messages() if isinstance(message, Ask)]


# Asking.


def test_a_neighbor_is_asked_for_a_window_and_for_more_when_half_of_it_has_come() -> None:
    epidemic, port = linked(1, window=4)
    epidemic.on_message(0.0, 1, Summary(ids(*range(10))), "radio")
    assert asked(port) == [ids(0, 1, 2, 3)]
    give(epidemic, 0)
    assert asked(port) == []
    give(epidemic, 1)
    assert asked(port) == [ids(4, 5)]
    give(epidemic, 6)  # unasked, as from a neighbor that knows what is lacking
    give(epidemic, 2)
    give(epidemic, 3)
    assert asked(port) == [ids(7, 8)], "what has come by itself is not asked for"


def test_what_does_not_come_leaves_the_window_when_it_is_asked_for_again() -> None:
    epidemic, port = linked(1, window=2, ask_again_s=10.0)
    epidemic.on_message(0.0, 1, Summary(ids(*range(4))), "radio")
    assert asked(port) == [ids(0, 1)]
    epidemic.on_timer(10.0, "ask again")
    assert asked(port) == [ids(0, 1), ids(2, 3)]


def test_strangers_share_one_window_and_the_rest_waits_for_room_or_for_a_link() -> None:
    epidemic, port = linked(window=3)
    epidemic.on_message(0.0, 8, Summary(ids(0, 1)), "radio")
    epidemic.on_message(0.0, 9, Summary(ids(2, 3, 4)), "radio")
    assert asked(port) == [ids(0, 1), ids(2)]
    give(epidemic, 3, sender=5)
    give(epidemic, 0, sender=8)
    give(epidemic, 1, sender=8)
    give(epidemic, 2, sender=9)
    assert asked(port) == [ids(4)], "3 has come from somebody else"
    epidemic.on_message(0.0, 9, Summary(ids(5, 6, 7, 8)), "radio")
    assert asked(port) == [ids(5, 6)]
    epidemic.on_link_up(0.0, Link(9, "radio", 0.001))
    epidemic.on_message(0.0, 9, Summary(ids(9, 10)), "radio")
    assert asked(port) == [ids(9, 10)], "a neighbor has a window of its own"
    give(epidemic, 9, sender=9)
    assert asked(port) == [ids(7, 8)]
    epidemic.on_message(0.0, 9, Summary(ids(11, 12)), "radio")
    assert asked(port) == []


def test_what_strangers_tell_of_is_bounded_and_dropped_by_name() -> None:
    epidemic, port = linked(buffer=10, window=3)
    for first in range(0, 6 * MAX_IDS, MAX_IDS):
        epidemic.on_message(0.0, 9, Summary(ids(*range(first, first + MAX_IDS))), "radio")
    facts = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    assert Fact("drop", peer=9, reason="offers_full", value=MAX_IDS) in facts
    assert epidemic._offers._loose == FEWEST  # type: ignore[attr-defined]


def test_a_neighbor_that_tells_of_very_much_makes_those_of_another_not_forgotten() -> None:
    epidemic, port = linked(1, 2, buffer=10)
    for first in range(0, 20 * MAX_IDS, MAX_IDS):
        told = tuple(EventId(666, number) for number in range(first, first + MAX_IDS))
        epidemic.on_message(0.0, 1, Summary(told), "radio")
    notes = [effect.fact for effect in port.take() if isinstance(effect, Note)]
    refused = [fact.value or 0 for fact in notes if fact.reason == "offers_full"]
    assert sum(refused) == 20 * MAX_IDS - FEWEST
    epidemic.on_message(0.0, 2, Summary(ids(*range(50))), "radio")
    assert asked(port) == [ids(*range(50))]
    epidemic.on_message(0.0, 2, Summary(tuple(EventId(8, n) for n in range(MAX_IDS))), "radio")
    assert sum(map(len, asked(port))) == MAX_IDS - 50


def test_offers_stay_within_their_bound_whoever_tells_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.epidemic.offers.FEWEST", 1)
    offers = Offers(100, 10)
    for neighbor in range(5):
        wanted, _ = offers.told(neighbor, [EventId(neighbor, n) for n in range(60)], linked=True)
        offers.ask(neighbor, wanted, 1.0, linked=True)
        assert len(offers._holders) <= 100
    # Each has its window and a share of the rest.
    assert all(len(offers._later[neighbor]) >= 5 for neighbor in range(5))
    offers.told(9, [EventId(9, n) for n in range(60)], linked=False)
    assert 0 < offers._loose <= 100 - len(offers._holders)
    for neighbor in (*range(5), 9):
        offers.again(offers.leave(neighbor), 20)
    assert (offers._holders, offers._later, offers._asked, offers._open) == ({}, {}, {}, {})
    assert (offers._loose, offers._strange) == (0, {})


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
    epidemic.on_message(1.0, 1, Ask(ids(*range(2 * BATCH + 5))), "radio")
    counts = []
    while sent := transfers(port):
        counts.append(len(sent))
        assert all(send.token is None for send in sent[:-1])
        if sent[-1].token is not None:
            # Asked for again while it waits, it comes once.
            epidemic.on_message(1.0, 1, Ask(ids(2 * BATCH + 4)), "radio")
            epidemic.on_sent(1.0, sent[-1].token, None)
    assert counts == [BATCH, BATCH, 5]


def test_a_batch_that_does_not_arrive_ends_the_serving_and_an_ask_begins_it_anew() -> None:
    epidemic, port = holding(BATCH + 1)
    everything = Ask(ids(*range(BATCH + 1)))
    epidemic.on_message(1.0, 1, everything, "radio")
    token = transfers(port)[-1].token
    assert token is not None
    epidemic.on_sent(1.0, token, Failure.UNREACHABLE)
    assert transfers(port) == []
    epidemic.on_message(2.0, 1, everything, "radio")
    assert len(transfers(port)) == BATCH


def test_what_waits_for_one_neighbor_is_bounded() -> None:
    serving = Serving()
    serving.asked(1, ids(*range(BATCH + 1)))
    serving.asked(1, ids(*range(10 * MOST)))
    assert MOST - 1 <= len(serving._waiting[1]) <= MOST


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
    epidemic.on_message(0.1, 1, Ask(ids(0)), "radio")
    [sent] = transfers(port)
    assert sent.token is not None
    epidemic.on_sent(0.2, sent.token, None)
    assert port.take() == [Send(1, Check(ids(0)))], "that it arrived does not say that it is kept"
    epidemic.on_message(0.3, 1, Summary(ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 1)]
    epidemic.on_message(0.3, 1, Summary(ids(0)), "radio")
    assert port.take() == []
    epidemic.on_message(0.4, 2, Summary(ids(0)), "radio")
    epidemic.on_message(0.4, 3, Summary(ids(0)), "radio")
    assert port.take() == [AcknowledgeReplica(event(0).id, 2)]


def test_who_has_not_said_so_is_asked_again_with_each_telling() -> None:
    epidemic, port = linked(1, 2)
    epidemic.on_publish(0.0, event(0))
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(0.0, event(0).id, 2)
    epidemic.on_message(0.3, 1, Summary(ids(0)), "radio")
    port.take()
    epidemic.on_timer(30.0, "tell again")
    assert Send(2, Check(ids(0))) in port.take()


def test_a_check_is_answered_with_what_is_held_and_with_nothing_if_nothing_is() -> None:
    epidemic, port = linked(1, 2)
    give(epidemic, 0, sender=2)
    port.take()
    epidemic.on_message(1.0, 1, Check(ids(0, 1)), "radio")
    assert port.take() == [Send(1, Summary(ids(0)))]
    epidemic.on_message(1.0, 1, Check(ids(1)), "radio")
    assert port.take() == []
    assert isinstance(epidemic, AcknowledgesReplicas)
    epidemic.on_await_replicas(1.0, EventId(9, 9), 1)  # nothing that is here
    epidemic.on_message(1.0, 1, Summary((EventId(9, 9),)), "radio")
    assert not [effect for effect in port.take() if isinstance(effect, AcknowledgeReplica)]


def test_who_told_of_more_than_could_be_remembered_is_asked_to_tell_again() -> None:
    """The ids that found no room stayed away until the next contact, or the next round a minute later."""
    epidemic, port = linked(1, buffer=10, window=MAX_IDS)
    told = ids(*range(5 * MAX_IDS))
    for first in range(0, len(told), MAX_IDS):
        epidemic.on_message(0.0, 1, Summary(told[first : first + MAX_IDS]), "radio")
    came = 0
    again = False
    while not again:
        for wanted in asked(port):
            again |= wanted == ()
            for id in wanted:
                give(epidemic, id.sequence, sender=1)
                came += 1
    assert came == FEWEST, "as much as can be remembered"
    assert asked(port) == [], "once"


def test_who_is_asked_without_ids_tells_of_all_that_it_holds() -> None:
    epidemic, port = linked(1)
    give(epidemic, 3, sender=5)
    give(epidemic, 4, sender=5)
    port.take()
    epidemic.on_message(0.0, 1, Ask(()), "radio")
    assert port.take_messages() == [Summary(ids(3, 4))]
