"""The number and the choice of links for an event."""

from random import Random

import pytest

from carrycast.core.parts.link_selection import allowed_links, by_distance, fanout, select_links


@pytest.mark.parametrize(
    ("tau", "links", "wanted"),
    [(0.75, 4, 3), (0.4, 5, 2), (0.4, 6, 3), (0.4, 0, 0), (0.01, 1, 1), (1.0, 7, 7), (0.1, 30, 3), (0.7, 10, 7)],
)
def test_the_quota_is_the_share_of_the_links_rounded_up(tau: float, links: int, wanted: int) -> None:
    assert fanout(tau, links) == wanted


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        # Step 1a: both subscribers at one hop, even if the quota is less.
        (0, [1, 2]),
        (1, [1, 2]),
        (2, [1, 2]),
        # Step 1b: nearest first.
        (3, [1, 2, 3]),
        (4, [1, 2, 3, 4]),
        # Step 2: best first.
        (5, [1, 2, 3, 4, 5]),
        (6, [1, 2, 3, 4, 5, 6]),
        # Step 3: the only one left.
        (7, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_steps_are_taken_in_order_until_the_quota_is_reached(wanted: int, chosen: list[int]) -> None:
    assert select_links(wanted, [1, 2], [3, 4], [5, 6], [7], Random(1)) == chosen


def test_the_last_step_draws_without_preference() -> None:
    rng = Random(2)
    counts = dict.fromkeys(range(5), 0)
    for _ in range(2000):
        chosen = select_links(3, [9], [], [], list(range(5)), rng)
        assert chosen[0] == 9
        assert len(set(chosen)) == 3
        for link in chosen[1:]:
            counts[link] += 1
    assert all(abs(count - 800) < 100 for count in counts.values())


def test_an_event_does_not_go_back_nor_to_those_who_have_it() -> None:
    links = [4, 7, 9]
    assert allowed_links(links, None, None) == [4, 7, 9]
    assert allowed_links(links, 7, None) == [4, 9]
    assert allowed_links(links, 5, {9}) == [4, 7]
    assert links == [4, 7, 9], "the node's own list stays"


def test_links_are_told_apart_by_the_nearest_subscriber_they_lead_to() -> None:
    links = [4, 7, 9, 2, 5]
    assert by_distance(links, {}) == ([], [], links)
    # Over 9 and 4 it is a hop, over 7 three, over 5 two, over 2 nobody knows; 8 is no link.
    assert by_distance(links, {9: 1, 7: 3, 4: 1, 8: 1, 5: 2}) == ([4, 9], [5, 7], [2])
    # Equally near: as they stand.
    assert by_distance(links, {5: 2, 7: 2}) == ([], [7, 5], [4, 9, 2])
