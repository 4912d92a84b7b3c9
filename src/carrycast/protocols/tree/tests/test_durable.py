"""What brokers and clients keep for recovery in the durable store, and give to others when they are back."""

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


def line(brokers: tuple[int, ...] | None = None, durable: bool = True, **settings: object) -> Web:
    """0 subscribes, 1 is between, 2 publishes."""
    web = Web(3, brokers, links="given", recover_s=1.0, durable=durable, **settings)
    web.link(0, 1)
    web.link(1, 2)
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.settle()
    return web


def publish_alone_and_die(web: Web) -> None:
    """2 publishes while it meets nobody, is killed, and meets 1 again when it is back."""
    web.cut(1, 2)
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.crash(2)
    web.link(1, 2)
    web.run(10.0)


def test_a_broker_that_is_killed_before_it_meets_anybody_brings_what_it_published() -> None:
    for durable, brought in ((True, [Deliver(EVERYTHING.id, EVENT, 2)]), (False, [])):
        web = line(durable=durable)
        publish_alone_and_die(web)
        assert web.of(0, Deliver) == brought


def test_a_broker_on_the_way_that_is_killed_brings_what_it_was_given() -> None:
    web = line()
    web.cut(0, 1)
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.cut(1, 2)
    web.crash(1)
    web.link(0, 1)
    web.run(10.0)
    assert web.of(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)]


def test_a_client_offers_its_broker_what_it_published_on_its_own() -> None:
    web = line(brokers=(0, 1))
    publish_alone_and_die(web)
    assert web.of(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)]


def test_who_was_killed_does_not_take_again_what_it_has_met() -> None:
    web = line()
    web.nodes[2].on_publish(web.now, EVENT)
    web.settle()
    web.cut(0, 1)
    web.crash(0)
    web.nodes[0].on_subscribe(web.now, EVERYTHING)
    web.link(0, 1)
    web.run(10.0)
    assert web.of(0, Deliver) == [Deliver(EVERYTHING.id, EVENT, 2)], "before it was killed, and not again"


def test_a_lease_without_end_is_no_reason_to_take_an_event_again_when_it_is_forgotten() -> None:
    web = line(recover_lease_s=5000.0)
    web.nodes[2].on_publish(web.now, Event(EventId(2, 0), {}))
    web.settle()
    web.run(5200.0)
    assert len(web.of(0, Deliver)) == 1
    assert {(node, fact.reason) for node, fact in web.facts("evict")} == {(node, "lease_over") for node in range(3)}


def test_more_than_fits_in_a_message_is_told_in_rounds_until_all_has_come() -> None:
    web = line()
    web.cut(0, 1)
    for number in range(3 * MAX_IDS + 1):
        web.nodes[2].on_publish(web.now, Event(EventId(2, number), {}, lease_s=1000.0))
    web.settle()
    web.link(0, 1)
    web.run(60.0)
    assert len(web.of(0, Deliver)) == 3 * MAX_IDS + 1
    assert (
        max(len(message.events) for _, _, message in web.take_sent() if isinstance(message, RecoveryDigest)) == MAX_IDS
    )


def test_what_has_to_make_room_goes_by_name() -> None:
    web = line(recover_buffer=1)
    for number in range(2):
        web.nodes[2].on_publish(web.now, Event(EventId(2, number), {}, lease_s=1000.0))
    web.settle()
    assert web.facts("evict") == [(node, Fact("evict", EventId(2, 0), reason="buffer_full")) for node in (2, 1, 0)]


def test_durable_without_recovery_is_refused() -> None:
    with pytest.raises(ValueError, match="durable needs recover_s"):
        TreeSettings(durable=True)


@pytest.mark.parametrize("recover_s", [0.01, 2.0, 500.0])
@pytest.mark.parametrize("lease_s", [0.5, 7.3, 40.0])
@pytest.mark.parametrize("brokers", ["all", [0, 1]])
def test_nothing_is_kept_past_its_lease_however_far_apart_rounds_are(
    recover_s: float, lease_s: float, brokers: object
) -> None:
    """The simulator's checkers end a run in which a node says that it stores an event that is over."""
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
