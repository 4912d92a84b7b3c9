"""The earliest arrival: by hand, against spreading by brute force, and against epidemic on a perfect radio."""

from math import inf
from random import Random

import pytest

from carrycast.analysis.explain.arrival import ContactIndex, path_to

CONTACTS = [(0, 1, 10.0, 20.0), (1, 2, 5.0, 15.0), (2, 3, 1.0, 8.0), (1, 3, 30.0, 40.0)]


def test_an_event_waits_for_contacts_and_goes_at_once_while_they_last() -> None:
    arrivals = ContactIndex(CONTACTS).earliest_arrivals(0, 0.0)
    assert {node: one.time_s for node, one in arrivals.items()} == {0: 0.0, 1: 10.0, 2: 10.0, 3: 30.0}
    assert path_to(3, arrivals) == [(0, 0.0), (1, 10.0), (3, 30.0)]


def test_a_contact_that_ends_when_the_event_comes_is_no_use() -> None:
    meetings = ContactIndex([(0, 1, 10.0, 20.0), (1, 2, 5.0, 10.0)])
    assert list(meetings.earliest_arrivals(0, 0.0)) == [0, 1]
    assert list(meetings.earliest_arrivals(0, 20.0)) == [0]
    assert list(meetings.earliest_arrivals(0, 19.9)) == [0, 1]


def test_nothing_is_reached_at_or_after_the_end() -> None:
    assert list(ContactIndex(CONTACTS).earliest_arrivals(0, 0.0, until_s=10.0)) == [0]
    assert list(ContactIndex(CONTACTS).earliest_arrivals(0, 0.0, until_s=30.0)) == [0, 1, 2]
    assert list(ContactIndex([]).earliest_arrivals(7, 3.0)) == [7]


def by_brute_force(contacts: list[tuple[int, int, float, float]], source: int, time_s: float) -> dict[int, float]:
    """Relax every contact until nothing changes."""
    at = {source: time_s}
    changed = True
    while changed:
        changed = False
        for a, b, start_s, end_s in contacts:
            for one, other in ((a, b), (b, a)):
                if one in at and at[one] < end_s and max(at[one], start_s) < at.get(other, inf):
                    at[other] = max(at[one], start_s)
                    changed = True
    return at


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_relaxing_every_contact_gives(seed: int) -> None:
    rng = Random(seed)
    contacts = []
    for _ in range(60):
        a, b = rng.sample(range(12), 2)
        start_s = float(rng.randint(0, 40))
        contacts.append((a, b, start_s, start_s + rng.randint(1, 5)))
    arrivals = ContactIndex(contacts).earliest_arrivals(0, 3.0)
    assert {node: one.time_s for node, one in arrivals.items()} == by_brute_force(contacts, 0, 3.0)
