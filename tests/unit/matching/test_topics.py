"""MQTT topic filters. The cases are the examples of MQTT 3.1.1 and 5.0, section 4.7."""

from itertools import product

import pytest

from carrycast.core.matching import Filter
from carrycast.core.matching.attribute_index import TopicTrie
from carrycast.core.matching.topics import parse_topic_filter, topics_cover, topics_overlap
from tests.unit.matching.kleene import topic_matches

CASES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player10", False),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player2", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+", "finance", True),
    ("+", "/finance", False),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+/tennis/#", "sport/tennis", True),
    ("+/tennis/#", "sport/tennis/player1", True),
    ("sport/+/player1", "sport/tennis/player1", True),
    ("sport/+/player1", "sport/player1", False),
    ("#", "$SYS/monitor", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("ACCOUNTS", "Accounts", False),
    ("a/+/#", "a/b", True),
    ("a/+/#", "a", False),
    ("a/#", "a/$b", True),
    ("a//b", "a//b", True),
    ("a/+/b", "a//b", True),
]

INVALID = ["sport/tennis#", "sport/tennis/#/ranking", "sport+", "+sport", "a/b+/c", "##", "#/a", "", "a\0b"]

ALL_FILTERS = [
    parse_topic_filter("/".join(levels))
    for size in (1, 2, 3)
    for levels in product(("a", "$x", "", "+", "#"), repeat=size)
    if "#" not in levels[:-1] and levels != ("",)
]
# Deep enough that each filter of up to three levels shows what its `#` takes; 'z' stands for any name not mentioned.
ALL_TOPICS = ["/".join(levels) for size in (1, 2, 3, 4) for levels in product(("a", "$x", "", "z"), repeat=size)]


@pytest.mark.parametrize(("topics", "topic", "expected"), CASES)
def test_topics_match_as_the_standard_says(topics: str, topic: str, expected: bool) -> None:
    assert Filter(f"topic matches '{topics}'").matches({"topic": topic}) is expected
    assert Filter(f"topic not matches '{topics}'").matches({"topic": topic}) is not expected


@pytest.mark.parametrize("topics", INVALID)
def test_invalid_topic_filters_are_refused(topics: str) -> None:
    with pytest.raises(ValueError, match="a topic filter"):
        parse_topic_filter(topics)


def test_matching_covering_and_overlapping_agree_with_enumeration() -> None:
    matched = {
        topics: frozenset(topic for topic in ALL_TOPICS if topic_matches(topics.levels, topic))
        for topics in ALL_FILTERS
    }
    for one in ALL_FILTERS:
        text = str(one).replace("'", "''")
        predicate = Filter(f"topic matches '{text}'")
        assert {topic for topic in ALL_TOPICS if predicate.matches({"topic": topic})} == matched[one]
        for two in ALL_FILTERS:
            assert topics_cover(one, two) is (matched[one] >= matched[two]), (str(one), str(two))
            assert topics_overlap(one, two) is bool(matched[one] & matched[two]), (str(one), str(two))


def test_the_tree_of_levels_finds_what_matches_and_forgets_what_is_removed() -> None:
    trie = TopicTrie()
    for number, topics in enumerate(ALL_FILTERS):
        trie.add(number, topics)
    everything = list(range(len(ALL_FILTERS)))
    even = everything[::2]
    assert_finds(trie, everything)
    for number in everything[1::2]:
        trie.remove(number, ALL_FILTERS[number])
    assert_finds(trie, even)
    for number in even[1:]:
        trie.remove(number, ALL_FILTERS[number])
    assert_finds(trie, even[:1])


def assert_finds(trie: TopicTrie, kept: list[int]) -> None:
    assert len(trie) == len(kept)
    for topic in ALL_TOPICS:
        assert sorted(trie.find(topic)) == [n for n in kept if topic_matches(ALL_FILTERS[n].levels, topic)]


def test_a_topic_that_looks_like_a_wildcard_is_only_matched_by_wildcards() -> None:
    trie = TopicTrie()
    for number, topics in enumerate(("+", "a/#", "a/+")):
        trie.add(number, parse_topic_filter(topics))
    assert trie.find("#") == [0]
    assert sorted(trie.find("a/#")) == [1, 2]
    assert trie.find("+/b") == []
