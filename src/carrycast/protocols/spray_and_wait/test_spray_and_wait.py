"""Spray and wait: the number of copies that each node gets."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.parts.copies import CopyShare
from carrycast.core.parts.exchange_messages import CopyRequest, CopyTransfer
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Send
from carrycast.protocols.spray_and_wait.protocol import spray_binary, spray_from_source
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)


@pytest.mark.parametrize(("copies", "given", "kept"), [(8, 4, 4), (5, 2, 3), (3, 1, 2), (2, 1, 1), (1, 0, 1)])
def test_binary_spray_halves(copies: int, given: int, kept: int) -> None:
    assert spray_binary(copies) == CopyShare(given, kept)


def test_with_source_spray_only_the_publisher_gives_one_copy_at_a_time() -> None:
    assert spray_from_source(8, own=True) == CopyShare(1, 7)
    assert spray_from_source(1, own=True) == CopyShare(0, 1)
    assert spray_from_source(8, own=False) == CopyShare(0, 8)


def list_copies_given(variant: str | None, copies: int, requesters: int) -> list[int]:
    """Return the copies that neighbors get that request the event one after the other, each acknowledged."""
    chosen = {} if variant is None else {"variant": variant}
    protocol, port = isolate_protocol("spray_and_wait", 7, None, 1, copies=copies, **chosen)
    for neighbor in range(requesters):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(()), "radio")
    protocol.on_publish(0.0, EVENT)
    given = []
    for neighbor in range(requesters):
        port.take()
        protocol.on_message(0.0, neighbor, CopyRequest((EVENT.id,)), "radio")
        for effect in port.take():
            if isinstance(effect, Send) and isinstance(effect.message, CopyTransfer):
                given.append(effect.message.copies)
                assert effect.token is not None
                protocol.on_sent(0.0, effect.token, None)
    return given


def test_copies_are_given_until_one_is_left() -> None:
    assert list_copies_given(None, 8, 6) == [4, 2, 1]
    assert list_copies_given("source", 4, 6) == [1, 1, 1]
    assert list_copies_given(None, 1, 6) == []


def test_copies_of_a_failed_transfer_come_back() -> None:
    protocol, port = isolate_protocol("spray_and_wait", node=7, copies=8)
    protocol.on_link_up(0.0, Link(1, "radio", 0.001))
    protocol.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    protocol.on_publish(0.0, EVENT)
    for failure in (Failure.UNREACHABLE, None):
        port.take()
        protocol.on_message(0.0, 1, CopyRequest((EVENT.id,)), "radio")
        [sent] = [one for one in port.take() if isinstance(one, Send) and isinstance(one.message, CopyTransfer)]
        assert isinstance(sent.message, CopyTransfer)
        assert sent.message.copies == 4
        assert sent.token is not None
        protocol.on_sent(0.0, sent.token, failure)


def test_no_more_neighbors_are_offered_a_copy_than_could_get_one() -> None:
    protocol, port = isolate_protocol("spray_and_wait", node=7, copies=4)
    for neighbor in range(6):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(0.0, neighbor, SubscriptionUpdate(()), "radio")
    port.take()
    protocol.on_publish(0.0, EVENT)
    assert len(port.take_messages()) == 2


@pytest.mark.parametrize("variant", [None, "source"])
def test_no_more_nodes_carry_an_event_than_there_are_copies(variant: str | None) -> None:
    net = Net.grid(5, 5, "spray_and_wait", variant=variant, copies=4)
    net.run(1)
    net.publish(12)
    net.run(60)
    assert len(net.rows("store")) == 4


def test_a_carrier_with_one_copy_waits_for_interested_nodes() -> None:
    contacts = [(0, 1, 0.0, 10.0), (1, 2, 20.0, 30.0), (1, 3, 40.0, 50.0), (2, 3, 60.0, 70.0)]
    net = Net.contacts(contacts, "spray_and_wait", copies=2)
    net.subscribe(3)
    net.run(1)
    event = net.publish(0, lease_s=600.0)
    net.run(80)
    assert net.list_delivered(3) == [event]
    assert [row["node"] for row in net.rows("store")] == [0, 1], "2 is not interested, and 1 has only one copy"
