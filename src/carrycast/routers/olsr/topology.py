"""The topology set [RFC 4.4, 9.5] and the routing table that is computed from it [RFC 10]."""

from collections.abc import Mapping
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.parts import TwoHopNeighborhood, Willingness
from carrycast.routers.olsr.messages import TopologyControl


class AdvertisedLinks:
    """The last TC of one node: its ANSN, and until when each of its links is valid."""

    __slots__ = ("ansn", "links")

    def __init__(self, ansn: int) -> None:
        self.ansn = ansn
        self.links: dict[NodeId, float] = {}


class TopologySet:
    """The links that other nodes have advertised. `version` grows with each change."""

    def __init__(self, max_links: int) -> None:
        self._max_links = max_links
        self._count = 0
        self._next_expiry = float("inf")
        self._advertisements: dict[NodeId, AdvertisedLinks] = {}
        self.version = 0

    def __len__(self) -> int:
        return self._count

    # [RFC 9.5]
    def on_tc(self, now: float, message: TopologyControl) -> str | None:
        """Take in a TC. The reason for a drop, if it is not used."""
        self.expire(now)
        known = self._advertisements.get(message.originator)
        if known is not None and known.ansn > message.ansn:
            # [RFC 9.5, 2] "If there exist some tuple in the topology set where T_last_addr == originator address AND
            # T_seq > ANSN, then further processing of this TC message MUST NOT be performed."
            return "tc_stale"
        if known is not None and known.ansn < message.ansn:
            # [RFC 9.5, 3] "All tuples in the topology set where T_last_addr == originator address AND T_seq < ANSN MUST
            # be removed from the topology set."
            self._remove(message.originator)
            known = None
        if known is None:
            if not message.advertised:
                return None
            known = self._advertisements[message.originator] = AdvertisedLinks(message.ansn)
        # [RFC 9.5, 4] For each advertised address T_time = current time + validity time, or a new tuple is recorded.
        until = now + message.validity_s
        for node in message.advertised:
            if node not in known.links:
                if self._count >= self._max_links:
                    return "table_full"
                self._count += 1
                self.version += 1
            known.links[node] = until
        self._next_expiry = min(self._next_expiry, until)
        return None

    def _remove(self, originator: NodeId) -> None:
        self._count -= len(self._advertisements.pop(originator).links)
        self.version += 1

    def expire(self, now: float) -> None:
        """Remove the links that have expired."""
        if now < self._next_expiry:
            return
        for originator, known in list(self._advertisements.items()):
            for node in [node for node, until in known.links.items() if until <= now]:
                del known.links[node]
                self._count -= 1
                self.version += 1
            if not known.links:
                del self._advertisements[originator]
        self._next_expiry = min(
            (until for known in self._advertisements.values() for until in known.links.values()),
            default=float("inf"),
        )

    def links(self) -> Mapping[NodeId, AdvertisedLinks]:
        """The advertisements by their originators (T_last_addr)."""
        return self._advertisements


class Route(NamedTuple):
    """An entry of the routing table [RFC 10]: R_next_addr and R_dist."""

    next_hop: NodeId
    distance: int


# [RFC 10]
def compute_routes(
    now: float, node: NodeId, neighborhood: TwoHopNeighborhood, topology: TopologySet
) -> dict[NodeId, Route]:
    """The routing table of a node. Of equal routes that over a more willing neighbor or an MPR is taken, then that over
    the lowest id, so that the table depends on the graph alone."""
    mprs = neighborhood.mprs(now)
    near = neighborhood.symmetric_neighbors(now)
    # [RFC 10, 3.2] "When h=1, ties should be broken such that nodes with highest willingness and MPR selector are
    # preferred as next hop."
    near.sort(
        key=lambda other: (
            -neighborhood.willingness(other),
            other not in mprs,
            not neighborhood.is_selector(now, other),
            other,
        )
    )
    # [RFC 10, 2] "The new routing entries are added starting with the symmetric neighbors (h=1) as the destination
    # nodes."
    routes = {other: Route(other, 1) for other in near}
    # [RFC 10, 3] "for each node in N2, i.e., a 2-hop neighbor which is not a neighbor node or the node itself, and such
    # that there exist at least one entry in the 2-hop neighbor set where N_neighbor_main_addr correspond to a neighbor
    # node with willingness different of WILL_NEVER" an entry with R_dist = 2 is created.
    frontier = []
    for neighbor in near:
        if neighborhood.willingness(neighbor) != Willingness.NEVER:
            for other in neighborhood.reached_by(neighbor):
                if other != node and other not in routes:
                    routes[other] = Route(neighbor, 2)
                    frontier.append(other)
    # [RFC 10, 3.1] "For each topology entry in the topology table, if its T_dest_addr does not correspond to
    # R_dest_addr of any route entry in the routing table AND its T_last_addr corresponds to R_dest_addr of a route
    # entry whose R_dist is equal to h, then a new route entry MUST be recorded" with R_dist = h + 1.
    links, distance = topology.links(), 2
    while frontier:
        distance += 1
        reached = []
        for last in frontier:
            known = links.get(last)
            if known is None:
                continue
            for other in known.links:
                if other != node and other not in routes:
                    routes[other] = Route(routes[last].next_hop, distance)
                    reached.append(other)
        frontier = reached
    return routes
