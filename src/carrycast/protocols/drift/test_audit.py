"""What went by a path is looked at: a node that swallows events is noticed, and nothing is lost by it."""

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Interface, Port, Token
from carrycast.core.wire import Message
from carrycast.protocols.drift.audit import MAX_EVENTS, AuditedEvents, hash_filter
from carrycast.protocols.drift.messages import Audit, TreeData, TreeEnd
from carrycast.protocols.drift.set_hash import hash_ids
from carrycast.protocols.drift.test_drift import Bench, event
from carrycast.protocols.drift.test_multicast_trees import QUIET, on_the_way
from carrycast.sim.engine.node import SimPort
from carrycast.sim.testing import Net

TWO = hash_filter("topic = 2")
SALT = 7


def two(number: int) -> Event:
    return Event(EventId(9, number), {"topic": 2}, lease_s=60.0)


def audit(first: int, until: int, total: int, number: int = 1) -> Audit:
    return Audit(9, number, first, until, SALT, {TWO: total})


def hashes(*numbers: int) -> int:
    return hash_ids((EventId(9, number) for number in numbers), SALT)


def with_two_events() -> Bench:
    bench = on_the_way()
    for number in (3, 4):
        bench.hear(1, TreeData(two(number), 2, 50.0), now=QUIET)
    return bench


def test_who_has_all_that_was_sent_passes_the_look_on_once() -> None:
    bench = with_two_events()
    look = audit(0, 4, hashes(3, 4))
    assert bench.hear(1, look, now=QUIET + 5) == [look]
    assert bench.hear(1, look, now=QUIET + 5) == []


def test_who_lacks_something_ends_the_bet() -> None:
    bench = with_two_events()
    said = bench.hear(1, audit(0, 5, hashes(3, 4, 5)), now=QUIET + 5)
    assert TreeEnd(((9, 1),)) in said
    assert [fact.kind for fact in bench.notes] == ["path_leaks"]


def test_who_wants_something_else_looks_at_nothing() -> None:
    bench = with_two_events()
    look = Audit(9, 1, 0, 5, SALT, {hash_filter("topic = 3"): 77})
    assert bench.hear(1, look, now=QUIET + 5) == [look]


def test_who_has_just_changed_what_it_wants_does_not_look() -> None:
    bench = with_two_events()
    bench.node.on_subscribe(QUIET + 4, Subscription(SubscriptionId(0, 7), "topic = 4"))
    bench.settle()
    look = audit(0, 5, hashes(3, 4, 5))
    assert bench.hear(1, look, now=QUIET + 5) == [look]


@pytest.mark.parametrize("look", [audit(0, 5, 1, number=2), Audit(0, 1, 0, 5, SALT, {}), Audit(8, 1, 0, 5, SALT, {})])
def test_a_look_at_what_does_not_stand_is_dropped_by_name(look: Audit) -> None:
    bench = with_two_events()
    assert bench.hear(1, look, now=QUIET + 5) == []
    assert bench.reasons() == ["path_over"]


def test_a_source_that_never_looks_fills_no_memory() -> None:
    audited = AuditedEvents()
    for number in range(3 * MAX_EVENTS):
        audited.add(event(9, number))
    assert len(audited.events) == MAX_EVENTS
    assert audited.hash_matching(Filter("topic = 1"), -1, MAX_EVENTS, SALT) == hash_ids((), SALT)


SWALLOWER: NodeId = 1


@pytest.mark.parametrize("swallows", [True, False])
def test_what_a_node_of_the_path_swallows_comes_by_other_ways(monkeypatch: pytest.MonkeyPatch, swallows: bool) -> None:
    """A ring of ten: 0 is the source, 2 wants its events, and 1, between them, passes none on."""
    net = Net.ring(10, "drift")
    honest = SimPort.send
    swallowed = []

    def send(port: Port, to: NodeId, what: Message, via: Interface | None = None, token: Token | None = None) -> None:
        if swallows and port is net.protocol(SWALLOWER).port and isinstance(what, TreeData):
            swallowed.append(what)
        else:
            assert isinstance(port, SimPort)
            honest(port, to, what, via, token)

    monkeypatch.setattr(SimPort, "send", send)
    net.subscribe(2, "topic = 1")
    net.run(12)
    published = []
    for _ in range(60):
        published.append(net.publish(0, {"topic": 1}, lease_s=30.0).id)
        net.run(1)
    net.run(10)
    assert sorted(one.id for one in net.delivered(2)) == published
    assert bool(swallowed) == swallows
    # Without a reason nobody complains.
    assert bool(net.rows("path_leaks")) == swallows
    assert net.sent("Audit") > 0
