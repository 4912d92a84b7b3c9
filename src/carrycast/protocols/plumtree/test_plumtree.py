"""Plumtree: the paper's algorithms one by one, and stories of small networks."""

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Deliver, Note, Send, SetTimer
from carrycast.protocols.plumtree.messages import MAX_ANNOUNCED, Announcement, Gossip, Graft, IHave, Prune
from carrycast.protocols.plumtree.protocol import Plumtree
from carrycast.protocols.plumtree.tree import MAX_MISSING, MissingEvents
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)
WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def make_node(*neighbors: int, optimize: int = 3) -> tuple[Plumtree, RecordingPort]:
    """Make a node with links of cost 0.1 s, all of them eager."""
    protocol, port = isolate_protocol("plumtree", optimize=optimize)
    assert isinstance(protocol, Plumtree)
    for neighbor in neighbors:
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.1))
    protocol.on_subscribe(0.0, WANTED)
    port.take()
    return protocol, port


def take_sent(port: RecordingPort) -> list[tuple[int, object]]:
    return [(one.target, one.message) for one in port.take() if isinstance(one, Send)]


def fire(protocol: Protocol, port: RecordingPort, now: float, name: str) -> list[tuple[int, object]]:
    """Fire the timer of this name that was armed last, and return what it sent."""
    [*_, timer] = [one for one in port.take() if isinstance(one, SetTimer) and name in (one.key, one.key[0])]
    protocol.on_timer(now, timer.key)
    return take_sent(port)


def test_an_event_goes_to_all_eager_neighbors_but_its_sender() -> None:
    protocol, port = make_node(1, 2, 3)
    protocol.on_message(1.0, 1, Gossip(EVENT, 4, 50.0), "radio")
    effects = port.take()
    assert Deliver(WANTED.id, EVENT, 4) in effects
    sent = [(one.target, one.message) for one in effects if isinstance(one, Send)]
    assert sent == [(2, Gossip(EVENT, 5, 50.0)), (3, Gossip(EVENT, 5, 50.0))]


def test_a_duplicate_prunes_its_link_on_both_sides() -> None:
    protocol, port = make_node(1, 2, 3)
    protocol.on_message(1.0, 1, Gossip(EVENT, 4, 50.0), "radio")
    port.take()
    protocol.on_message(1.1, 2, Gossip(EVENT, 6, 50.0), "radio")
    assert take_sent(port) == [(2, Prune())]
    protocol.on_message(1.1, 3, Prune(), "radio")
    protocol.on_publish(2.0, Event(EventId(0, 0), {"topic": 2}, lease_s=60.0))
    assert [target for target, _ in take_sent(port)] == [1], "2 and 3 are lazy"


def test_lazy_neighbors_get_the_collected_ids() -> None:
    protocol, port = make_node(1, 2)
    protocol.on_message(1.0, 2, Prune(), "radio")
    for number in range(2):
        protocol.on_publish(1.0, Event(EventId(0, number), {"topic": 2}, lease_s=60.0))
    announced = (Announcement(EventId(0, 0), 1), Announcement(EventId(0, 1), 1))
    protocol.on_timer(2.0, "lazy")
    assert [one for one in take_sent(port) if isinstance(one[1], IHave)] == [(2, IHave(announced))]


def test_an_announced_event_that_does_not_arrive_is_grafted_from_one_announcer_after_the_other() -> None:
    protocol, port = make_node(1, 2, 3)
    protocol.on_message(1.0, 1, Prune(), "radio")
    protocol.on_message(1.0, 1, IHave((Announcement(EVENT.id, 3),)), "radio")
    [timer] = port.take()
    assert timer == SetTimer(("graft", EVENT.id), 5.0 * 0.1)
    protocol.on_message(1.0, 2, IHave((Announcement(EVENT.id, 3),)), "radio")
    assert port.take() == [], "one timer for each event"
    protocol.on_timer(1.5, ("graft", EVENT.id))
    assert port.take() == [SetTimer(("graft", EVENT.id), 2 * 0.1), Send(1, Graft(EVENT.id))]
    protocol.on_timer(1.7, ("graft", EVENT.id))
    assert take_sent(port) == [(2, Graft(EVENT.id))]
    protocol.on_timer(1.9, ("graft", EVENT.id))
    assert port.take() == [Note(Fact("drop", EVENT.id, reason="grafts_exhausted"))]
    protocol.on_publish(2.0, Event(EventId(0, 0), {"topic": 2}, lease_s=60.0))
    assert [target for target, _ in take_sent(port)] == [1, 2, 3], "grafted links are eager again"


def test_an_event_that_arrives_ends_its_repair() -> None:
    protocol, port = make_node(1, 2)
    protocol.on_message(1.0, 1, IHave((Announcement(EVENT.id, 3),)), "radio")
    protocol.on_message(1.1, 2, Gossip(EVENT, 3, 50.0), "radio")
    port.take()
    protocol.on_message(1.2, 1, IHave((Announcement(EVENT.id, 3),)), "radio")
    assert port.take() == []


def test_a_graft_makes_a_link_eager_and_is_answered_with_the_event() -> None:
    protocol, port = make_node(1, 2)
    protocol.on_message(1.0, 1, Gossip(EVENT, 1, 50.0), "radio")
    protocol.on_message(1.0, 2, Prune(), "radio")
    port.take()
    protocol.on_message(2.0, 2, Graft(EVENT.id), "radio")
    assert take_sent(port) == [(2, Gossip(EVENT, 2, 49.0))]
    protocol.on_message(100.0, 2, Graft(EVENT.id), "radio")
    assert take_sent(port) == [], "its lease has expired"


def test_a_long_lease_is_passed_on_as_it_is() -> None:
    """Its message must not look older than it is: old events are dropped."""
    protocol, port = make_node(1, 2)
    event = Event(EventId(7, 0), {"topic": 1}, lease_s=3600.0)
    protocol.on_message(1.0, 1, Gossip(event, 1, 3599.0), "radio")
    assert take_sent(port) == [(2, Gossip(event, 2, 3599.0))]
    protocol.on_message(11.0, 2, Graft(event.id), "radio")
    assert take_sent(port) == [(2, Gossip(event, 2, 3589.0))]


def test_a_shorter_path_replaces_a_longer_one() -> None:
    protocol, port = make_node(1, 2, optimize=3)
    protocol.on_message(1.0, 2, Prune(), "radio")
    protocol.on_message(1.0, 2, IHave((Announcement(EVENT.id, 2),)), "radio")
    port.take()
    protocol.on_message(1.1, 1, Gossip(EVENT, 5, 50.0), "radio")
    assert take_sent(port)[:2] == [(2, Graft(None)), (1, Prune())]


@pytest.mark.parametrize(("optimize", "hops"), [(3, 4), (0, 9)])
def test_below_the_threshold_the_tree_stays(optimize: int, hops: int) -> None:
    protocol, port = make_node(1, 2, optimize=optimize)
    protocol.on_message(1.0, 2, IHave((Announcement(EVENT.id, 2),)), "radio")
    protocol.on_message(1.1, 1, Gossip(EVENT, hops, 50.0), "radio")
    assert Prune() not in [message for _, message in take_sent(port)]


def test_an_event_that_a_neighbor_did_not_acknowledge_is_announced_to_it() -> None:
    protocol, port = make_node(1)
    protocol.on_publish(1.0, EVENT)
    [sent] = [one for one in port.take() if isinstance(one, Send)]
    assert sent.token is not None
    protocol.on_sent(1.5, sent.token, Failure.UNREACHABLE)
    assert fire(protocol, port, 2.0, "lazy") == [(1, IHave((Announcement(EVENT.id, 1),)))]


def test_a_lost_neighbor_is_forgotten_with_its_announcements() -> None:
    protocol, port = make_node(1, 2)
    protocol.on_message(1.0, 1, IHave((Announcement(EVENT.id, 3),)), "radio")
    protocol.on_link_down(1.1, Link(1, "radio", 0.1), Failure.SILENT)
    port.take()
    protocol.on_timer(1.5, ("graft", EVENT.id))
    assert port.take() == [Note(Fact("drop", EVENT.id, reason="grafts_exhausted"))]


def test_too_many_announcements_are_dropped_with_a_reason() -> None:
    protocol, port = make_node(1)
    for first in range(0, MAX_MISSING + 1, MAX_ANNOUNCED):
        part = tuple(Announcement(EventId(9, number), 1) for number in range(first, first + MAX_ANNOUNCED))
        protocol.on_message(1.0, 1, IHave(part), "radio")
    assert {one.fact.reason for one in port.take() if isinstance(one, Note)} == {"announcements_full"}


def test_announcements_are_used_in_order_of_arrival() -> None:
    missing = MissingEvents()
    assert missing.add(EVENT.id, 5, 4)
    assert missing.add(EVENT.id, 3, 2)
    assert missing.find_shortest(EVENT.id) == (3, 2)
    assert [missing.take_first(EVENT.id) for _ in range(3)] == [5, 3, None]


@pytest.mark.parametrize("announce_all", [False, True])
def test_after_the_first_event_a_mesh_sends_one_event_for_each_link_of_a_tree(announce_all: bool) -> None:
    """The paper's relative message redundancy, m / (n - 1) - 1, is 0 when the tree has formed."""
    net = Net.grid(4, 4, "plumtree", announce_all=announce_all)
    for node in range(16):
        net.subscribe(node)
    net.run(5)
    net.publish(0)
    net.run(5)
    before = net.count_sent("Gossip")
    event = net.publish(0)
    net.run(5)
    assert net.count_sent("Gossip") - before == 15
    assert all(net.list_delivered(node)[-1] == event for node in range(16))


def test_a_broken_tree_is_repaired_over_another_link() -> None:
    net = Net.ring(6, "plumtree")
    for node in range(6):
        net.subscribe(node)
    net.run(5)
    net.publish(0)
    net.run(5)
    net.cut(0, 1)
    event = net.publish(0)
    net.run(10)
    assert all(net.list_delivered(node)[-1] == event for node in range(6))
