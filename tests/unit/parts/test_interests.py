"""Known filters: matching, covering, and tables without redundant entries."""

import pytest
from hypothesis import given, strategies as st

from carrycast.core.matching import Filter, shared
from carrycast.core.model import Event, EventId
from carrycast.core.parts import interests
from carrycast.core.parts.interests import EVERYTHING, KnownFilters


def texts(*written: str) -> list[str]:
    return [Filter(text).text for text in written]


def known(*written: str) -> KnownFilters:
    interests = KnownFilters()
    assert interests.learn(texts(*written))
    return interests


def event(**attributes: int) -> Event:
    return Event(EventId(0, 0), {**attributes})


def test_an_event_matches_what_is_known_and_everything() -> None:
    interests = known("a = 1", "a = 2", "b > 5")
    assert interests.match(event(a=1, b=7)) == [*texts("a = 1", "b > 5"), EVERYTHING]
    assert interests.match(event(c=1)) == [EVERYTHING]


def test_nodes_that_share_a_process_do_not_share_what_they_know() -> None:
    one, other = known("a = 1"), known("a < 9")
    same = event(a=1)
    assert one.match(same) == [*texts("a = 1"), EVERYTHING]
    assert other.match(same) == [*texts("a < 9"), EVERYTHING]


def test_an_event_matched_before_matches_what_is_learned_after() -> None:
    interests, same = known("a = 1"), event(a=1, novel=3)
    interests.match(same)
    interests.learn(texts("novel = 3"))
    assert interests.match(same) == [*texts("a = 1", "novel = 3"), EVERYTHING]


def test_nodes_that_know_more_filters_than_are_kept_together_still_match_all_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interests, "MATCHER", shared.SharedMatcher())
    monkeypatch.setattr(shared, "KEPT_FILTERS", 10)
    one = known(*(f"a > {number}" for number in range(6)))
    other = known(*(f"b > {number}" for number in range(6)))
    for _ in range(3):
        assert len(one.match(event(a=9))) == len(other.match(event(b=9))) == 7
    assert len(one.match(event(a=3, b=9))) == 4


def test_a_table_with_a_filter_that_does_not_parse_is_refused_whole() -> None:
    interests = known("a = 1")
    assert not interests.learn(["a = 2", "a ="])
    assert list(interests.known) == [EVERYTHING, *texts("a = 1")]


def test_what_is_no_longer_wanted_is_forgotten_and_covers_nothing() -> None:
    interests = known("a > 0", "a > 5")
    assert interests.find_covered(texts("a > 0")) == texts("a > 5")
    interests.keep(texts("a > 5"))
    assert interests.find_covered(texts("a > 0")) == []
    assert interests.match(event(a=7)) == [*texts("a > 5"), EVERYTHING]


def test_everything_covers_all() -> None:
    assert known("a = 1", "b = 2").find_covered([EVERYTHING]) == texts("a = 1", "b = 2")


def test_an_entry_goes_only_if_a_covering_one_is_worth_as_much() -> None:
    wide, narrow, other = texts("a > 0", "a > 5", "b = 1")
    interests = known("a > 0", "a > 5", "b = 1")
    assert interests.remove_redundant({wide: 0.5, narrow: 0.5, other: 0.1}) == {wide: 0.5, other: 0.1}
    assert interests.remove_redundant({wide: 0.5, narrow: 0.6}) == {wide: 0.5, narrow: 0.6}
    assert interests.remove_redundant({wide: 0.5, EVERYTHING: 0.5}) == {EVERYTHING: 0.5}
    assert interests.remove_redundant({wide: 0.5, EVERYTHING: 0.4}) == {wide: 0.5, EVERYTHING: 0.4}


def test_of_two_names_for_the_same_wish_one_stays() -> None:
    # Texts as a peer may send them, not canonical: each covers the other.
    interests = KnownFilters()
    assert interests.learn(["a = 1", "a in (1)"])
    assert len(interests.remove_redundant({"a = 1": 0.5, "a in (1)": 0.5})) == 1


RANGES = ["a > 0", "a > 3", "a > 6", "a between 2 and 8", "b = 1", "a > 3 and b = 1", "true"]


@given(
    st.lists(st.sampled_from(RANGES), min_size=1, unique=True),
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=7, max_size=7),
    st.integers(-1, 9),
    st.integers(0, 2),
)
def test_no_maximum_changes_by_dropping_covered_entries(
    filters: list[str], values: list[float], a: int, b: int
) -> None:
    interests = known(*filters)
    table = dict(zip(texts(*filters), values, strict=False))
    kept = interests.remove_redundant(table)
    matched = [text for text in table if Filter(text).matches({"a": a, "b": b})]
    assert kept.items() <= table.items()
    assert max((kept[text] for text in matched if text in kept), default=-1.0) == max(
        (table[text] for text in matched), default=-1.0
    )
