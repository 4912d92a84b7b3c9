"""Audits of multicast trees: a node that swallows events is noticed, and no event is lost."""

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Interface, Port, Token
from carrycast.core.wire import Message
from carrycast.protocols.drift.audit import MAX_EVENTS, AuditedEvents, hash_filter
from carrycast.protocols.drift.messages import Audit, TreeData, TreeEnd
from carrycast.protocols.drift.set_hash import hash_ids
from carrycast.protocols.drift.test_drift import Bench, event
from carrycast.protocols.drift.test_multicast_trees import QUIET, make_inner_node
from carrycast.sim.engine.node import SimPort
from carrycast.sim.testing import Net

TWO = hash_filter("topic = 2")
SALT = 7


def make_event(number: int) -> Event:
    return Event(EventId(9, number), {"topic": 2}, lease_s=60.0)


def audit(first: int, until: int, total: int, number: int = 1) -> Audit:
    return Audit(9, number, first, until, SALT, {TWO: total})


def hash_events(*numbers: int) -> int:
    return hash_ids((EventId(9, number) for number in numbers), SALT)


def make_bench_with_two_events() -> Bench:
    bench = make_inner_node()
    for number in (3, 4):
        bench.hear(1, TreeData(make_event(number), 2, 50.0), now=QUIET)
    return bench


def test_a_node_with_all_events_forwards_the_audit_once() -> None:
    bench = make_bench_with_two_events()
    audited = audit(0, 4, hash_events(3, 4))
    assert bench.hear(1, audited, now=QUIET + 5) == [audited]
    assert bench.hear(1, audited, now=QUIET + 5) == []


def test_a_node_that_is_missing_an_event_ends_the_tree() -> None:
    bench = make_bench_with_two_events()
    broadcasts = bench.hear(1, audit(0, 5, hash_events(3, 4, 5)), now=QUIET + 5)
    assert TreeEnd(((9, 1),)) in broadcasts
    assert [fact.kind for fact in bench.notes] == ["path_leaks"]


def test_a_node_with_other_filters_only_forwards_the_audit() -> None:
    bench = make_bench_with_two_events()
    audited = Audit(9, 1, 0, 5, SALT, {hash_filter("topic = 3"): 77})
    assert bench.hear(1, audited, now=QUIET + 5) == [audited]


def test_a_node_whose_filters_have_just_changed_does_not_compare() -> None:
    bench = make_bench_with_two_events()
    bench.node.on_subscribe(QUIET + 4, Subscription(SubscriptionId(0, 7), "topic = 4"))
    bench.settle()
    audited = audit(0, 5, hash_events(3, 4, 5))
    assert bench.hear(1, audited, now=QUIET + 5) == [audited]


@pytest.mark.parametrize(
    "audited", [audit(0, 5, 1, number=2), Audit(0, 1, 0, 5, SALT, {}), Audit(8, 1, 0, 5, SALT, {})]
)
def test_an_audit_of_an_unknown_tree_is_dropped_with_a_reason(audited: Audit) -> None:
    bench = make_bench_with_two_events()
    assert bench.hear(1, audited, now=QUIET + 5) == []
    assert bench.reasons() == ["path_over"]


def test_events_of_a_source_without_audits_are_bounded() -> None:
    audited = AuditedEvents()
    for number in range(3 * MAX_EVENTS):
        audited.add(event(9, number))
    assert len(audited.events) == MAX_EVENTS
    assert audited.hash_matching(Filter("topic = 1"), -1, MAX_EVENTS, SALT) == hash_ids((), SALT)


SWALLOWER: NodeId = 1


@pytest.mark.parametrize("swallows", [True, False])
def test_events_that_a_node_of_the_tree_swallows_arrive_over_other_paths(
    monkeypatch: pytest.MonkeyPatch, swallows: bool
) -> None:
    """A ring of ten: 0 is the source, 2 is interested in its events, and 1, between them, forwards none."""
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
    assert sorted(one.id for one in net.list_delivered(2)) == published
    assert bool(swallowed) == swallows
    # Without a swallowed event no node reports a leak.
    assert bool(net.rows("path_leaks")) == swallows
    assert net.count_sent("Audit") > 0
