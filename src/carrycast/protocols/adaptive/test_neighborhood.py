"""What a node gathers of its neighborhood is what the equations say, composed one after the other."""

from hypothesis import given
from hypothesis import strategies as st

from carrycast.core.model import NodeId
from carrycast.core.parts.horizon import KnownNode
from carrycast.core.parts.interests import KnownFilters
from carrycast.protocols.adaptive.messages import Utilities
from carrycast.protocols.adaptive.neighborhood import Received, gathered
from carrycast.protocols.adaptive.rules import forwarding_utility, host_utility, neighborhood_utility

INTERESTS = ("a = 1", "b = 1", "c = 1")
PHI = 2

utilities = st.dictionaries(st.sampled_from(INTERESTS), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
reports = st.tuples(st.sets(st.sampled_from(INTERESTS)), utilities, st.integers(1, PHI))
links_of_a_node = st.lists(st.lists(reports, min_size=1, max_size=3), max_size=4)


def known(node: NodeId, via: NodeId, subscribed: set[str], worth: dict[str, float], hops: int) -> KnownNode[Received]:
    carrier = {interest: utility for interest, utility in worth.items() if interest not in subscribed}
    report = Utilities(node, 1, hops, 30.0, tuple(sorted(subscribed)), carrier, {})
    return KnownNode(via, hops, 1, 30.0, Received(report, PHI, None))


@given(links_of_a_node)
def test_a_neighborhood_utility_is_equation_7_over_2_over_1(
    links: list[list[tuple[set[str], dict[str, float], int]]],
) -> None:
    near = [
        (via, {10 * via + place: known(10 * via + place, via, *report) for place, report in enumerate(reached)})
        for via, reached in enumerate(links, start=1)
    ]
    beyond, via, steps, origins = gathered(near, PHI, 1).exceeding({}, KnownFilters())
    by_hand = {
        interest: neighborhood_utility(
            forwarding_utility(
                host_utility(interest in subscribed, worth.get(interest, 0.0)) for subscribed, worth, _ in reached
            )
            for reached in links
        )
        for interest in INTERESTS
    }
    assert beyond == {interest: utility for interest, utility in by_hand.items() if utility > 0.0}
    assert steps == ()
    for (interest, utility), neighbor, origin in zip(beyond.items(), via, origins, strict=True):
        assert origin // 10 == neighbor
        over_it = links[neighbor - 1]
        assert utility == forwarding_utility(
            host_utility(interest in subscribed, worth.get(interest, 0.0)) for subscribed, worth, _ in over_it
        )
