"""The neighborhood utilities that a node collects are equation 7 over equation 2 over equation 1 [004], which this test
computes independently."""

from collections.abc import Iterable

from hypothesis import given, strategies as st

from carrycast.core.model import NodeId
from carrycast.core.parts.horizon import KnownNode
from carrycast.core.parts.interests import KnownFilters
from carrycast.protocols.adaptive.messages import UtilityReport
from carrycast.protocols.adaptive.neighborhood import ReceivedReport, collect_neighborhood

INTERESTS = ("a = 1", "b = 1", "c = 1")
PHI = 2

utilities = st.dictionaries(st.sampled_from(INTERESTS), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
reports = st.tuples(st.sets(st.sampled_from(INTERESTS)), utilities, st.integers(1, PHI))
links_of_a_node = st.lists(st.lists(reports, min_size=1, max_size=3), max_size=4)


def host_utility(subscribed: bool, as_carrier: float) -> float:
    """[004 §2.2.1, eq. 1] The utility of a node: 1 as a subscriber, else its utility as a carrier."""
    return 1.0 if subscribed else as_carrier


def forwarding_utility(utilities: Iterable[float]) -> float:
    """[004 §2.2.2, eq. 2] The utility of a link: the largest of a node reached over it."""
    return max(utilities, default=0.0)


def neighborhood_utility(forwarding_utilities: Iterable[float]) -> float:
    """[004 §4, eq. 7] The neighborhood utility of a node: the largest utility of one of its links."""
    return max(forwarding_utilities, default=0.0)


def make_known(
    node: NodeId, via: NodeId, subscribed: set[str], utilities: dict[str, float], hops: int
) -> KnownNode[ReceivedReport]:
    carrier = {interest: utility for interest, utility in utilities.items() if interest not in subscribed}
    report = UtilityReport(node, 1, hops, 30.0, tuple(sorted(subscribed)), carrier, {})
    return KnownNode(via, hops, 1, 30.0, ReceivedReport(report, PHI, None))


@given(links_of_a_node)
def test_a_neighborhood_utility_is_equation_7_over_2_over_1(
    links: list[list[tuple[set[str], dict[str, float], int]]],
) -> None:
    near = [
        (
            via,
            {10 * via + place: make_known(10 * via + place, via, *report) for place, report in enumerate(reached)},
        )
        for via, reached in enumerate(links, start=1)
    ]
    neighborhood, via, steps, origins = collect_neighborhood(near, PHI, 1).select_exceeding({}, KnownFilters())
    expected = {
        interest: neighborhood_utility(
            forwarding_utility(
                host_utility(interest in subscribed, utilities.get(interest, 0.0))
                for subscribed, utilities, _ in reached
            )
            for reached in links
        )
        for interest in INTERESTS
    }
    assert neighborhood == {interest: utility for interest, utility in expected.items() if utility > 0.0}
    assert steps == ()
    for (interest, utility), neighbor, origin in zip(neighborhood.items(), via, origins, strict=True):
        assert origin // 10 == neighbor
        reached = links[neighbor - 1]
        assert utility == forwarding_utility(
            host_utility(interest in subscribed, utilities.get(interest, 0.0)) for subscribed, utilities, _ in reached
        )
