"""MPR selection [RFC 3626, 8.3.1], by examples worked by hand and by its guarantee over random graphs."""

from itertools import combinations

from hypothesis import given, strategies as st

from carrycast.core.parts import Willingness, select_mprs
from carrycast.core.parts.mpr import strict_two_hop_nodes

DEFAULT = int(Willingness.DEFAULT)


def neighbors(*nodes: int) -> dict[int, int]:
    return dict.fromkeys(nodes, DEFAULT)


def test_the_only_way_to_a_node_is_an_mpr() -> None:
    # 0 - 1 - 11, 0 - 2 - {12, 13}, 0 - 3 - {12, 13}: 1 alone reaches 11 (step 3); 2 and 3 are equal (step 4.2).
    reached = {1: (0, 11), 2: (0, 12, 13), 3: (0, 12, 13)}
    assert select_mprs(0, neighbors(1, 2, 3), reached) == {1, 2}


def test_the_greatest_reachability_wins_then_the_greatest_degree() -> None:
    # 4 is the only way to 20. Then 1 reaches two uncovered nodes, 2 and 3 one each.
    reached = {1: (10, 11), 2: (10, 20), 3: (11, 20), 4: (20, 21)}
    assert select_mprs(0, neighbors(1, 2, 3, 4), reached) == {1, 4}
    # With 20 and 30 covered by 4, both 1 and 2 reach only 10; D(1) = 1, D(2) = 2.
    fewer = {1: [10], 2: [10, 20], 4: [20, 21]}
    assert select_mprs(0, neighbors(1, 2, 4), fewer) == {2, 4}


def test_willingness_comes_before_reachability() -> None:
    reached = {1: (10, 11), 2: (10, 11, 12), 3: (12, 10)}
    assert select_mprs(0, neighbors(1, 2, 3), reached) == {2}
    willing = {1: int(Willingness.HIGH), 2: DEFAULT, 3: int(Willingness.HIGH)}
    assert select_mprs(0, willing, reached) == {1, 3}


def test_a_neighbor_that_never_forwards_is_no_mpr_and_what_only_it_reaches_is_not_in_n2() -> None:
    willing = {1: int(Willingness.NEVER), 2: DEFAULT}
    reached = {1: (10, 11), 2: (10,)}
    assert strict_two_hop_nodes(0, willing, reached) == {10: [2]}
    assert select_mprs(0, willing, reached) == {2}


def test_a_neighbor_that_always_forwards_is_an_mpr_even_without_need() -> None:
    assert select_mprs(0, {1: int(Willingness.ALWAYS), 2: DEFAULT}, {1: (), 2: (0, 1)}) == {1}


def test_a_redundant_mpr_is_removed() -> None:
    # Step 4 takes 1 (three nodes), then 2 and 3, which together make 1 redundant.
    reached = {1: (10, 11, 12, 13), 2: (10, 11, 14), 3: (12, 13, 15)}
    assert select_mprs(0, neighbors(1, 2, 3), reached) == {2, 3}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, set[int]]]:
    near = draw(st.lists(st.integers(1, 9), unique=True, max_size=7))
    willing = {node: draw(st.integers(0, 7)) for node in near}
    reached = {node: draw(st.sets(st.integers(0, 30), max_size=8)) for node in near}
    return willing, reached


@given(graphs())
def test_mprs_reach_every_node_of_n2_and_none_is_redundant(graph: tuple[dict[int, int], dict[int, set[int]]]) -> None:
    willing, reached = graph
    mprs = select_mprs(0, willing, reached)
    n2 = strict_two_hop_nodes(0, willing, reached)
    assert mprs <= willing.keys()
    assert not any(willing[node] == Willingness.NEVER for node in mprs)
    assert all(mprs & set(over) for over in n2.values())
    for node in mprs:
        if willing[node] < Willingness.ALWAYS:
            assert any(not (mprs - {node}) & set(over) for over in n2.values()), f"{node} is redundant"


@given(graphs())
def test_with_equal_willingness_there_are_at_most_ln_n_times_more_than_the_fewest(
    graph: tuple[dict[int, int], dict[int, set[int]]],
) -> None:
    """The greedy algorithm is within 1 + ln |N2| of the fewest MPRs (Qayyum et al. 2002, after Chvatal 1979)."""
    from math import log

    willing, reached = graph
    equal = dict.fromkeys(willing, DEFAULT)
    n2 = strict_two_hop_nodes(0, equal, reached)
    if not n2:
        assert not select_mprs(0, equal, reached)
        return
    fewest = next(
        count
        for count in range(1, len(equal) + 1)
        if any(all(set(some) & set(over) for over in n2.values()) for some in combinations(equal, count))
    )
    assert len(select_mprs(0, equal, reached)) <= fewest * (1 + log(len(n2)))
