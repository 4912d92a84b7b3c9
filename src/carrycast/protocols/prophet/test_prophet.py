"""PRoPHET: its equations worked by hand, its table, and stories of small networks."""

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.parts import BufferedEvent, ProfileVersion
from carrycast.core.parts.exchange_messages import CopyOffer, CopyRequest, CopyTransfer
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Note
from carrycast.protocols.prophet.messages import (
    FIXED_POINT_ONE,
    ProfileRequest,
    ProfileResponse,
    RibEntry,
    RoutingInformation,
    SubscriptionProfile,
)
from carrycast.protocols.prophet.protocol import ForwardingRule, Prophet
from carrycast.protocols.prophet.rules import age, update_encounter, update_transitivity
from carrycast.protocols.prophet.settings import ProphetSettings
from carrycast.protocols.prophet.table import RoutingInformationBase
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=600.0)
ONE = ProfileVersion(0, 1)


def update(last: float | None, since_s: float) -> float:
    return update_encounter(last, since_s, first=0.5, most=0.7, typical_s=1800.0, threshold=0.1, delta=0.01)


def test_equation_1_encounter() -> None:
    assert update(None, 0.0) == 0.5
    assert update(0.05, 100.0) == 0.5, "below the threshold"
    # 0.5 + (1 - 0.01 - 0.5) 0.7 = 0.5 + 0.49 * 0.7 = 0.843
    assert update(0.5, 1800.0) == pytest.approx(0.843)
    assert update(0.5, 1e9) == pytest.approx(0.843)
    # After a third of the typical interval: 0.5 + 0.49 * 0.7 / 3
    assert update(0.5, 600.0) == pytest.approx(0.5 + 0.343 / 3)
    assert update(0.5, 0.0) == 0.5, "a link that flaps is one encounter"
    assert update(0.995, 1800.0) == 0.995, "an encounter does not lower it"


def test_equation_2_aging() -> None:
    assert age(0.8, 0.9, 2.0) == pytest.approx(0.648)
    assert age(0.8, 0.9, 0.0) == 0.8
    assert age(0.8, 0.9, -5.0) == 0.8, "a clock that is set back does not increase it"


def test_a_restarted_node_with_the_same_filters_is_still_a_destination() -> None:
    table = RoutingInformationBase(0, ProphetSettings())
    table.on_encounter(0.0, 5)
    assert table.add_profile(5, ProfileVersion(1, 1), ("topic = 1",))
    assert table.add_profile(5, ProfileVersion(2, 1), ("topic = 1",))
    assert table.destinations(EVENT) == [5]


def test_equation_3_transitivity() -> None:
    assert update_transitivity(0.1, 0.8, 0.5, 0.9) == pytest.approx(0.36)
    assert update_transitivity(0.4, 0.8, 0.5, 0.9) == 0.4


def test_predictabilities_age_and_are_forgotten_below_the_threshold() -> None:
    table = RoutingInformationBase(0, ProphetSettings(gamma=0.9, unit_s=10.0))
    table.on_encounter(0.0, 1)
    assert table.predictability(20.0, 1) == pytest.approx(0.405)
    table.on_neighbor_entry(20.0, 1, 2, 1.0)
    assert table.predictability(20.0, 2) == pytest.approx(0.405 * 0.9)
    assert table.add_profile(2, ONE, ("topic = 1",))
    assert table.destinations(EVENT) == [2]
    table.prune(200.0)
    assert len(table) == 0
    assert table.destinations(EVENT) == []
    assert table.predictability(200.0, 2) == 0.0


def test_a_full_table_removes_the_smallest_predictability() -> None:
    table = RoutingInformationBase(0, ProphetSettings(destinations=2))
    table.on_encounter(0.0, 1)
    table.on_encounter(0.0, 2)
    table.on_encounter(1800.0, 2)
    table.on_encounter(1800.0, 3)
    assert table.predictability(1800.0, 1) == 0.0
    assert table.predictability(1800.0, 2) > table.predictability(1800.0, 3) > 0.0


def test_newer_profiles_replace_older_ones() -> None:
    table = RoutingInformationBase(0, ProphetSettings())
    table.on_encounter(0.0, 1)
    assert table.add_profile(1, ProfileVersion(1, 2), ("topic = 1",))
    assert table.add_profile(1, ProfileVersion(1, 1), ("topic = 2",))
    assert table.filters(1) == ("topic = 1",)
    assert table.add_profile(1, ProfileVersion(2, 1), ("topic = 2",)), "it has restarted"
    assert table.filters(1) == ("topic = 2",)
    assert table.add_profile(9, ONE, ("topic = 1",))
    assert table.version(9) is None, "nodes without a predictability have no profile"


def make_carrier() -> tuple[Protocol, RecordingPort]:
    """Make node 7, which carries an event, with neighbor 1."""
    prophet, port = isolate_protocol("prophet", node=7)
    prophet.on_publish(0.0, EVENT)
    prophet.on_link_up(0.0, Link(1, "radio", 0.001))
    prophet.on_message(0.0, 1, SubscriptionUpdate(()), "radio")
    port.take()
    return prophet, port


def test_an_event_is_copied_to_a_neighbor_with_a_greater_predictability() -> None:
    prophet, port = make_carrier()
    prophet.on_message(
        1.0, 1, RoutingInformation(ProfileVersion(0, 0), (RibEntry(2, ONE, FIXED_POINT_ONE // 2),)), "radio"
    )
    assert port.take_messages() == [ProfileRequest((2,))]
    prophet.on_message(1.0, 1, ProfileResponse((SubscriptionProfile(2, ONE, ("topic = 1",)),)), "radio")
    assert port.take_messages() == [CopyOffer((EVENT.id,))], "0.5 there, 0.5 * 0.5 * 0.9 here"
    prophet.on_message(1.0, 1, CopyRequest((EVENT.id,)), "radio")
    assert port.take_messages() == [CopyTransfer(EVENT, 1, 599.0, 1)]
    assert EVENT.id in prophet.buffer.events, "the copy here stays"  # type: ignore[attr-defined]


def test_an_event_is_not_copied_to_a_neighbor_with_a_smaller_predictability() -> None:
    prophet, port = make_carrier()
    prophet.on_link_up(1.0, Link(2, "radio", 0.001))
    prophet.on_link_down(2.0, Link(2, "radio", 0.001), Failure.SILENT)
    port.take()
    prophet.on_message(
        3.0, 1, RoutingInformation(ProfileVersion(0, 0), (RibEntry(2, ONE, FIXED_POINT_ONE // 4),)), "radio"
    )
    prophet.on_message(3.0, 1, ProfileResponse((SubscriptionProfile(2, ONE, ("topic = 1",)),)), "radio")
    assert [one for one in port.take_messages() if isinstance(one, CopyOffer)] == []


def test_a_node_sends_its_rib_and_requested_profiles() -> None:
    prophet, port = make_carrier()
    prophet.on_subscribe(0.0, Subscription(SubscriptionId(7, 0), "topic = 3"))
    prophet.on_message(1.0, 1, RoutingInformation(ONE, ()), "radio")
    prophet.on_message(1.0, 1, ProfileResponse((SubscriptionProfile(1, ONE, ("topic = 1",)),)), "radio")
    port.take()
    prophet.on_link_up(2.0, Link(3, "radio", 0.001))
    sent = [one for one in port.take_messages() if isinstance(one, RoutingInformation)]
    assert sent == [
        RoutingInformation(ProfileVersion(0, 1), (RibEntry(1, ONE, round(0.5 * 0.999 ** (2 / 30) * FIXED_POINT_ONE)),))
    ]
    prophet.on_message(2.0, 3, ProfileRequest((1, 7, 99)), "radio")
    [answer] = port.take_messages()
    assert answer == ProfileResponse(
        (SubscriptionProfile(1, ONE, ("topic = 1",)), SubscriptionProfile(7, ProfileVersion(0, 1), ("topic = 3",)))
    )


def test_invalid_messages_are_dropped_with_a_reason() -> None:
    prophet, port = make_carrier()
    prophet.on_message(1.0, 9, RoutingInformation(ONE, ()), "radio")
    assert Note(Fact("drop", peer=9, reason="not_a_neighbor")) in port.take()
    prophet.on_message(1.0, 1, ProfileResponse((SubscriptionProfile(1, ONE, ("topic =",)),)), "radio")
    assert Note(Fact("drop", peer=1, reason="profile_unreadable")) in port.take()


def test_only_a_node_that_meets_the_subscriber_gets_a_copy() -> None:
    """1 has met the subscriber 3 before, 2 has not; both meet the publisher 0."""
    contacts = [(1, 3, 0.0, 10.0), (0, 2, 30.0, 40.0), (0, 1, 50.0, 60.0), (1, 3, 80.0, 90.0), (2, 3, 100.0, 110.0)]
    net = Net.contacts(contacts, "prophet")
    net.subscribe(3, "topic = 1")
    net.run(20)
    event = net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(100)
    assert net.list_delivered(3) == [event]
    assert [row["node"] for row in net.rows("store")] == [0, 1, 3]
    assert [row["time_s"] for row in net.rows("deliver")] == [pytest.approx(80.0, abs=0.1)]


def make_rule(**settings: object) -> ForwardingRule:
    """The rule of node 7, which knows destination 2 with 0.5. Its neighbors 1, 3 and 4 know it with more or less."""
    prophet, _ = isolate_protocol("prophet", node=7, gamma=1.0, threshold=0.0, **settings)  # type: ignore[arg-type]
    assert isinstance(prophet, Prophet)
    rib, rule = prophet._rib, prophet._rule
    rib.on_encounter(0.0, 2)
    assert rib.add_profile(2, ONE, ("topic = 1",))
    rule.neighbor_ribs.update({1: {2: 0.75}, 3: {2: 0.625}, 4: {2: 0.25}})
    prophet.on_publish(0.0, EVENT)
    return rule


def shares(rule: ForwardingRule) -> list[int]:
    """Whether the neighbors 1, 3 and 4 get a copy of the event."""
    stored = rule.events[EVENT.id]
    return [rule.share(1.0, stored, 1, neighbor, wanted=False).given for neighbor in (1, 3, 4)]


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [
        ({"forwarding": "GRTR"}, [1, 1, 0], [1, 1, 0]),
        ({"forwarding": "GTMX", "forwards": 1}, [1, 1, 0], [0, 0, 0]),
        ({"forwarding": "GTMX", "forwards": 2}, [1, 1, 0], [1, 1, 0]),
        ({"forwarding": "GTHR", "forward_above": 0.2}, [1, 1, 1], [1, 1, 1]),
        ({"forwarding": "GRTR+"}, [1, 1, 0], [1, 0, 0]),
        ({"forwarding": "GTMX+", "forwards": 1}, [1, 1, 0], [0, 0, 0]),
    ],
)
def test_each_strategy_forwards_as_the_rfc_says(
    settings: dict[str, object], before: list[int], after: list[int]
) -> None:
    """Before and after the event was forwarded to neighbor 3, whose predictability is 0.625."""
    rule = make_rule(**settings)
    assert shares(rule) == before
    rule.on_transferred(1.0, EVENT.id, 3)
    assert shares(rule) == after
    rule.on_forgotten(EVENT.id)
    assert shares(rule) == before


@pytest.mark.parametrize(("forwarding", "first"), [("GRTRSort", 1), ("GRTRMax", 0), ("GRTR", 0)])
def test_the_sorting_strategies_order_transmissions(forwarding: str, first: int) -> None:
    """Neighbor 1 knows destination 2 with 0.75 (here 0.5) and destination 5 with 0.625 (here nothing)."""
    prophet, _ = isolate_protocol("prophet", node=7, gamma=1.0, threshold=0.0, forwarding=forwarding)
    assert isinstance(prophet, Prophet)
    prophet._rib.on_encounter(0.0, 2)
    prophet._rib.on_encounter(0.0, 1)
    prophet._rib.on_neighbor_entry(0.0, 1, 5, 0.001)
    assert prophet._rib.add_profile(2, ONE, ("topic = 1",))
    assert prophet._rib.add_profile(5, ONE, ("topic = 2",))
    prophet._rule.neighbor_ribs[1] = {2: 0.75, 5: 0.625}
    events = [EVENT, Event(EventId(7, 1), {"topic": 2}, lease_s=600.0)]
    for event in events:
        prophet.on_publish(0.0, event)
    stored = list(prophet.buffer.events.values())
    assert prophet._rule.order(1.0, stored, 1)[0] is stored[first]


@pytest.mark.parametrize(
    ("queueing", "evicted"), [("FIFO", 0), ("MOFO", 1), ("MOPR", 2), ("LinearMOPR", 2), ("SHLI", 3), ("LEPR", 1)]
)
def test_each_policy_evicts_as_the_rfc_says(queueing: str, evicted: int) -> None:
    """1 was forwarded twice over poor nodes, and nobody wants it; 2 once over a good one; 3 expires first."""
    rule = make_rule(queueing=queueing)
    prophet_events = rule.events
    assert isinstance(prophet_events, dict)
    for number, topic, lease_s in ((1, 9, 600.0), (2, 1, 600.0), (3, 1, 60.0)):
        event = Event(EventId(7, number), {"topic": topic}, lease_s=lease_s)
        prophet_events[event.id] = BufferedEvent(lease_s, event.id, event, 0)
    for number, neighbor in ((1, 4), (1, 4), (2, 1)):
        rule.on_transferred(1.0, EventId(7, number), neighbor)
    assert rule.choose_eviction(1.0, list(prophet_events)) == EventId(7, evicted)


def test_variant_v2_knows_nodes_over_many_hops() -> None:
    net = Net.line(6, "prophet", variant="v2")
    net.subscribe(5, "topic = 1")
    net.run(5)
    event = net.publish(0, {"topic": 1})
    net.run(5)
    assert net.list_delivered(5) == [event]


def test_in_a_connected_network_an_event_travels_three_hops() -> None:
    net = Net.line(4, "prophet")
    net.subscribe(3, "topic = 1")
    net.run(5)
    event = net.publish(0, {"topic": 1})
    net.run(5)
    # At 0 it is 0.5 * (0.5 * 0.9) * (0.5 * 0.9) = 0.101, just above the threshold: one hop more is too far.
    assert net.list_delivered(3) == [event]
    farther = Net.line(5, "prophet")
    farther.subscribe(4, "topic = 1")
    farther.run(5)
    farther.publish(0, {"topic": 1})
    farther.run(5)
    assert farther.list_delivered(4) == []
