"""Topics, hashes, places and tables, by examples worked by hand."""

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
from carrycast.protocols.topic_holder.tests.bench import JAM, Bench, BenchHost, make_entry, make_subscription

KILOMETER = Area(1000.0, 1000.0)


def test_equal_values_are_one_topic_and_types_are_distinguished() -> None:
    assert topic_key(1) == topic_key(1.0)
    assert topic_key(0.0) == topic_key(-0.0)
    assert len({topic_key(value) for value in (1, "1", True, "True", "n:1.0")}) == 5


def test_the_hash_is_uniform_sha_1() -> None:
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
    assert home_nodes(JAM, 0, 1, nodes, 9) == [nodes[(first + step) % 4] for step in range(4)], "no node twice"
    assert home_nodes(JAM, 1, 2, nodes, 0) == [nodes[(first + 2) % 4]], "two holders are half of the ranks apart"
    assert home_nodes(JAM, 0, 1, [], 2) == []
    shares = [home_nodes(f"s:{number}", 0, 1, nodes, 0)[0] for number in range(1000)]
    assert all(200 < shares.count(node) < 300 for node in nodes)


def test_with_roads_the_place_is_the_nearest_point_of_a_road() -> None:
    """[003 §3.6] The road of the bench runs at y = 500; its points are 10 m apart."""
    place = home_place(JAM, 0, KILOMETER)
    (target,) = Bench(holder="road").node.holders.find_all(0.0, JAM)
    assert target == Place(Position(round(place.x_m / 10) * 10.0, 500.0), 125.0)
    (target,) = Bench(holder="place").node.holders.find_all(0.0, JAM)
    assert target == Place(place, 125.0)


def test_more_places_than_are_cached_stay_the_same() -> None:
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
def test_a_position_farther_from_the_area_than_its_length_is_not_plausible(
    position: Position | None, plausible: bool
) -> None:
    assert is_plausible(position, KILOMETER) is plausible


def test_a_publisher_uses_the_nearest_place_or_a_node_by_its_id_or_all() -> None:
    """[003 §3.2.1] "its chosen broker nodes"."""
    homes = Bench(holder="place", holders=3).node.holders
    for number in range(3):
        assert homes.find_for_publisher(0.0, JAM, homes.find_place(JAM, number)) == [
            Place(homes.find_place(JAM, number), 125.0)
        ]
    assert len(Bench(holder="place", holders=3, publish_to="all").node.holders.find_for_publisher(0.0, JAM, None)) == 3
    nodes = Bench(holders=3).node.holders
    assert nodes.find_for_publisher(0.0, JAM, None) == [list(nodes.find_all(0.0, JAM))[1]], (
        "node 1 uses the second of three"
    )
    assert len(set(nodes.find_all(0.0, JAM))) == 3


def test_without_nodes_of_the_role_there_is_no_holder() -> None:
    host = BenchHost()
    host.nodes = ()
    assert list(Bench(role="nobody").node.holders.find_all(0.0, JAM)) == []


def test_a_table_keeps_the_newest_entry_of_each_subscriber_until_it_expires() -> None:
    """[003 §3.4]"""
    table = SubscriptionTable(10)
    old, new = (
        make_entry(make_subscription(4, "topic = 'a'"), count=1),
        make_entry(make_subscription(4, "topic = 'b'"), count=2),
    )
    assert table.refresh(0.0, JAM, new, 3.0)
    assert table.refresh(0.1, JAM, old, 3.1)
    assert table.entries(1.0, JAM) == [new], "an older message that arrives later changes nothing"
    assert table.entries(3.0, JAM) == []
    assert table.refresh(3.0, JAM, old, 6.0)
    assert table.entries(3.5, JAM) == [old], "an expired entry is replaced by any other"


def test_a_table_is_bounded_and_expired_entries_make_room() -> None:
    table = SubscriptionTable(2)
    ones = [make_entry(make_subscription(node)) for node in range(4)]
    assert table.refresh(0.0, "s:a", ones[0], 1.0)
    assert table.refresh(0.0, "s:b", ones[1], 3.0)
    assert not table.refresh(0.5, "s:b", ones[2], 3.5)
    assert table.refresh(0.6, "s:b", ones[1], 3.6), "a known subscription needs no room"
    assert table.refresh(1.0, "s:b", ones[2], 4.0)
    assert len(table) == 2
    assert table.refresh(4.0, "s:b", ones[3], 9.0)
    assert (len(table), table.entries(4.0, "s:b")) == (1, [ones[3]])
    table.remove_topic("s:b")
    assert len(table) == 0
