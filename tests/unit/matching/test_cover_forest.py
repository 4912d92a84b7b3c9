"""The roots of a cover forest are the smallest covering set, in whatever order filters are added and removed."""

from collections import Counter
from random import Random

import pytest

from carrycast.core.matching import CoverForest, Filter
from tests.unit.matching.test_covering import ranged
from tests.unit.matching.test_index import some_filter


def fewest(filters: list[Filter]) -> set[str]:
    """Those that no other covers; of several that say the same the first by text."""
    return {
        one.text
        for one in filters
        if not any(
            other.text != one.text and other.covers(one) and (other.text < one.text or not one.covers(other))
            for other in filters
        )
    }


@pytest.mark.parametrize("draw", [ranged, some_filter])
def test_the_roots_are_those_found_from_scratch_and_every_change_is_told(draw: object) -> None:
    assert callable(draw)
    rng = Random("forest")
    forest = CoverForest()
    held: Counter[str] = Counter()
    known: dict[str, Filter] = {}
    told: set[str] = set()
    for step in range(600):
        if rng.random() < 0.55 or not held:
            new: Filter = draw(rng)
            known[new.text] = new
            held[new.text] += 1
            change = forest.add(new)
        else:
            gone = rng.choice(sorted(held))
            held[gone] -= 1
            held += Counter()
            change = forest.remove(gone)
        assert not told & set(change.added)
        assert set(change.withdrawn) <= told
        told = (told | set(change.added)) - set(change.withdrawn)
        assert set(forest) == told
        if step % 12 == 0:
            assert told == fewest([known[text] for text in held])
        assert len(forest) == len(held)


def test_a_copy_goes_its_own_way() -> None:
    rng = Random("copy")
    forest = CoverForest()
    filters = [ranged(rng) for _ in range(200)]
    for filter in filters:
        forest.add(filter)
    before = set(forest)
    copy = forest.copy()
    assert set(copy) == before
    for filter in filters[:150]:
        copy.remove(filter.text)
    assert set(copy) == fewest(filters[150:])
    assert set(forest) == before == fewest(filters)
    for filter in filters:
        forest.remove(filter.text)
    assert len(forest) == 0
    assert set(copy) == fewest(filters[150:])


def test_of_filters_that_say_the_same_the_first_by_text_is_the_root() -> None:
    forest = CoverForest()
    plain, spelled = Filter("x > 5 or x = 5"), Filter("x >= 5")
    assert plain.covers(spelled)
    assert spelled.covers(plain)
    assert plain != spelled
    for first, second in ((plain, spelled), (spelled, plain)):
        forest.add(first)
        forest.add(second)
        assert list(forest) == [min(plain.text, spelled.text)]
        forest.remove(min(plain.text, spelled.text))
        assert list(forest) == [max(plain.text, spelled.text)]
        forest.remove(max(plain.text, spelled.text))
        assert len(forest) == 0


def test_a_filter_that_goes_uncovers_what_it_hid() -> None:
    forest = CoverForest()
    assert forest.add(Filter("x = 1")).added == ("x = 1",)
    assert forest.add(Filter("x between 0 and 9")) == (("x between 0 and 9",), ("x = 1",))
    assert forest.add(Filter("x = 2")) == ((), ())
    assert forest.add(Filter("x = 2")) == ((), ())
    assert forest.remove("x = 2") == ((), ())
    assert forest.remove("x between 0 and 9") == (("x = 1", "x = 2"), ("x between 0 and 9",))
    with pytest.raises(KeyError):
        forest.remove("x between 0 and 9")
