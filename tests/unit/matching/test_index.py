"""The index finds exactly the filters that match, in order of insertion."""

from random import Random

import pytest

from carrycast.core.matching import Filter, FilterIndex
from carrycast.core.matching.conjunctions import Conditions, all_hold
from carrycast.core.matching.intervals import NumberCut
from carrycast.core.matching.ranges import RangeIndex
from carrycast.core.model import Attributes, Scalar
from tests.unit.matching.generators import (
    TOPICS,
    random_attributes,
    random_conjunction,
    random_filter,
    topic_condition,
)


def some_filter(rng: Random) -> Filter:
    shape = rng.random()
    if shape < 0.5:
        return Filter(random_conjunction(rng))
    if shape < 0.7:
        return Filter(topic_condition(rng))
    if shape < 0.75:
        return Filter(f"({topic_condition(rng)}) or ({topic_condition(rng)})")
    return Filter(random_filter(rng))


def some_event(rng: Random) -> dict[str, Scalar]:
    return random_attributes(rng) | ({"topic": rng.choice(TOPICS)} if rng.random() < 0.8 else {})


def test_the_index_answers_as_testing_each_filter_does() -> None:
    rng = Random("index")
    index: FilterIndex[int] = FilterIndex()
    held: dict[int, Filter] = {}
    matched = 0
    for step in range(3000):
        action = rng.random()
        if action < 0.55 or not held:
            held[step] = some_filter(rng)
            index.add(step, held[step])
        elif action < 0.8:
            key = rng.choice(list(held))
            del held[key]
            index.remove(key)
        else:
            event = some_event(rng)
            expected = [key for key, each in held.items() if each.matches(event)]
            assert index.match(event) == expected
            matched += len(expected)
        assert len(index) == len(held)
    assert matched > 10_000
    for key in list(held):
        index.remove(key)
        del held[key]
        if key % 10 == 0:
            event = some_event(rng)
            assert index.match(event) == [key for key, each in held.items() if each.matches(event)]
    assert len(index) == 0
    assert index.match({"road": "a"}) == []


def test_keys_come_in_the_order_of_adding() -> None:
    index: FilterIndex[str] = FilterIndex()
    for key, text in (("c", "x > 1"), ("a", "true"), ("b", "x = 2"), ("d", "y is null"), ("e", "x = 2 or y = 1")):
        index.add(key, Filter(text))
    assert index.match({"x": 2}) == ["c", "a", "b", "d", "e"]
    assert index.match({"x": 2, "y": 1}) == ["c", "a", "b", "e"]


def test_a_key_that_is_added_again_gets_the_new_filter_and_goes_to_the_end() -> None:
    index: FilterIndex[str] = FilterIndex()
    index.add("a", Filter("x = 1"))
    index.add("b", Filter("x = 2"))
    index.add("a", Filter("x = 2"))
    assert len(index) == 2
    assert index.match({"x": 1}) == []
    assert index.match({"x": 2}) == ["b", "a"]


def test_a_removed_key_is_gone() -> None:
    index: FilterIndex[str] = FilterIndex()
    index.add("a", Filter("x = 1"))
    assert "a" in index
    index.remove("a")
    assert "a" not in index
    assert index.match({"x": 1}) == []
    with pytest.raises(KeyError):
        index.remove("a")


def test_a_filter_that_nothing_matches_may_be_held() -> None:
    index: FilterIndex[str] = FilterIndex()
    index.add("a", Filter("x = 1 and x = 2"))
    assert index.match({"x": 1}) == []
    index.remove("a")
    assert len(index) == 0


def test_true_and_one_are_found_apart() -> None:
    index: FilterIndex[str] = FilterIndex()
    for text in ("x = true", "x = 1", "x = 1.5", "x in (true, 1)", "x <> 0"):
        index.add(text, Filter(text))
    assert index.match({"x": True}) == ["x = true", "x in (true, 1)"]
    assert index.match({"x": 1.0}) == ["x = 1", "x in (true, 1)", "x <> 0"]
    both: FilterIndex[str] = FilterIndex()
    for text in ("x = true and y = 'a'", "x = 1 and y = 'a'"):
        both.add(text, Filter(text))
    # Entered under one of the two conditions, the other is tested.
    assert both.match({"x": True, "y": "a"}) == ["x = true and y = 'a'"]
    assert both.match({"x": 1, "y": "a"}) == ["x = 1 and y = 'a'"]


class CountingFilter(Filter):
    """A filter that counts how often it is tested."""

    __slots__ = ()
    tested = 0

    def matches(self, attributes: Attributes) -> bool:
        CountingFilter.tested += 1
        return super().matches(attributes)


@pytest.mark.parametrize(
    ("template", "event"),
    [
        ("topic = 't{n}' and value > 7", {"topic": "t7", "value": 9}),
        ("kind = 'car' and value between {n} and {n}.5", {"kind": "car", "value": 7.25}),
        ("kind = 'car' and topic matches 't{n}/+/#'", {"kind": "car", "topic": "t7/a"}),
        (
            "kind = 'car' and topic matches 'a/#' and value between {n} and {n}.5",
            {"kind": "car", "topic": "a/b", "value": 7.25},
        ),
        ("kind = 'car' and road like 'r{n}-%'", {"kind": "car", "road": "r7-a"}),
        ("armed and number = {n}", {"armed": True, "number": 7}),
        ("id in ({n}, -{n}) or name = 'n{n}'", {"id": 7, "name": "n8"}),
        ("kind = 'car' and id in ({n}, -{n}, 'x{n}')", {"kind": "car", "id": 7}),
        ("kind = 'car' and level = 3 and id = {n}", {"kind": "car", "level": 3, "id": 7}),
    ],
)
def test_an_event_is_tested_against_few_of_many_filters(
    template: str, event: dict[str, Scalar], monkeypatch: pytest.MonkeyPatch
) -> None:
    index: FilterIndex[int] = FilterIndex()
    filters = [CountingFilter(template.format(n=number)) for number in range(2000)]
    for number, each in enumerate(filters):
        index.add(number, each)
    expected = [number for number, each in enumerate(filters) if Filter.matches(each, event)]
    assert 0 < len(expected) < 3
    CountingFilter.tested = 0
    looked_at = 0

    def counting(conditions: Conditions, attributes: Attributes) -> bool:
        nonlocal looked_at
        looked_at += 1
        return all_hold(conditions, attributes)

    monkeypatch.setattr("carrycast.core.matching.conjunctions.all_hold", counting)
    assert index.match(event) == expected
    assert CountingFilter.tested + looked_at < 100


def test_ranges_are_found_as_by_looking_at_each() -> None:
    rng = Random("ranges")
    ranges: RangeIndex[NumberCut] = RangeIndex()
    held: dict[int, list[tuple[NumberCut, NumberCut]]] = {}
    for entry in range(1500):
        intervals = []
        for _ in range(rng.randint(1, 2)):
            low, high = sorted((rng.randint(0, 50), rng.randint(0, 50)))
            intervals.append(((low, rng.randint(0, 1)), (high + 1, rng.randint(0, 1))))
        held[entry] = list(intervals)
        for low_cut, high_cut in intervals:
            ranges.add(entry, low_cut, high_cut)
        if rng.random() < 0.45:
            gone = rng.choice(list(held))
            del held[gone]
            ranges.remove(gone)
        if entry % 15 == 0:
            point: NumberCut = (rng.randint(-1, 52), 0)
            expected = [key for key, pairs in held.items() for low, high in pairs if low <= point < high]
            assert sorted(ranges.find(point)) == sorted(expected)
    for entry in list(held)[:-3]:
        ranges.remove(entry)
        del held[entry]
    assert len(ranges) == 3
    assert sorted(set(ranges.find((25, 0)))) == [
        key for key, pairs in held.items() if any(low <= (25, 0) < high for low, high in pairs)
    ]
