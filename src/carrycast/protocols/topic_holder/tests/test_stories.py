"""Small networks: the figures of the paper in both modes and over both routers, proximity, holders that fail."""

import math

import pytest

from carrycast.core.model import Area, Event, NodeId, SubscriptionId
from carrycast.protocols.topic_holder.protocol import TopicHolder
from carrycast.protocols.topic_holder.rules import home_nodes, home_place, topic_key
from carrycast.protocols.topic_holder.settings import SCHEMES
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.testing import Net
from carrycast.trace import Level

TAU = topic_key("tau")
SIDE = 5
GRID = [(100.0 * x, 100.0 * y) for y in range(SIDE) for x in range(SIDE)]
GROUND = Area(401.0, 401.0)
HOME = home_place(TAU, 0, GROUND)
BY_PLACE = ["broker_gpsr", "rendezvous_gpsr"]
BY_NODE = ["broker_aodv", "rendezvous_aodv"]
# Four corners and the middle of a side, as far from each other as the figures have them.
S1, S2, S3, S4, P1 = 0, 4, 20, 24, 2


def get_node(net: Net, id: NodeId) -> TopicHolder:
    protocol = net.protocol(id)
    assert isinstance(protocol, TopicHolder)
    return protocol


def measure_distance_m(id: NodeId) -> float:
    return math.dist(GRID[id], HOME)


def make_grid(scheme: str, **settings: object) -> Net:
    quiet = {"discovery": {"mode": "none"}}
    return Net(len(GRID), "topic_holder", {"variant": scheme, **settings}, quiet, positions=GRID)


def list_holders(net: Net) -> dict[NodeId, set[NodeId]]:
    """Return the nodes that hold subscriptions of the topic, and their subscribers."""
    tables = {id: get_node(net, id).table.entries(net.machine(id).now(), TAU) for id in range(len(GRID))}
    return {id: {entry.subscription.subscriber for entry in entries} for id, entries in tables.items() if entries}


def list_handlers(net: Net, event: Event) -> list[NodeId]:
    return [id for id in range(len(GRID)) if event.id in get_node(net, id).handled]


def play_figure(scheme: str, **settings: object) -> tuple[Net, Event]:
    """[003 Figures 1 and 2] Four subscribers and a publisher of a topic; e matches only the predicates of S3 and S4."""
    net = make_grid(scheme, **settings)
    for subscriber, least in ((S1, 80), (S2, 90), (S3, 10), (S4, 20)):
        net.subscribe(subscriber, f"topic = 'tau' and speed > {least}")
    net.run(5)
    # In rendezvous mode P1 then has its list, as in the figure, when it publishes e.
    net.publish(P1, {"topic": "tau", "speed": 0})
    net.run(5)
    event = net.publish(P1, {"topic": "tau", "speed": 50})
    net.run(2)
    return net, event


@pytest.mark.parametrize("scheme", [*BY_PLACE, *BY_NODE])
def test_figures_1_and_2(scheme: str) -> None:
    """[003 §3.4]"""
    net, event = play_figure(scheme, **({"capture_m": 0.0} if scheme in BY_PLACE else {}))
    delivered = {id: net.list_delivered(id) for id in range(len(GRID))}
    assert delivered == {id: [event] if id in (S3, S4) else [] for id in range(len(GRID))}
    assert net.count_dropped("not_wanted") == 0, "e was not sent to S1 and S2"
    b1 = min(range(len(GRID)), key=measure_distance_m)
    if scheme in BY_NODE:
        (b1,) = home_nodes(TAU, 0, 1, range(len(GRID)), 0)
    assert list_holders(net) == {b1: {S1, S2, S3, S4}}
    if scheme.startswith("broker"):
        assert list_handlers(net, event) == [b1]
    else:
        assert list_handlers(net, event) == []
        listed = get_node(net, P1).publisher.entries(net.machine(P1).now(), TAU)
        assert listed is not None
        assert {entry.subscription.subscriber for entry in listed} == {S1, S2, S3, S4}


@pytest.mark.parametrize("scheme", BY_PLACE)
def test_all_nodes_within_k_have_the_same_table_and_one_handles_each_event(scheme: str) -> None:
    """[003 §3.5] K is half the radio's range, so all nodes within K are neighbors."""
    range_m = 300.0
    net = Net(
        len(GRID),
        "topic_holder",
        {"variant": scheme, "capture_m": range_m / 2},
        {"discovery": {"mode": "none"}, "radio": {"range_m": range_m}},
        positions=GRID,
    )
    for subscriber in (S1, S2, S3, S4):
        net.subscribe(subscriber, "topic = 'tau'")
    net.run(6)
    near = [id for id in range(len(GRID)) if measure_distance_m(id) <= range_m / 2]
    assert len(near) >= 4
    tables = list_holders(net)
    assert [tables[id] for id in near] == [{S1, S2, S3, S4}] * len(near)
    events = []
    for publisher in (P1, 10, 14, 22):
        events.append(net.publish(publisher, {"topic": "tau"}))
        net.run(1)
    for subscriber in (S1, S2, S3, S4):
        assert net.list_delivered(subscriber) == events
    for event in events:
        by = list_handlers(net, event)
        assert by == [] if scheme.startswith("rendezvous") else (len(by) == 1 and by[0] in near)
    assert net.count_dropped("already_delivered") == net.count_dropped("already_handled") == 0


@pytest.mark.parametrize("scheme", [*BY_PLACE, *BY_NODE])
def test_an_event_is_not_sent_to_nodes_that_its_policy_excludes(scheme: str) -> None:
    """[003 §2] Condition 3 is evaluated at the holder or at the publisher, before an event is sent."""
    net = make_grid(scheme)
    for subscriber, rank in ((S1, "major"), (S2, "minor"), (S3, None)):
        net.subscribe(subscriber, "topic = 'tau'", {} if rank is None else {"rank": rank})
    net.run(5)
    event = net.publish(P1, {"topic": "tau"}, access="rank = 'major'")
    net.run(5)
    assert [net.list_delivered(id) for id in (S1, S2, S3)] == [[event], [], []]
    assert net.count_dropped("not_wanted") == 0
    received = {row["node"] for row in net.rows("receive", event=str(event.id)) if row["node"] in (S2, S3)}
    assert received == set(), "at the corners of the grid no packet for other nodes passes"


@pytest.mark.parametrize("scheme", BY_NODE)
def test_the_next_node_by_hash_replaces_a_crashed_holder(scheme: str) -> None:
    """[003 §3.4]"""
    first, second = home_nodes(TAU, 0, 1, range(len(GRID)), 1)
    net = make_grid(scheme, next_holders=1)
    net.subscribe(S4, "topic = 'tau'")
    net.run(5)
    assert list_holders(net) == {first: {S4}}
    net.crash(first)
    net.run(15)
    # AODV searches for some 21 s before it gives up on the first, and an event waits for a list no longer than 3 s.
    net.publish(P1, {"topic": "tau"})
    net.run(25)
    assert list_holders(net) == {second: {S4}}
    event = net.publish(P1, {"topic": "tau"})
    net.run(5)
    assert net.list_delivered(S4)[-1] == event


@pytest.mark.parametrize("scheme", [*BY_PLACE, *BY_NODE])
def test_a_changed_subscription_takes_effect_after_a_refresh(scheme: str) -> None:
    """[003 §3.4] Logical mobility."""
    net = make_grid(scheme)
    old = net.subscribe(S1, "topic = 'rho'")
    net.run(4)
    net.unsubscribe(old)
    new = net.subscribe(S1, "topic = 'tau'")
    net.run(4)
    net.publish(P1, {"topic": "rho"})
    event = net.publish(P1, {"topic": "tau"})
    net.run(5)
    assert net.list_delivered(S1) == net.list_delivered(S1, new) == [event]


@pytest.mark.parametrize("settings", [{"publish_to": "one"}, {"publish_to": "all"}], ids=["one", "all"])
@pytest.mark.parametrize("scheme", [*BY_PLACE, *BY_NODE])
def test_several_holders_of_a_topic_deliver_once(scheme: str, settings: dict[str, object]) -> None:
    """[003 §3.2.1]"""
    net = make_grid(scheme, holders=3, **settings)
    net.subscribe(S4, "topic = 'tau'")
    net.run(5)
    assert len(list_holders(net)) >= 3
    event = net.publish(P1, {"topic": "tau"})
    net.run(5)
    assert net.list_delivered(S4) == [event]


def test_a_filter_without_a_topic_is_served_only_on_its_own_node() -> None:
    net = make_grid("broker_aodv")
    everything = net.subscribe(P1, "speed > 3")
    net.subscribe(S1, "speed > 3")
    net.run(3)
    event = net.publish(P1, {"topic": "tau", "speed": 5})
    net.run(3)
    assert net.list_delivered(P1) == net.list_delivered(P1, everything) == [event]
    assert net.list_delivered(S1) == []
    assert net.count_dropped("topic_not_pinned") == 2
    assert isinstance(everything, SubscriptionId)


RADIOS: list[dict[str, object]] = [{"model": "disk", "range_m": 250.0}, {"model": "csma", "preset": "ns2"}]


def make_scenario(scheme: str, radio: dict[str, object], **settings: object) -> Scenario:
    """Make a scenario of vehicles on a highway, with losses, duplicates and crashes."""
    return parse_scenario(
        {
            "duration_s": 40.0,
            "nodes": 40,
            "mobility": {"model": "freeway", "map": "highway", "speed_min_mps": 5.0, "speed_max_mps": 30.0},
            "radio": radio,
            "protocol": {"name": "topic_holder", "variant": scheme, **settings},
            "subscribe": [{"nodes": 12, "filter": "topic = 'jam' and speed < 15", "attributes": {"rank": 2}}],
            "publish": [
                {
                    "nodes": 4,
                    "every_s": 4.0,
                    "from_s": 5.0,
                    "lease_s": 20.0,
                    "attributes": {"topic": "jam", "speed": 3},
                },
                {"nodes": 2, "every_s": 4.0, "from_s": 5.0, "access": "rank > 2", "attributes": {"topic": "jam"}},
            ],
            "faults": [
                {"kind": "loss", "probability": 0.02},
                {"kind": "duplication", "probability": 0.1},
                {"kind": "crash", "nodes": 6, "every_s": 15.0, "down_s": 3.0},
            ],
        },
        "roads",
    )


@pytest.mark.parametrize("radio", RADIOS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_six_schemes_keep_the_rules_under_faults(scheme: str, radio: dict[str, object]) -> None:
    check_rules(make_scenario(scheme, radio))


@pytest.mark.parametrize(
    ("scheme", "radio", "settings"),
    [
        ("broker_gpsr_map", 1, {"fan_out": "tree", "hand_over": True, "refresh_s": 4.0, "timeout_s": 12.0}),
        ("rendezvous_gpsr_map", 0, {"fan_out": "tree", "hand_over": True, "holders": 2}),
        ("broker_aodv", 1, {"fan_out": "tree"}),
    ],
)
def test_schemes_beyond_the_paper_keep_the_rules_under_faults(
    scheme: str, radio: int, settings: dict[str, object]
) -> None:
    check_rules(make_scenario(scheme, RADIOS[radio], **settings))


def check_rules(scenario: Scenario) -> None:
    done = run(scenario, 2, Level.FULL, recode=True)
    rows = done.trace.table().to_pylist()
    assert any(row["kind"] == "deliver" for row in rows)
    assert done.metrics["discovery_bytes"] == 0, "the router has its own beacons"
    assert not [row for row in rows if row["kind"] == "drop" and row["reason"] == "not_wanted"]
