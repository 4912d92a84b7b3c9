"""First contact: where the one copy is."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.parts.carrier import CarrierProtocol
from carrycast.core.parts.exchange_messages import CopyOffer, CopyRequest, CopyTransfer, CustodySignal, CustodyTransfer
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.protocol import Fact, Link
from carrycast.core.protocol.effects import Note, RecordingPort, Send
from carrycast.core.protocol.retention import RetentionLevel
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)


def test_the_copy_is_offered_to_one_at_a_time_and_moves_when_that_is_acknowledged() -> None:
    protocol, port = isolate_protocol("first_contact", node=7)
    for neighbor in (1, 2, 3):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(()), "radio")
    port.take()
    protocol.on_publish(0.0, EVENT)
    assert port.take_messages() == [CopyOffer((EVENT.id,))]
    protocol.on_message(0.1, 1, CopyRequest(()), "radio")
    sent = [effect for effect in port.take() if isinstance(effect, Send)]
    assert [(one.target, one.message) for one in sent] == [(2, CopyOffer((EVENT.id,)))], "1 has had it"
    protocol.on_message(0.2, 2, CopyRequest((EVENT.id,)), "radio")
    [handed] = [effect for effect in port.take() if isinstance(effect, Send)]
    assert handed.message == CopyTransfer(EVENT, 1, 59.8, 1)
    protocol.on_message(0.2, 3, CopyRequest((EVENT.id,)), "radio")
    assert port.take_messages() == [], "the copy is under way"
    assert handed.token is not None
    protocol.on_sent(0.3, handed.token, None)
    assert Note(Fact("evict", EVENT.id, reason="handed_on")) in port.take()
    protocol.on_message(0.4, 2, CopyOffer((EVENT.id,)), "radio")
    assert port.take_messages() == [CopyRequest(())], "it is not taken back"


def test_a_copy_whose_hand_over_failed_stays() -> None:
    protocol, port = isolate_protocol("first_contact", node=7)
    protocol.on_link_up(0.0, Link(1, "radio", 0.001))
    protocol.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    protocol.on_publish(0.0, EVENT)
    protocol.on_message(0.0, 1, CopyRequest((EVENT.id,)), "radio")
    token = [effect.token for effect in port.take() if isinstance(effect, Send)][-1]
    assert token is not None
    protocol.on_sent(1.0, token, Failure.UNREACHABLE)
    protocol.on_timer(10.0, "again")
    assert port.take_messages() == [CopyOffer((EVENT.id,))]


def test_who_wants_an_event_whose_copy_is_under_way_gets_it_for_itself() -> None:
    protocol, port = isolate_protocol("first_contact", node=7)
    for neighbor in (1, 2):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(("topic = 1",)), "radio")
    protocol.on_publish(0.0, EVENT)
    port.take()
    for neighbor in (1, 2):
        protocol.on_message(0.0, neighbor, CopyRequest((EVENT.id,)), "radio")
    assert [one.copies for one in port.take_messages() if isinstance(one, CopyTransfer)] == [1, 0]


def test_one_copy_wanders_and_serves_those_it_passes() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (0, 2, 20.0, 30.0), (1, 3, 40.0, 50.0)], "first_contact")
    for node in (2, 3):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0, lease_s=600.0)
    net.run(60)
    assert net.delivered(3) == [event]
    assert net.delivered(2) == [], "the copy had left 0 when 2 came by"


def test_along_a_line_the_copy_reaches_the_end_and_every_node_had_it_once() -> None:
    net = Net.line(6, "first_contact")
    net.subscribe(5)
    net.run(1)
    event = net.publish(0)
    net.run(30)
    assert net.delivered(5) == [event]
    assert net.sent("CopyTransfer") == 5


def test_who_forgot_what_a_neighbor_that_started_anew_has_said_asks_it_again() -> None:
    here, port = isolate_protocol("first_contact", node=7)
    anew, its_port = isolate_protocol("first_contact", node=1)
    link, back = Link(1, "radio", 0.001), Link(7, "radio", 0.001)

    def said(by: RecordingPort) -> list[SubscriptionUpdate]:
        found = [effect for effect in by.take() if isinstance(effect, Send)]
        for effect in found:
            assert effect.token is not None
            (here if by is port else anew).on_sent(0.0, effect.token, None)
        return [effect.message for effect in found if isinstance(effect.message, SubscriptionUpdate)]

    here.on_link_up(0.0, link)
    here.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    said(port)
    # The other has started anew, and says so before its beacon is heard.
    anew.on_link_up(1.0, back)
    [first] = said(its_port)
    here.on_message(1.0, 1, first, "radio")
    answers = said(port)
    here.on_link_down(1.1, link, Failure.RESTARTED)
    here.on_link_up(1.1, link)
    # Datagrams overtake each other.
    for message in (*said(port), *answers):
        anew.on_message(1.2, 7, message, "radio")
    assert said(its_port) == [], "it was told, and has told"
    here.on_publish(2.0, EVENT)
    assert CopyOffer((EVENT.id,)) not in port.take_messages()
    here.on_timer(60.0, "silent")
    for message in said(port):
        anew.on_message(60.0, 7, message, "radio")
    [again] = said(its_port)
    here.on_message(60.0, 1, again, "radio")
    assert CopyOffer((EVENT.id,)) in port.take_messages()


def durable_pair() -> tuple[CarrierProtocol, RecordingPort, Send]:
    """A carrier that promised to keep its event and has just sent it to neighbor 1, which received it."""
    protocol, port = isolate_protocol("first_contact", node=7, durable=True)
    assert isinstance(protocol, CarrierProtocol)
    assert protocol.log is not None
    protocol.on_link_up(0.0, Link(1, "radio", 0.001))
    protocol.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    protocol.log.guarantee(EVENT.id)
    protocol.on_publish(0.0, EVENT)
    protocol.log.guarantee(None)
    port.take()
    protocol.on_message(0.0, 1, CopyRequest((EVENT.id,)), "radio")
    [sent] = [one for one in port.take() if isinstance(one, Send)]
    assert sent.token is not None
    protocol.on_sent(0.1, sent.token, None)
    return protocol, port, sent


def test_a_promised_event_is_let_go_when_its_custody_is_confirmed_and_not_before() -> None:
    """G-10"""
    protocol, port, sent = durable_pair()
    assert sent.message == CustodyTransfer(EVENT, 1, 60.0, 1)
    assert EVENT.id in protocol.buffer.events, "it has arrived, and nobody has said that it is kept"
    protocol.on_message(0.2, 2, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id in protocol.buffer.events, "it was not entrusted to that one"
    protocol.on_message(0.2, 1, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id not in protocol.buffer.events
    assert Note(Fact("evict", EVENT.id, reason="custody")) in port.take()


def test_custody_may_be_confirmed_before_the_link_says_that_the_event_has_arrived() -> None:
    protocol, port = isolate_protocol("first_contact", node=7, durable=True)
    assert isinstance(protocol, CarrierProtocol)
    assert protocol.log is not None
    protocol.on_link_up(0.0, Link(1, "radio", 0.001))
    protocol.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    protocol.log.guarantee(EVENT.id)
    protocol.on_publish(0.0, EVENT)
    port.take()
    protocol.on_message(0.0, 1, CopyRequest((EVENT.id,)), "radio")
    [sent] = [one for one in port.take() if isinstance(one, Send)]
    protocol.on_message(0.1, 1, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id not in protocol.buffer.events
    assert sent.token is not None
    protocol.on_sent(0.2, sent.token, None)
    protocol.on_timer(10.0, "again")
    assert EVENT.id not in protocol.buffer.events


def test_custody_that_is_not_confirmed_leaves_the_event_with_who_promised_it() -> None:
    protocol, port, _ = durable_pair()
    protocol.on_timer(10.2, "again")
    protocol.on_message(10.3, 1, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id in protocol.buffer.events, "too late: there is one copy too many"
    protocol.on_link_up(10.4, Link(2, "radio", 0.001))
    protocol.on_message(10.4, 2, SubscriptionUpdate(()), "radio")
    port.take()
    protocol.on_message(10.5, 1, CopyRequest(()), "radio")
    sent = [(one.target, one.message) for one in port.take() if isinstance(one, Send)]
    assert sent == [(2, CopyOffer((EVENT.id,)))], "the next neighbor may take it"


def test_a_neighbor_that_leaves_before_it_confirms_has_no_custody() -> None:
    protocol, port, _ = durable_pair()
    protocol.on_link_down(0.2, Link(1, "radio", 0.001), Failure.OUT_OF_REACH)
    assert EVENT.id in protocol.buffer.events
    protocol.on_link_up(0.4, Link(2, "radio", 0.001))
    protocol.on_message(0.4, 2, SubscriptionUpdate(()), "radio")
    assert CopyOffer((EVENT.id,)) in port.take_messages()


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_node_with_a_log_confirms_custody(durable: bool) -> None:
    """G-11"""
    protocol, port = isolate_protocol("first_contact", node=1, durable=durable)
    assert isinstance(protocol, CarrierProtocol)
    protocol.on_link_up(0.0, Link(7, "radio", 0.001))
    protocol.on_message(0.0, 7, CustodyTransfer(EVENT, 1, 60.0, 1), "radio")
    assert (CustodySignal((EVENT.id,)) in port.take_messages()) == durable
    assert EVENT.id in protocol.buffer.events
    assert protocol.buffer.is_guaranteed(EVENT.id) == durable


def test_custody_is_refused_by_name_for_a_longer_lease_than_events_are_kept() -> None:
    protocol, port = isolate_protocol("first_contact", node=1, durable=True, max_lease_s=30.0)
    protocol.on_link_up(0.0, Link(7, "radio", 0.001))
    protocol.on_message(0.0, 7, CustodyTransfer(EVENT, 1, 60.0, 1), "radio")
    effects = port.take()
    assert Note(Fact("drop", EVENT.id, 7, "custody_refused")) in effects
    assert not any(isinstance(one, Send) and isinstance(one.message, CustodySignal) for one in effects)


def test_a_copy_that_was_carried_comes_into_custody() -> None:
    protocol, port = isolate_protocol("first_contact", node=1, durable=True)
    assert isinstance(protocol, CarrierProtocol)
    assert protocol.log is not None
    protocol.on_link_up(0.0, Link(7, "radio", 0.001))
    protocol.on_message(0.0, 7, CopyTransfer(EVENT, 1, 60.0, 1), "radio")
    assert protocol.log.level(EVENT.id) is RetentionLevel.CARRIED
    port.take()
    protocol.on_message(0.0, 7, CustodyTransfer(EVENT, 1, 60.0, 1), "radio")
    assert protocol.log.level(EVENT.id) is RetentionLevel.CUSTODY
    assert CustodySignal((EVENT.id,)) in port.take_messages()


def test_custody_wanders_along_a_line_over_crashes_and_the_event_is_never_with_nobody() -> None:
    net = Net.contacts(
        [(0, 1, 0.0, 10.0), (1, 2, 20.0, 30.0), (2, 3, 40.0, 50.0)], "first_contact", durable=True, again_s=1.0
    )
    net.subscribe(3)
    net.run(1)
    event = net.publish(0, lease_s=600.0)
    for node in (0, 1, 2):
        net.run(15)
        net.crash(node)
        net.run(1)
        net.restart(node)
        net.run(4)
    assert net.delivered(3) == [event]
    assert [row["node"] for row in net.rows("evict", reason="custody")] == [0, 1, 2]
