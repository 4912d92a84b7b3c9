"""The id of a carried event is remembered beyond its lease, because a copy elsewhere may expire a little later."""

from random import Random

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.parts.exchange_messages import CopyTransfer
from carrycast.core.protocol import Protocol, RecordingPort
from carrycast.core.protocol.effects import Deliver
from carrycast.core.stacks import select_protocol
from carrycast.core.wire import EventMessage
from carrycast.protocols.drift.messages import Data
from carrycast.protocols.epidemic.messages import Transfer
from carrycast.sim.testing import IsolatedHost

LEASE_S, GRACE_S = 10.0, 5.0
END_S = LEASE_S + GRACE_S
# `direct` remembers what it was given for itself, the others what they carried.
PROTOCOLS = ("direct", "first_contact", "spray_and_wait", "prophet", "maxprop", "epidemic", "drift")


def event(number: int, lease_s: float = 1000.0) -> Event:
    return Event(EventId(9, number), {"topic": 1}, lease_s=lease_s)


def carried(name: str, what: Event) -> EventMessage:
    if name == "drift":
        return Data(what, 1, what.lease_s)
    if name == "epidemic":
        return Transfer(what, 1, what.lease_s)
    return CopyTransfer(what, 1, what.lease_s, 0 if name == "direct" else 1)


class Node:
    """A node that is given events and whose timers of leases are kept; over its starts with one store."""

    def __init__(self, name: str, durable: bool = False, **settings: float) -> None:
        self.name, self.durable, self.settings = name, durable, settings
        self.host = IsolatedHost()
        self.start(0.0)

    def start(self, now: float) -> None:
        chosen = {"name": self.name, "seen_grace_s": GRACE_S, "durable": self.durable, **self.settings}
        kind, settings = select_protocol(chosen, "test")
        self.port = RecordingPort()
        self.protocol: Protocol = kind(1, settings, self.port, self.host, Random(1))
        self.protocol.on_start(now)
        self.protocol.on_subscribe(now, Subscription(SubscriptionId(1, 0), "topic = 1"))
        self.port.take()

    def hear(self, now: float, what: Event) -> bool:
        """Whether that delivers it."""
        self.protocol.on_message(now, 2, carried(self.name, what), "radio")
        return any(isinstance(effect, Deliver) and effect.event.id == what.id for effect in self.port.take())

    def end_leases(self, now: float) -> None:
        self.protocol.on_timer(now, "lease")
        self.port.take()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_copy_that_comes_within_the_grace_is_not_new_and_one_that_comes_later_is(name: str) -> None:
    node = Node(name)
    assert node.hear(0.0, event(0, LEASE_S))
    if name != "direct":
        node.end_leases(LEASE_S)
    # What is remembered is looked through when another event ends or comes.
    node.hear(END_S - 1.0, event(1, 0.5))
    if name != "direct":
        node.end_leases(END_S - 0.5)
    assert not node.hear(END_S - 0.2, event(0, LEASE_S))
    node.hear(END_S + 0.2, event(2, 0.5))
    if name != "direct":
        node.end_leases(END_S + 0.7)
    assert node.hear(END_S + 0.8, event(0, LEASE_S))


@pytest.mark.parametrize("name", ["first_contact", "epidemic"])
def test_what_ended_while_a_node_was_down_is_remembered_for_the_grace_too(name: str) -> None:
    node = Node(name, durable=True)
    assert node.hear(0.0, event(0, LEASE_S))
    node.start(LEASE_S + 1.0)
    node.hear(END_S - 1.0, event(1, 0.5))
    node.end_leases(END_S - 0.5)
    assert not node.hear(END_S - 0.2, event(0, LEASE_S))
    node.hear(END_S + 0.2, event(2, 0.5))
    node.end_leases(END_S + 0.7)
    assert node.hear(END_S + 0.8, event(0, LEASE_S))


@pytest.mark.parametrize("name", ["first_contact", "epidemic"])
def test_no_clock_makes_a_node_remember_for_longer_than_a_lease_and_the_grace(name: str) -> None:
    """The clock was an hour ahead when the event was met, and has been set right."""
    node = Node(name, durable=True, max_lease_s=100.0)
    node.start(3600.0)
    assert node.hear(3600.0, event(0, LEASE_S))
    node.end_leases(3600.0 + LEASE_S)
    node.start(0.0)
    node.hear(100.0 + GRACE_S - 1.0, event(1, 0.5))
    node.end_leases(100.0 + GRACE_S - 0.5)
    assert not node.hear(100.0 + GRACE_S - 0.2, event(0, LEASE_S))
    node.hear(100.0 + GRACE_S + 0.2, event(2, 0.5))
    node.end_leases(100.0 + GRACE_S + 0.7)
    assert node.hear(100.0 + GRACE_S + 0.8, event(0, LEASE_S))
