"""The covering index gives the same results as a comparison of all pairs of filters."""

from random import Random

import pytest

from carrycast.core.matching import CoverIndex, Filter
from tests.unit.matching.test_index import some_filter


def ranged(rng: Random) -> Filter:
    """Conjunctions with points and nested ranges of numbers, so that many cover each other."""
    parts = []
    if rng.random() < 0.7:
        parts.append(f"topic = 't{rng.randint(0, 3)}'")
    if rng.random() < 0.8:
        low = rng.randint(0, 20)
        parts.append(rng.choice((f"value between {low} and {low + rng.randint(0, 9)}", f"value > {low}", "value <= 7")))
    if rng.random() < 0.3:
        parts.append(
            rng.choice(("kind in ('a', 'b')", "kind = 'a'", "kind in ('a', 'b', 'c')", "armed", "note is null"))
        )
    return Filter(" and ".join(parts) or "true")


@pytest.mark.parametrize("draw", [some_filter, ranged])
def test_it_finds_what_comparing_with_each_finds(draw: object) -> None:
    assert callable(draw)
    rng = Random("covering")
    index = CoverIndex()
    held: dict[str, Filter] = {}
    found = 0
    for _ in range(1500):
        if rng.random() < 0.7 or not held:
            new: Filter = draw(rng)
            held.setdefault(new.text, new)
            index.add(new)
        else:
            gone = rng.choice(list(held))
            del held[gone]
            index.remove(gone)
        if rng.random() < 0.3:
            asked: Filter = draw(rng)
            assert index.find_covering(asked) == [text for text, known in held.items() if known.covers(asked)]
            assert index.find_covered(asked) == [text for text, known in held.items() if asked.covers(known)]
            found += len(index.find_covered(asked))
        assert len(index) == len(held)
    assert found > 1000


def test_what_nothing_matches_is_covered_by_all_and_true_covers_all() -> None:
    index = CoverIndex()
    texts = ["x = 1", "x = 1 and x = 2", "true", "x is null"]
    for text in texts:
        index.add(Filter(text))
    nothing = Filter("x = 1 and x = 2")
    assert len(index.find_covering(nothing)) == len(index) == 4
    assert len(index.find_covered(Filter("true"))) == 4
    assert index.find_covered(nothing) == [nothing.text]
    for text in texts:
        index.remove(Filter(text).text)
    assert len(index) == 0
    assert index.find_covering(Filter("x = 1")) == []


def test_many_ranges_under_one_value_are_found_too() -> None:
    index = CoverIndex()
    for low in range(1000):
        index.add(Filter(f"topic = 'a' and value between {low} and {low + 10}"))
    asked = Filter("topic = 'a' and value between 500 and 505")
    assert index.find_covering(asked) == [
        Filter(f"topic = 'a' and value between {low} and {low + 10}").text for low in range(495, 501)
    ]
    wide = Filter("topic = 'a' and value between 100 and 200")
    assert len(index.find_covered(wide)) == 91
    assert index.find_covered(Filter("topic = 'b' and value between 100 and 200")) == []
