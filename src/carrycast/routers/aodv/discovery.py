"""Searches for routes [RFC 6.3, 6.4, 6.12, 6.13]: requests in growing rings until a reply comes."""

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import RouteRequest
from carrycast.routers.aodv.rules import RateLimit, first_number, ring, ring_wait_s
from carrycast.routers.aodv.station import Station


class Search:
    """The requests for one destination that are still to be made."""

    __slots__ = ("attempts", "made", "repair_hops")

    def __init__(self, attempts: list[tuple[int, float]], repair_hops: int | None) -> None:
        self.attempts = attempts
        self.made = 0
        self.repair_hops = repair_hops
        """Of a repair: how far the destination was before the break."""


class Discovery:
    """The searches of one node. Each has the timer ("search", target)."""

    def __init__(self, station: Station, incarnation: int) -> None:
        self._station = station
        self._searches: dict[NodeId, Search] = {}
        self._rests: dict[NodeId, float] = {}
        """Until when a destination that was not found is left alone."""
        self._quiet = False
        # A node that restarts must not repeat earlier RREQ ids, which other nodes still remember [RFC 6.3].
        self._next_search = first_number(incarnation)
        self._limit = RateLimit(station.settings.request_rate)

    def __contains__(self, target: NodeId) -> bool:
        return target in self._searches

    @property
    def quiet(self) -> bool:
        """Whether the node has just restarted and must not send a RREQ yet [RFC 6.13]."""
        return self._quiet

    # [RFC 6.13] "each node on reboot waits for DELETE_PERIOD before transmitting any route discovery messages"
    def keep_quiet(self) -> None:
        """From now on, for a delete period."""
        self._quiet = True
        self._station.port.set_timer("quiet", self._station.settings.delete_period_s)

    def speak(self) -> None:
        """The wait is over."""
        self._quiet = False

    def begin(self, now: float, target: NodeId) -> None:
        """Search, if that is not being done."""
        if target in self._searches or self._quiet:
            return
        station = self._station
        route = station.table.known(now, target)
        hops = route.hops if route is not None else None
        self._searches[target] = Search(ring(station.settings, hops), None)
        rest_s = self._rests.pop(target, now) - now
        if rest_s > 0:
            station.port.set_timer(("search", target), rest_s)
        else:
            self.go_on(now, target)

    # [RFC 6.12]
    def begin_repair(self, now: float, target: NodeId, ttl: int, hops: int) -> None:
        """One request around this node, for a destination that was so many hops away."""
        wait_s = ring_wait_s(self._station.settings, ttl)
        self._searches[target] = Search([(ttl, wait_s)], hops)
        self.go_on(now, target)

    def go_on(self, now: float, target: NodeId) -> Search | None:
        """The next request; the search itself if there is none left, and then it has ended."""
        station, search = self._station, self._searches[target]
        if search.made == len(search.attempts):
            del self._searches[target]
            self._rest(now, target, search)
            return search
        wait_s = self._limit.wait_s(now)
        if wait_s > 0:
            # [RFC 6.3] RREQ_RATELIMIT
            station.port.set_timer(("search", target), wait_s)
            return None
        self._limit.take(now)
        ttl, wait_s = search.attempts[search.made]
        search.made += 1
        self._ask(now, target, ttl)
        station.port.set_timer(("search", target), wait_s)
        return None

    def end(self, target: NodeId) -> Search | None:
        """A route has been found."""
        search = self._searches.pop(target, None)
        if search is not None:
            self._station.port.cancel_timer(("search", target))
        return search

    def stop(self) -> None:
        """Leave no timer armed."""
        for target in list(self._searches):
            self.end(target)
        self._station.port.cancel_timer("quiet")

    def _rest(self, now: float, target: NodeId, search: Search) -> None:
        rest_s = self._station.settings.rest_s
        if rest_s > 0 and search.repair_hops is None:
            self._rests = {other: until for other, until in self._rests.items() if until > now}
            self._rests[target] = now + rest_s

    def _ask(self, now: float, target: NodeId, ttl: int) -> None:
        station, settings = self._station, self._station.settings
        route = station.table.known(now, target)
        # [RFC 6.1, 6.3] The own number grows before each request; of the target's, the last one known is asked for.
        request = RouteRequest(
            station.node,
            station.raise_sequence(),
            self._next_search,
            target,
            0 if route is None else route.sequence,
            0,
            ttl,
            settings.gratuitous,
            settings.destination_only,
        )
        self._next_search += 1
        station.broadcast(now, request)
