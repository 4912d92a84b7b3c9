"""First contact: the transfer and custody of the single copy."""

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


def test_the_copy_is_offered_to_one_neighbor_at_a_time_and_moves_when_acknowledged() -> None:
    protocol, port = isolate_protocol("first_contact", node=7)
    for neighbor in (1, 2, 3):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(()), "radio")
    port.take()
    protocol.on_publish(0.0, EVENT)
    assert port.take_messages() == [CopyOffer((EVENT.id,))]
    protocol.on_message(0.1, 1, CopyRequest(()), "radio")
    sent = [effect for effect in port.take() if isinstance(effect, Send)]
    assert [(one.target, one.message) for one in sent] == [(2, CopyOffer((EVENT.id,)))], "1 has seen it"
    protocol.on_message(0.2, 2, CopyRequest((EVENT.id,)), "radio")
    [sent_copy] = [effect for effect in port.take() if isinstance(effect, Send)]
    assert sent_copy.message == CopyTransfer(EVENT, 1, 59.8, 1)
    protocol.on_message(0.2, 3, CopyRequest((EVENT.id,)), "radio")
    assert port.take_messages() == [], "the copy is in transit"
    assert sent_copy.token is not None
    protocol.on_sent(0.3, sent_copy.token, None)
    assert Note(Fact("evict", EVENT.id, reason="handed_on")) in port.take()
    protocol.on_message(0.4, 2, CopyOffer((EVENT.id,)), "radio")
    assert port.take_messages() == [CopyRequest(())], "it is not requested back"


def test_a_copy_whose_transfer_failed_stays() -> None:
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


def test_an_interested_neighbor_gets_an_event_whose_copy_is_in_transit() -> None:
    protocol, port = isolate_protocol("first_contact", node=7)
    for neighbor in (1, 2):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(("topic = 1",)), "radio")
    protocol.on_publish(0.0, EVENT)
    port.take()
    for neighbor in (1, 2):
        protocol.on_message(0.0, neighbor, CopyRequest((EVENT.id,)), "radio")
    assert [one.copies for one in port.take_messages() if isinstance(one, CopyTransfer)] == [1, 0]


def test_the_copy_is_delivered_to_interested_nodes_on_its_walk() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (0, 2, 20.0, 30.0), (1, 3, 40.0, 50.0)], "first_contact")
    for node in (2, 3):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0, lease_s=600.0)
    net.run(60)
    assert net.list_delivered(3) == [event]
    assert net.list_delivered(2) == [], "the copy had left 0 before 2 came"


def test_along_a_line_every_node_carries_the_copy_once() -> None:
    net = Net.line(6, "first_contact")
    net.subscribe(5)
    net.run(1)
    event = net.publish(0)
    net.run(30)
    assert net.list_delivered(5) == [event]
    assert net.count_sent("CopyTransfer") == 5


def test_lost_subscriptions_of_a_restarted_neighbor_are_requested_again() -> None:
    here, port = isolate_protocol("first_contact", node=7)
    restarted, its_port = isolate_protocol("first_contact", node=1)
    link, back = Link(1, "radio", 0.001), Link(7, "radio", 0.001)

    def take_updates(by: RecordingPort) -> list[SubscriptionUpdate]:
        found = [effect for effect in by.take() if isinstance(effect, Send)]
        for effect in found:
            assert effect.token is not None
            (here if by is port else restarted).on_sent(0.0, effect.token, None)
        return [effect.message for effect in found if isinstance(effect.message, SubscriptionUpdate)]

    here.on_link_up(0.0, link)
    here.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    take_updates(port)
    # The neighbor has restarted, and its update arrives before its beacon.
    restarted.on_link_up(1.0, back)
    [first] = take_updates(its_port)
    here.on_message(1.0, 1, first, "radio")
    answers = take_updates(port)
    here.on_link_down(1.1, link, Failure.RESTARTED)
    here.on_link_up(1.1, link)
    # Datagrams overtake each other.
    for message in (*take_updates(port), *answers):
        restarted.on_message(1.2, 7, message, "radio")
    assert take_updates(its_port) == [], "both updates were exchanged"
    here.on_publish(2.0, EVENT)
    assert CopyOffer((EVENT.id,)) not in port.take_messages()
    here.on_timer(60.0, "silent")
    for message in take_updates(port):
        restarted.on_message(60.0, 7, message, "radio")
    [again] = take_updates(its_port)
    here.on_message(60.0, 1, again, "radio")
    assert CopyOffer((EVENT.id,)) in port.take_messages()


def make_durable_carrier() -> tuple[CarrierProtocol, RecordingPort, Send]:
    """Make a carrier of a guaranteed event that neighbor 1 has just received."""
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


def test_a_guaranteed_event_is_evicted_only_when_its_custody_is_confirmed() -> None:
    """G-10"""
    protocol, port, sent = make_durable_carrier()
    assert sent.message == CustodyTransfer(EVENT, 1, 60.0, 1)
    assert EVENT.id in protocol.buffer.events, "it has arrived, and its custody is not confirmed"
    protocol.on_message(0.2, 2, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id in protocol.buffer.events, "the event was not sent to that node"
    protocol.on_message(0.2, 1, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id not in protocol.buffer.events
    assert Note(Fact("evict", EVENT.id, reason="custody")) in port.take()


def test_custody_may_be_confirmed_before_the_transfer_is_acknowledged() -> None:
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


def test_without_a_custody_signal_the_carrier_keeps_the_event() -> None:
    protocol, port, _ = make_durable_carrier()
    protocol.on_timer(10.2, "again")
    protocol.on_message(10.3, 1, CustodySignal((EVENT.id,)), "radio")
    assert EVENT.id in protocol.buffer.events, "too late, so there are two copies"
    protocol.on_link_up(10.4, Link(2, "radio", 0.001))
    protocol.on_message(10.4, 2, SubscriptionUpdate(()), "radio")
    port.take()
    protocol.on_message(10.5, 1, CopyRequest(()), "radio")
    sent = [(one.target, one.message) for one in port.take() if isinstance(one, Send)]
    assert sent == [(2, CopyOffer((EVENT.id,)))], "it is offered to the next neighbor"


def test_a_neighbor_that_leaves_before_it_confirms_has_no_custody() -> None:
    protocol, port, _ = make_durable_carrier()
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


def test_custody_of_a_too_long_lease_is_refused_with_a_reason() -> None:
    protocol, port = isolate_protocol("first_contact", node=1, durable=True, max_lease_s=30.0)
    protocol.on_link_up(0.0, Link(7, "radio", 0.001))
    protocol.on_message(0.0, 7, CustodyTransfer(EVENT, 1, 60.0, 1), "radio")
    effects = port.take()
    assert Note(Fact("drop", EVENT.id, 7, "custody_refused")) in effects
    assert not any(isinstance(one, Send) and isinstance(one.message, CustodySignal) for one in effects)


def test_a_carried_copy_can_be_taken_into_custody() -> None:
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


def test_custody_moves_along_a_line_over_crashes_without_loss() -> None:
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
    assert net.list_delivered(3) == [event]
    assert [row["node"] for row in net.rows("evict", reason="custody")] == [0, 1, 2]
