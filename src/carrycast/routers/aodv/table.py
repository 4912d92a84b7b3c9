"""The routing table [RFC 2, 6.1, 6.2]: where each destination is, how fresh that knowledge is, and who relies on it.

Loop freedom rests on one measure: along the next hops toward a destination, (sequence number, fewer hops) gets
strictly better, where a route that is not valid counts one number less than it has. So a number never falls, it grows
by one when a route is lost or has expired, and a lost route is remembered for as long as somebody may still rely on it.
"""

from collections.abc import Iterator

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import MAX_NUMBER
from carrycast.routers.aodv.rules import is_better

MAX_PRECURSORS = 64
"""Neighbors told of a lost route. Two are as good as all of them: from two on, the error is broadcast."""


class Route:
    """What is known of one destination."""

    __slots__ = ("hops", "next_hop", "precursors", "sequence", "target", "until", "valid")

    def __init__(self, target: NodeId, next_hop: NodeId, hops: int, sequence: int, until: float) -> None:
        self.target = target
        self.next_hop = next_hop
        self.hops = hops
        """Of a route that is no longer valid, as many as it had."""
        self.sequence = sequence
        """0 if unknown: then the route is one to a neighbor."""
        self.until = until
        """The end of its lifetime; of one that is no longer valid, when it is forgotten."""
        self.valid = True
        self.precursors: dict[NodeId, None] = {}
        """Neighbors that route over this node to the target, in the order in which they came."""

    def rely(self, neighbor: NodeId) -> None:
        """A neighbor routes over this node."""
        if len(self.precursors) < MAX_PRECURSORS:
            self.precursors[neighbor] = None


class RouteTable:
    """Routes by destination; never one to the own node."""

    def __init__(self, node: NodeId, delete_period_s: float, most: int) -> None:
        self._node = node
        self._delete_period_s = delete_period_s
        self._most = most
        self._routes: dict[NodeId, Route] = {}
        self._purge_at = delete_period_s
        self._full_purge_at = 0.0

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    # What is known.

    def valid(self, now: float, target: NodeId) -> Route | None:
        """A route that packets may take."""
        route = self._routes.get(target)
        return route if route is not None and route.valid and route.until > now else None

    def known(self, now: float, target: NodeId) -> Route | None:
        """What is known of a destination, be it that its route is lost."""
        route = self._routes.get(target)
        if route is None:
            return None
        if route.valid and route.until <= now:
            self._end(route, route.until)
        if not route.valid and route.until <= now:
            del self._routes[target]
            return None
        return route

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """How far a destination is, if a valid route says so. It changes nothing."""
        if target == self._node:
            return 0
        route = self.valid(now, target)
        return None if route is None else route.hops

    def is_active(self, now: float) -> bool:
        """Whether there is any valid route."""
        return any(route.valid and route.until > now for route in self._routes.values())

    # What changes it.

    # [RFC 6.5, 6.7] "first creates or updates a route to the previous hop without a valid sequence number"
    def hear(self, now: float, neighbor: NodeId, until: float) -> bool:
        """A message came straight from a neighbor. What number is known of it stays: a route whose next hop is the
        destination itself cannot be part of a loop. False if there is no room."""
        route = self.known(now, neighbor)
        if route is None:
            return self._create(now, Route(neighbor, neighbor, 1, 0, until))
        if route.valid and route.next_hop == neighbor:
            route.until = max(route.until, until)
        else:
            self._replace(route, neighbor, 1, route.sequence, until)
        return True

    # [RFC 6.2, 6.5, 6.7]
    def offer(self, now: float, target: NodeId, sequence: int, hops: int, via: NodeId, until: float) -> bool | None:
        """A neighbor offers a route. True if it is taken, False if the own is as good, None if there is no room."""
        assert target != self._node
        route = self.known(now, target)
        if route is None:
            return True if self._create(now, Route(target, via, hops, sequence, until)) else None
        if not is_better(sequence, hops, route.sequence, route.hops, route.valid):
            return False
        self._replace(route, via, hops, sequence, until)
        return True

    def touch(self, now: float, target: NodeId, until: float) -> None:
        """A packet to or from a destination has come by. What is lost is remembered longer for it: somebody may still
        rely on it, and a node that forgot would believe what it is then told."""
        route = self.known(now, target)
        if route is not None:
            route.until = max(route.until, until if route.valid else now + self._delete_period_s)

    # [RFC 6.11]
    def lose(self, now: float, neighbor: NodeId) -> list[Route]:
        """The link to a neighbor is broken: the routes over it, which are no longer valid now."""
        lost = []
        for route in self._routes.values():
            route.precursors.pop(neighbor, None)
            if route.next_hop == neighbor and route.valid and route.until > now:
                self._end(route, now)
                lost.append(route)
        return lost

    # [RFC 6.11] Deviation: the number never falls to the one in the error, which may be older than the own.
    def end(self, now: float, route: Route, sequence: int) -> None:
        """The next hop says that it has lost the destination, whose number is now at least this."""
        self._end(route, now)
        route.sequence = max(route.sequence, sequence)

    # [RFC 6.1, 6.11] The number of a lost or expired route grows by one.
    def _end(self, route: Route, at: float) -> None:
        route.valid = False
        if route.sequence:
            route.sequence = min(route.sequence + 1, MAX_NUMBER)
        route.until = at + self._delete_period_s

    def _replace(self, route: Route, via: NodeId, hops: int, sequence: int, until: float) -> None:
        route.until = max(route.until, until) if route.valid and route.next_hop == via else until
        route.next_hop, route.hops, route.sequence, route.valid = via, hops, sequence, True

    def _create(self, now: float, route: Route) -> bool:
        if now >= (self._purge_at if len(self._routes) < self._most else self._full_purge_at):
            self._purge(now)
        if len(self._routes) >= self._most:
            return False
        self._routes[route.target] = route
        return True

    def _purge(self, now: float) -> None:
        """Forget what is over. Twice in a delete period, and each second while there is no room, so that a flood of
        destinations does not make each of them expensive."""
        self._purge_at = now + self._delete_period_s / 2
        self._full_purge_at = now + 1.0
        for target in list(self._routes):
            self.known(now, target)
