"""Recovery with a durable store: brokers and clients keep events over a crash and send them afterwards."""

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.protocol.effects import Deliver
from carrycast.protocols.tree.messages import RecoveryDigest
from carrycast.protocols.tree.recovery import MAX_IDS
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.protocols.tree.tests.web import Web
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario

EVERYTHING = Subscription(SubscriptionId(0, 0), "true")
EVENT = Event(EventId(2, 0), {}, lease_s=1000.0)


def make_line(brokers: tuple[int, ...] | None = None, durable: bool = True, **settings: object) -> Web:
    """Make a line: 0 subscribes, 1 is between, 2 publishes."""
    web = Web(3, brokers, links="given", recover_s=1.0, durable=durable, **settings)
    web.link(0, 1)
    web.link(1, 2)
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.settle()
    return web


def publish_alone_and_crash(web: Web) -> None:
    """Node 2 publishes without a neighbor, crashes, and then gets a link to 1 again."""
    web.cut(1, 2)
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.crash(2)
    web.link(1, 2)
    web.run(10.0)


def test_a_durable_broker_that_crashes_still_sends_its_publications() -> None:
    for durable, delivered in ((True, [Deliver(EVERYTHING.id, EVENT, 2)]), (False, [])):
        web = make_line(durable=durable)
        publish_alone_and_crash(web)
        assert web.list_effects(0, Deliver) == delivered


def test_a_durable_broker_on_the_path_that_crashes_still_forwards_events() -> None:
    web = make_line()
    web.cut(0, 1)
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.cut(1, 2)
    web.crash(1)
    web.link(0, 1)
    web.run(10.0)
    assert web.list_effects(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)]


def test_a_durable_client_offers_its_publications_to_its_broker() -> None:
    web = make_line(brokers=(0, 1))
    publish_alone_and_crash(web)
    assert web.list_effects(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)]


def test_a_durable_broker_that_crashes_delivers_no_duplicate() -> None:
    web = make_line()
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.cut(0, 1)
    web.crash(0)
    web.nodes[0].on_subscribe(web.now, EVERYTHING)
    web.link(0, 1)
    web.run(10.0)
    assert web.list_effects(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)], "before the crash, and not again"


def test_an_event_without_a_lease_is_not_recovered_again_after_its_eviction() -> None:
    web = make_line(recover_lease_s=5000.0)
    web.nodes[2].on_publish(web.now, Event(EventId(2, 0), {}))
    web.settle()
    web.run(5200.0)
    assert len(web.list_effects(0, Deliver)) == 1
    assert {(node, fact.reason) for node, fact in web.list_facts("evict")} == {
        (node, "lease_over") for node in range(3)
    }


def test_many_events_are_recovered_in_several_rounds() -> None:
    web = make_line()
    web.cut(0, 1)
    for number in range(3 * MAX_IDS + 1):
        web.nodes[2].on_publish(web.now, Event(EventId(2, number), {}, lease_s=1000.0))
    web.settle()
    web.link(0, 1)
    web.run(60.0)
    assert len(web.list_effects(0, Deliver)) == 3 * MAX_IDS + 1
    assert (
        max(len(message.events) for _, _, message in web.take_sent() if isinstance(message, RecoveryDigest)) == MAX_IDS
    )


def test_an_eviction_from_a_full_buffer_has_a_reason() -> None:
    web = make_line(recover_buffer=1)
    for number in range(2):
        web.nodes[2].on_publish(web.now, Event(EventId(2, number), {}, lease_s=1000.0))
    web.settle()
    assert web.list_facts("evict") == [(node, Fact("evict", EventId(2, 0), reason="buffer_full")) for node in (2, 1, 0)]


def test_durable_without_recovery_is_rejected() -> None:
    with pytest.raises(ValueError, match="durable needs recover_s"):
        TreeSettings(durable=True)


@pytest.mark.parametrize("recover_s", [0.01, 2.0, 500.0])
@pytest.mark.parametrize("lease_s", [0.5, 7.3, 40.0])
@pytest.mark.parametrize("brokers", ["all", [0, 1]])
def test_no_event_is_kept_past_its_lease_for_any_interval_of_rounds(
    recover_s: float, lease_s: float, brokers: object
) -> None:
    """The simulator's checkers end a run in which a node stores an event past its lease."""
    table = {
        "duration_s": 100.0,
        "nodes": 3,
        "mobility": {"model": "given", "positions": [[0, 0], [100, 0], [200, 0]]},
        "radio": {"model": "disk", "range_m": 120.0},
        "protocol": {"name": "tree", "variant": "recovering", "durable": True, "recover_s": recover_s},
        "roles": {"broker": brokers},
        "subscribe": [{}],
        "publish": [{"count": 20, "lease_s": lease_s}, {"count": 3, "lease_s": 2 * lease_s}],
        "faults": [{"kind": "crash", "nodes": [1], "at_s": 30.0, "down_s": 5.0}],
    }
    assert run(parse_scenario(table, "kept"), 1).metrics["delivered"]
