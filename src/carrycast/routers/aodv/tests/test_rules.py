"""The formulas of AODV, worked by hand."""

import pytest

from carrycast.routers.aodv.rules import (
    MessageRateLimit,
    first_sequence_number,
    is_better_route,
    is_plausible_sequence,
    local_repair_ttl,
    may_repair_locally,
    plan_ring_search,
    reverse_route_lifetime_s,
)
from carrycast.routers.aodv.settings import NS2, AodvSettings

RFC = AodvSettings()
LIKE_NS2 = AodvSettings(**NS2)  # type: ignore[arg-type]  # a table, as in a scenario


def test_the_ring_of_the_rfc_grows_by_two_and_then_covers_the_network_three_times() -> None:
    attempts = plan_ring_search(RFC, None)
    assert [ttl for ttl, _ in attempts] == [1, 3, 5, 7, 35, 35, 35]
    # 2 * 40 ms * (ttl + 2), then 2.8 s, doubled each time.
    assert [wait_s for _, wait_s in attempts] == pytest.approx([0.24, 0.4, 0.56, 0.72, 2.8, 5.6, 11.2])


def test_the_ring_of_ns2_starts_at_five_and_backs_off_linearly() -> None:
    attempts = plan_ring_search(LIKE_NS2, None)
    assert [ttl for ttl, _ in attempts] == [5, 7, 30, 30, 30, 30]
    assert [wait_s for _, wait_s in attempts] == pytest.approx([0.3, 0.42, 1.8, 3.6, 5.4, 7.2])


@pytest.mark.parametrize(
    ("known", "ttls"),
    [(1, [3, 5, 7]), (4, [6]), (5, [7]), (9, [11]), (33, []), (200, [])],
)
def test_a_ring_starts_from_the_last_known_distance(known: int, ttls: list[int]) -> None:
    assert [ttl for ttl, _ in plan_ring_search(RFC, known)] == [*ttls, 35, 35, 35]


def test_a_network_of_one_hop_has_no_rings() -> None:
    assert [ttl for ttl, _ in plan_ring_search(AodvSettings(net_diameter=1, request_retries=0), None)] == [1]


@pytest.mark.parametrize(
    ("offered", "own", "valid", "better"),
    [
        ((5, 9), (4, 1), True, True),
        ((4, 1), (5, 9), True, False),
        ((4, 1), (5, 9), False, False),
        ((5, 2), (5, 3), True, True),
        ((5, 3), (5, 3), True, False),
        ((5, 3), (5, 3), False, True),
        ((1, 9), (0, 1), True, True),
    ],
)
def test_a_fresher_or_shorter_route_is_better(
    offered: tuple[int, int], own: tuple[int, int], valid: bool, better: bool
) -> None:
    assert is_better_route(*offered, *own, valid) == better


def test_a_number_begins_with_the_incarnation() -> None:
    assert first_sequence_number(0) == 1
    assert first_sequence_number(3) == 3 * 2**32 + 1
    assert first_sequence_number(2**31 - 1) < 2**63


def test_only_a_restart_makes_a_number_jump() -> None:
    assert is_plausible_sequence(70, 10)
    assert is_plausible_sequence(10 + 2**16, 10)
    assert not is_plausible_sequence(11 + 2**16, 10)
    assert is_plausible_sequence(first_sequence_number(1), 10)
    assert is_plausible_sequence(5, 10), "an older number is harmless"


def test_lifetimes_of_reverse_routes() -> None:
    assert reverse_route_lifetime_s(RFC, 1) == pytest.approx(5.6 - 0.08)
    assert reverse_route_lifetime_s(RFC, 255) == 0.04, "however far, it is not over before it is made"


def test_which_node_repairs_locally_and_with_which_ttl() -> None:
    # MAX_REPAIR_TTL = 0.3 * 35 = 10.5
    assert may_repair_locally(RFC, 1, 10)
    assert not may_repair_locally(RFC, 30, 11)
    assert may_repair_locally(LIKE_NS2, 3, 2)
    assert not may_repair_locally(LIKE_NS2, 2, 2)
    assert not may_repair_locally(AodvSettings(local_repair="off"), 9, 1)
    assert local_repair_ttl(RFC, 8, 3) == max(3, 4) + 2
    assert local_repair_ttl(RFC, 2, 5) == 5 + 2
    assert local_repair_ttl(RFC, 200, 5) == 35


def test_a_rate_limit_counts_any_second() -> None:
    limit = MessageRateLimit(2)
    assert [limit.take(0.0), limit.take(0.9), limit.take(0.95)] == [True, True, False]
    assert limit.wait_s(0.95) == pytest.approx(0.05)
    assert limit.take(1.0)
    assert not limit.take(1.5)
    assert limit.take(1.9)


def test_the_delete_period_outlives_every_lifetime() -> None:
    assert RFC.delete_period_s == 15
    assert LIKE_NS2.delete_period_s == 50
    assert AodvSettings(active_route_timeout_s=0.1, hello_interval_s=0.1).delete_period_s > 6 + 5
