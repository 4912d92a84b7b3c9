"""Extensions of the paper: tree fan-out, and the hand-over of tables."""

from pathlib import Path

import pytest

from carrycast.core.model import Area, NodeId, Position
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import SendRoutedEach, SetTimer
from carrycast.errors import UserError
from carrycast.protocols.topic_holder.messages import HandOver, HandOverEntry, Notification, Publication, Refresh
from carrycast.protocols.topic_holder.protocol import TopicHolder
from carrycast.protocols.topic_holder.rules import home_place, topic_key
from carrycast.protocols.topic_holder.tests.bench import (
    HERE,
    JAM,
    Bench,
    list_broadcasts,
    list_drops,
    list_routed,
    make_entry,
    make_jam,
    make_subscription,
)
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario
from carrycast.sim.testing import Net

LINE = [(100.0 * number, 50.0) for number in range(8)]
QUIET = {"discovery": {"mode": "none"}, "radio": {"range_m": 120.0}}


# Tree fan-out.


def test_with_tree_fan_out_the_router_gets_all_subscribers_at_once() -> None:
    bench = Bench(fan_out="tree")
    for node in (2, 3):
        bench.receive(1.0, node, Refresh(JAM, make_entry(make_subscription(node))))
    effects = bench.receive(2.0, 8, Publication(make_jam(), 0, 90.0), 4)
    assert effects == [SendRoutedEach((2, 3), Notification(make_jam(), 4, 90.0))]


@pytest.mark.parametrize("scheme", ["broker_aodv", "broker_gpsr", "rendezvous_aodv", "rendezvous_gpsr"])
def test_on_a_line_tree_fan_out_takes_one_transmission_for_each_link(scheme: str) -> None:
    """From node 0 to 3, 5 and 7 it takes 3 + 5 + 7 transmissions by unicast, and 7 as a tree."""
    spent = {}
    for fan_out in ("unicast", "tree"):
        # K is so large that a node of the line is within K of any place.
        settings = {"variant": scheme, "fan_out": fan_out, "capture_m": 75.0}
        net = Net(8, "topic_holder", settings, QUIET, positions=LINE)
        for subscriber in (3, 5, 7):
            net.subscribe(subscriber, "topic = 'tau'")
        net.run(6)
        net.publish(0, {"topic": "tau"})
        net.run(2)
        event = net.publish(0, {"topic": "tau"})
        net.run(2)
        assert [net.list_delivered(node)[-1] for node in (3, 5, 7)] == [event] * 3
        assert net.count_dropped("already_delivered") == 0
        # From the publisher to the broker, and from there (or, in rendezvous mode, from itself) to the subscribers.
        start = next((node for node in range(8) if event.id in get_holder(net, node).handled), 0)
        there = [abs(node - start) for node in (3, 5, 7)]
        spent[fan_out] = len(net.rows("send", event=str(event.id))) - start
        assert spent[fan_out] == (sum(there) if fan_out == "unicast" else max(start - 3, 0) + max(7 - start, 0))
    assert spent["tree"] < spent["unicast"]


def get_holder(net: Net, node: NodeId) -> TopicHolder:
    protocol = net.protocol(node)
    assert isinstance(protocol, TopicHolder)
    return protocol


# Hand-over.


def place_of(bench: Bench) -> Position:
    return bench.node.holders.find_place(JAM)


def position_outside(bench: Bench) -> Position:
    home = bench.node.holders.find_place(JAM)
    return Position(home.x_m + 126.0, home.y_m)


def test_a_holder_that_leaves_its_place_sends_its_table_there() -> None:
    bench = Bench(holder="place", hand_over=True, timeout_s=9.0)
    bench.host.here = place_of(bench)
    one, two = make_entry(make_subscription(2), HERE), make_entry(make_subscription(3), HERE)
    assert SetTimer("watch", 1.0) in bench.receive(1.0, 2, Refresh(JAM, one))
    bench.hear(3.0, 5, Refresh(JAM, two))
    assert bench.tick(4.0, "watch") == [SetTimer("watch", 1.0)], "it is still within K"
    bench.host.here = position_outside(bench)
    effects = bench.tick(5.0, "watch")
    expected = HandOver(JAM, (HandOverEntry(one, 2.0), HandOverEntry(two, 0.0)), 7.0)
    assert list_routed(effects) == [(Place(place_of(bench), 125.0), expected)]
    assert SetTimer("watch", 1.0) not in effects, "no topic is left to watch"


def test_a_captor_of_a_table_keeps_newer_entries_and_broadcasts_it() -> None:
    bench = Bench(holder="place", hand_over=True, timeout_s=9.0)
    bench.host.here = place_of(bench)
    newer = make_entry(make_subscription(2, "topic = 'jam' and length > 5"), HERE, count=7)
    bench.receive(1.0, 2, Refresh(JAM, newer))
    older, other = make_entry(make_subscription(2), HERE, count=6), make_entry(make_subscription(3), HERE)
    table = HandOver(JAM, (HandOverEntry(older, 0.0), HandOverEntry(other, 4.0)), 8.0)
    assert list_broadcasts(bench.receive(2.0, 9, table)) == [table]
    assert bench.hear(2.0, 9, table) == [], "a receiver of the broadcast does not repeat it"
    assert bench.node.table.entries(5.9, JAM) == [newer, other]
    assert bench.node.table.entries(6.0, JAM) == [newer], "it expires no later than at its former holder"


def test_entries_of_a_table_age_and_expire_after_the_time_out() -> None:
    table = HandOver(
        JAM,
        (
            HandOverEntry(make_entry(make_subscription(2), HERE), 98.0),
            HandOverEntry(make_entry(make_subscription(3), HERE), 0.0),
        ),
        100.0,
    )
    later = table.age_by(2.0)
    assert later is not None
    assert [(entry.subscription.subscriber, left_s) for entry, left_s in later.valid_entries()] == [(3, 98.0)]
    assert table.age_by(100.0) is None
    bench = Bench(holder="place", hand_over=True)
    bench.receive(1.0, 9, later)
    assert bench.node.table.entries(3.9, JAM) != []
    assert bench.node.table.entries(4.0, JAM) == []


def test_a_long_table_goes_in_several_messages_and_an_empty_one_in_none() -> None:
    bench = Bench(holder="place", hand_over=True)
    bench.host.here = place_of(bench)
    for node in range(2, 42):
        bench.receive(
            1.0, node, Refresh(JAM, make_entry(make_subscription(node, f"topic = 'jam' and x = '{'y' * 90}'"), HERE))
        )
    bench.host.here = position_outside(bench)
    parts = [message for _, message in list_routed(bench.tick(2.0, "watch"))]
    assert sum(len(part.entries) for part in parts if isinstance(part, HandOver)) == 40
    assert len(parts) >= 4
    bench.host.here = place_of(bench)
    bench.receive(5.0, 2, Refresh(JAM, make_entry(make_subscription(2), HERE, 2)))
    bench.host.here = position_outside(bench)
    assert bench.tick(8.0, "watch") == [], "all entries have expired"


def test_a_node_without_a_position_or_never_within_k_hands_nothing_over() -> None:
    bench = Bench(holder="place", hand_over=True)
    bench.host.here = position_outside(bench)
    assert bench.receive(1.0, 2, Refresh(JAM, make_entry(make_subscription(2), HERE))) == []
    bench.host.here = place_of(bench)
    bench.receive(1.0, 2, Refresh(JAM, make_entry(make_subscription(2), HERE)))
    bench.host.here = None
    assert bench.tick(2.0, "watch") == []


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"hand_over": True}, "hand_over: only a place can be left"),
        ({"hand_over": True, "holder": "place", "capture_m": 0}, "and capture_m above 0"),
        ({"refresh_s": 5.0}, "timeout_s is below refresh_s"),
    ],
)
def test_inconsistent_settings_are_rejected(settings: dict[str, object], error: str) -> None:
    with pytest.raises(UserError, match=error):
        Bench(HERE, **settings)


@pytest.mark.parametrize("holder", ["place", "node"])
def test_without_hand_over_a_table_is_dropped_with_a_reason(holder: str) -> None:
    bench = Bench(holder=holder)
    table = HandOver(JAM, (HandOverEntry(make_entry(make_subscription(2), HERE), 0.0),), 1.0)
    assert list_drops(bench.receive(1.0, 9, table)) == ["no_hand_over"]
    assert list_drops(bench.hear(1.0, 9, table)) == ["no_hand_over"]
    assert len(bench.node.table) == 0


def test_a_table_with_an_invalid_entry_is_not_broadcast() -> None:
    bench = Bench(holder="place", hand_over=True)
    bench.host.here = place_of(bench)
    good, bad = make_entry(make_subscription(2), HERE), make_entry(make_subscription(3), Position(1e9, 0.0))
    effects = bench.receive(1.0, 9, HandOver(JAM, (HandOverEntry(good, 0.0), HandOverEntry(bad, 0.0)), 1.0))
    assert (list_drops(effects), list_broadcasts(effects)) == (["absurd_position"], [])
    assert bench.node.table.entries(1.5, JAM) == [good]


def test_an_unreachable_table_is_dropped_with_a_reason() -> None:
    bench = Bench(holder="place", hand_over=True)
    table = HandOver(JAM, (HandOverEntry(make_entry(make_subscription(2), HERE), 0.0),), 1.0)
    bench.node.on_unreachable(1.0, Place(HERE, 125.0), table)
    assert list_drops(bench.port.take()) == ["unreachable"]


SQUARE = Area(1000.0, 1000.0)


def write_movement(folder: Path, home: Position) -> Path:
    """Write the movement of four nodes: 0 publishes and 1 subscribes, 200 m from the place on either side. At 110 s
    node 2, the holder, leaves the place; node 3 has arrived there at 108 s from out of range."""
    starts = {0: (0, -200), 1: (0, 200), 2: (0, 0), 3: (400, 0)}
    lines = []
    for node, (x_m, y_m) in starts.items():
        lines += [f"$node_({node}) set X_ {home.x_m + x_m}", f"$node_({node}) set Y_ {home.y_m + y_m}"]
    for at_s, node, x_m in ((100, 3, 30), (110, 2, -150)):
        lines.append(f'$ns_ at {at_s} "$node_({node}) setdest {home.x_m + x_m} {home.y_m} 50"')
    path = folder / "walk.tcl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("hand_over", [False, True])
def test_with_hand_over_a_new_holder_has_the_table_of_the_old_one(hand_over: bool, tmp_path: Path) -> None:
    topic = next(
        name
        for name in (f"t{number}" for number in range(1000))
        if all(450 < side < 550 for side in home_place(topic_key(name), 0, SQUARE))
    )
    table = {
        "duration_s": 130.0,
        "nodes": 4,
        "area_m": (SQUARE.width_m, SQUARE.height_m),
        "mobility": {"model": "ns2", "file": str(write_movement(tmp_path, home_place(topic_key(topic), 0, SQUARE)))},
        "radio": {"model": "disk", "range_m": 250.0},
        "protocol": {
            "name": "topic_holder",
            "variant": "broker_gpsr",
            "capture_m": 50.0,
            # Refreshes are too rare to repair the table in time.
            "refresh_s": 100.0,
            "timeout_s": 300.0,
            "hand_over": hand_over,
        },
        "subscribe": [{"nodes": [1], "filter": f"topic = '{topic}'"}],
        "publish": [
            {"nodes": [0], "every_s": 4.0, "from_s": 116.0, "to_s": 128.0, "attributes": {"topic": topic}},
        ],
    }
    metrics = run(parse_scenario(table, "walk"), 1).metrics
    assert metrics["published"] == 3
    assert metrics["delivered"] == (3 if hand_over else 0)
