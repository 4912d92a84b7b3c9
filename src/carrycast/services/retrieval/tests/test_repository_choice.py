"""The choice of repositories for a request, with results computed by hand."""

from carrycast.core.matching import Filter
from carrycast.services.retrieval.repository_choice import (
    RepositoryBranch,
    RequestPart,
    intersect_filters,
    split_request,
)


def first(branches: list[RepositoryBranch]) -> RepositoryBranch:
    return branches[0]


def test_of_replicas_one_is_asked_for_all() -> None:
    branches = [
        RepositoryBranch(1, "role in ('a', 'b')", 1),
        RepositoryBranch(2, "true", 1),
        RepositoryBranch(3, "role = 'c'", 1),
    ]
    assert split_request(Filter("role = 'a'"), branches, first) == [RequestPart(1, "role = 'a'")]
    assert split_request(Filter("role = 'a'"), branches, lambda found: found[-1]) == [RequestPart(2, "role = 'a'")]


def test_where_none_has_all_each_part_goes_to_one_that_has_it() -> None:
    branches = [
        RepositoryBranch(1, "role = 'a'", 1),
        RepositoryBranch(2, "role = 'a'", 1),
        RepositoryBranch(3, "role = 'b'", 1),
        RepositoryBranch(4, "x = 1", 1),
    ]
    wanted = Filter("role in ('a', 'b')")
    found = split_request(wanted, branches, first)
    # 2 has what 1 has. Events of 4 may have either role, so it is asked as well.
    assert [part.neighbor for part in found] == [1, 3, 4]
    assert [part.filter for part in found[:2]] == ["role = 'a'", "role = 'b'"]
    assert Filter(found[2].filter).matches({"role": "a", "x": 1})
    assert not Filter(found[2].filter).matches({"role": "c", "x": 1})


def test_who_has_nothing_of_it_is_not_asked() -> None:
    assert split_request(Filter("role = 'a'"), [RepositoryBranch(1, "role = 'b'", 1)], first) == []


def test_a_part_that_would_be_too_long_to_say_is_asked_for_in_whole() -> None:
    one = Filter("a in (" + ", ".join(f"'{number:050}'" for number in range(60)) + ")")
    two = Filter("b in (" + ", ".join(f"'{number:050}'" for number in range(60)) + ")")
    assert intersect_filters(one, two) == one
