"""Topics, hashes, homes and tables, by hand."""

import hashlib
import math

import pytest

from carrycast.core.model import Area, Position
from carrycast.core.protocol import Place
from carrycast.protocols.topic_holder.rules import (
    home_nodes,
    home_place,
    is_plausible,
    topic_hash,
    topic_key,
)
from carrycast.protocols.topic_holder.subscription_table import SubscriptionTable
from carrycast.protocols.topic_holder.tests.bench import JAM, Bench, Ground, entry, subscription

KILOMETER = Area(1000.0, 1000.0)


def test_equal_values_are_one_topic_and_kinds_are_apart() -> None:
    assert topic_key(1) == topic_key(1.0)
    assert topic_key(0.0) == topic_key(-0.0)
    assert len({topic_key(value) for value in (1, "1", True, "True", "n:1.0")}) == 5


def test_the_hash_is_sha_1_below_one_and_even() -> None:
    digest = hashlib.sha1(b"x0:s:jam").digest()
    assert topic_hash(JAM, "x0") == (int.from_bytes(digest[:8]) >> 11) / 2**53
    shares = [topic_hash(f"s:{number}", "node") for number in range(2000)]
    assert 0 <= min(shares) < 0.01
    assert 0.99 < max(shares) < 1
    assert sum(shares) / 2000 == pytest.approx(0.5, abs=0.03)


def test_a_place_is_in_the_area_and_each_holder_has_its_own() -> None:
    """[003 §3.3]"""
    narrow = Area(500.0, 10.0)
    places = [home_place(f"s:{number}", 0, narrow) for number in range(500)]
    assert all(0 <= x_m < 500 and 0 <= y_m < 10 for x_m, y_m in places)
    assert max(x_m for x_m, _ in places) > 490
    assert home_place(JAM, 0, KILOMETER) != home_place(JAM, 1, KILOMETER)


def test_a_node_is_chosen_by_rank_and_the_next_by_hash_follow() -> None:
    """[003 §3.3, §3.4]"""
    nodes = [3, 40, 500, 6000]
    first = int(topic_hash(JAM, "node") * 4)
    assert home_nodes(JAM, 0, 1, nodes, 2) == [nodes[(first + step) % 4] for step in range(3)]
    assert home_nodes(JAM, 0, 1, nodes, 9) == [nodes[(first + step) % 4] for step in range(4)], "nobody twice"
    assert home_nodes(JAM, 1, 2, nodes, 0) == [nodes[(first + 2) % 4]], "two holders are half of the ranks apart"
    assert home_nodes(JAM, 0, 1, [], 2) == []
    shares = [home_nodes(f"s:{number}", 0, 1, nodes, 0)[0] for number in range(1000)]
    assert all(200 < shares.count(node) < 300 for node in nodes)


def test_a_road_takes_the_place_to_its_nearest_point() -> None:
    """[003 §3.6] The road of the bench runs at y = 500; its points are 10 m apart."""
    place = home_place(JAM, 0, KILOMETER)
    (target,) = Bench(holder="road").node.holders.find_all(0.0, JAM)
    assert target == Place(Position(round(place.x_m / 10) * 10.0, 500.0), 125.0)
    (target,) = Bench(holder="place").node.holders.find_all(0.0, JAM)
    assert target == Place(place, 125.0)


def test_places_are_remembered_up_to_a_bound() -> None:
    homes = Bench(holder="road").node.holders
    places = [homes.find_place(f"s:{number}") for number in range(400)]
    assert [homes.find_place(f"s:{number}") for number in range(400)] == places


@pytest.mark.parametrize(
    ("position", "plausible"),
    [
        (Position(0.0, 0.0), True),
        (Position(-999.0, 1999.0), True),
        (Position(2001.0, 0.0), False),
        (Position(0.0, -1001.0), False),
        (Position(math.nan, 0.0), False),
        (Position(0.0, math.inf), False),
        (None, False),
    ],
)
def test_who_is_farther_from_the_area_than_it_is_long_is_not_believed(
    position: Position | None, plausible: bool
) -> None:
    assert is_plausible(position, KILOMETER) is plausible


def test_a_publisher_turns_to_the_nearest_place_or_to_a_node_by_its_id_or_to_all() -> None:
    """[003 §3.2.1] "its chosen broker nodes"."""
    homes = Bench(holder="place", holders=3).node.holders
    for number in range(3):
        assert homes.find_for_publisher(0.0, JAM, homes.find_place(JAM, number)) == [
            Place(homes.find_place(JAM, number), 125.0)
        ]
    assert len(Bench(holder="place", holders=3, publish_to="all").node.holders.find_for_publisher(0.0, JAM, None)) == 3
    nodes = Bench(holders=3).node.holders
    assert nodes.find_for_publisher(0.0, JAM, None) == [list(nodes.find_all(0.0, JAM))[1]], (
        "node 1 takes the second of three"
    )
    assert len(set(nodes.find_all(0.0, JAM))) == 3


def test_without_nodes_of_the_role_nobody_holds() -> None:
    host = Ground()
    host.nodes = ()
    assert list(Bench(role="nobody").node.holders.find_all(0.0, JAM)) == []


def test_a_table_keeps_the_newest_word_of_each_subscriber_until_it_ends() -> None:
    """[003 §3.4]"""
    table = SubscriptionTable(10)
    old, new = entry(subscription(4, "topic = 'a'"), count=1), entry(subscription(4, "topic = 'b'"), count=2)
    assert table.refresh(0.0, JAM, new, 3.0)
    assert table.refresh(0.1, JAM, old, 3.1)
    assert table.entries(1.0, JAM) == [new], "a message that was overtaken changes nothing"
    assert table.entries(3.0, JAM) == []
    assert table.refresh(3.0, JAM, old, 6.0)
    assert table.entries(3.5, JAM) == [old], "what has ended is as if it had never been"


def test_a_table_is_bounded_and_what_has_ended_makes_room() -> None:
    table = SubscriptionTable(2)
    ones = [entry(subscription(node)) for node in range(4)]
    assert table.refresh(0.0, "s:a", ones[0], 1.0)
    assert table.refresh(0.0, "s:b", ones[1], 3.0)
    assert not table.refresh(0.5, "s:b", ones[2], 3.5)
    assert table.refresh(0.6, "s:b", ones[1], 3.6), "who is known needs no room"
    assert table.refresh(1.0, "s:b", ones[2], 4.0)
    assert len(table) == 2
    assert table.refresh(4.0, "s:b", ones[3], 9.0)
    assert (len(table), table.entries(4.0, "s:b")) == (1, [ones[3]])
    table.remove_topic("s:b")
    assert len(table) == 0
