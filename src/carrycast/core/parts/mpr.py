"""Multipoint relays (MPRs): neighbors that forward a node's broadcasts, so that all nodes two hops away hear them.

[RFC] is RFC 3626 (OLSR), section 8.3.1. The algorithm is a pure function: every protocol that keeps a table of the
nodes within two hops (`TwoHopNeighborhood`) can use it. RFC 6621, appendix B, calls the same relays S-MPRs, and the
willingness a router priority.
"""

import enum
from collections.abc import Collection, Mapping

from carrycast.core.model import NodeId


class Willingness(enum.IntEnum):
    """How willing a node is to forward for others; any number between the two ends is valid [RFC 18.8]."""

    NEVER = 0
    LOW = 1
    DEFAULT = 3
    HIGH = 6
    ALWAYS = 7


def strict_two_hop_nodes(
    node: NodeId, neighbors: Mapping[NodeId, int], reached: Mapping[NodeId, Collection[NodeId]]
) -> dict[NodeId, list[NodeId]]:
    """N2: the nodes that are two hops away, each with the neighbors over which it is reached, in order of their ids.

    [RFC 8.3.1] N2 excludes "(i) the nodes only reachable by members of N with willingness WILL_NEVER, (ii) the node
    performing the computation", and (iii) all symmetric neighbors.
    """
    found: dict[NodeId, list[NodeId]] = {}
    for neighbor in sorted(neighbors):
        if neighbors[neighbor] == Willingness.NEVER:
            continue
        for other in reached.get(neighbor, ()):
            if other != node and other not in neighbors:
                found.setdefault(other, []).append(neighbor)
    return found


def select_mprs(
    node: NodeId, neighbors: Mapping[NodeId, int], reached: Mapping[NodeId, Collection[NodeId]]
) -> frozenset[NodeId]:
    """The MPRs of a node: symmetric neighbors that together reach every node of N2.

    `neighbors` has the willingness of each symmetric neighbor (N), `reached` the symmetric neighbors of each of them.
    Of equals the lowest id is selected, so that the result depends on the graph alone.
    """
    reachers = strict_two_hop_nodes(node, neighbors, reached)
    covers: dict[NodeId, set[NodeId]] = {}
    for other, over in reachers.items():
        for neighbor in over:
            covers.setdefault(neighbor, set()).add(other)
    # [RFC 8.3.1, 1] "Start with an MPR set made of all members of N with N_willingness equal to WILL_ALWAYS".
    selected = {neighbor for neighbor, willingness in neighbors.items() if willingness >= Willingness.ALWAYS}
    # [RFC 8.3.1, 2] D(y): the symmetric neighbors of y without N and without this node. It is the size of `covers`
    # before any node of N2 is covered.
    degrees = {neighbor: len(others) for neighbor, others in covers.items()}
    # [RFC 8.3.1, 3] "those nodes in N, which are the *only* nodes to provide reachability to a node in N2".
    selected.update(over[0] for over in reachers.values() if len(over) == 1)
    left = set(reachers).difference(*(covers.get(neighbor, ()) for neighbor in selected))
    # [RFC 8.3.1, 4] "While there exist nodes in N2 which are not covered by at least one node in the MPR set"
    while left:
        # [RFC 8.3.1, 4.1] reachability: the nodes of N2 that are not yet covered and that a neighbor reaches.
        reachability = {neighbor: len(others & left) for neighbor, others in covers.items()}
        # [RFC 8.3.1, 4.2] Highest willingness, then most reachability, then greatest D(y).
        best = max(
            (neighbor for neighbor, count in reachability.items() if count),
            key=lambda neighbor: (neighbors[neighbor], reachability[neighbor], degrees[neighbor], -neighbor),
        )
        selected.add(best)
        left -= covers[best]
    return frozenset(_without_redundant(selected, neighbors, reachers))


# [RFC 8.3.1, 5] "As an optimization, process each node, y, in the MPR set in increasing order of N_willingness. If all
# nodes in N2 are still covered by at least one node in the MPR set excluding node y, and if N_willingness of node y is
# smaller than WILL_ALWAYS, then node y MAY be removed from the MPR set."
def _without_redundant(
    selected: set[NodeId], neighbors: Mapping[NodeId, int], reachers: Mapping[NodeId, Collection[NodeId]]
) -> set[NodeId]:
    for candidate in sorted(selected, key=lambda neighbor: (neighbors[neighbor], -neighbor)):
        others = selected - {candidate}
        if neighbors[candidate] < Willingness.ALWAYS and all(not others.isdisjoint(over) for over in reachers.values()):
            selected = others
    return selected
