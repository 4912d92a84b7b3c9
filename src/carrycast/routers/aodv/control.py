"""Requests and replies [RFC 6.5, 6.6, 6.7, 6.8]: how a route is asked for, answered and laid."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.routers.aodv.discovery import Discovery
from carrycast.routers.aodv.messages import RouteReply, RouteRequest
from carrycast.routers.aodv.rules import RateLimit, reverse_life_s
from carrycast.routers.aodv.station import Station
from carrycast.routers.aodv.table import Route

MAX_HOPS = 255


class Control:
    """What a node does with the requests and replies of others. A request waits for its turn with ("relay", number)."""

    def __init__(self, station: Station, discovery: Discovery, rng: Random) -> None:
        self._station = station
        self._discovery = discovery
        self._rng = rng
        self._met: dict[tuple[NodeId, int], float] = {}
        """Requests, and until when each is remembered; all for the same time, so the oldest ends first."""
        self._rates: dict[NodeId, RateLimit] = {}
        self._relays: dict[int, RouteRequest] = {}
        self._next_relay = 0
        self._deaf_to: dict[NodeId, float] = {}
        """Neighbors that a reply could not reach, and until when their requests are not heard [RFC 6.8]."""

    def stop(self) -> None:
        """Leave no timer armed."""
        for number in self._relays:
            self._station.port.cancel_timer(("relay", number))
        self._relays.clear()

    # [RFC 6.8] BLACKLIST_TIMEOUT = RREQ_RETRIES NET_TRAVERSAL_TIME
    def on_reply_failed(self, now: float, neighbor: NodeId) -> None:
        """The link to a neighbor goes one way only: do not hear its requests for a while, so that others carry them."""
        settings = self._station.settings
        self._deaf_to = {other: until for other, until in self._deaf_to.items() if until > now}
        self._deaf_to[neighbor] = now + max(settings.request_retries, 1) * settings.net_traversal_s

    # [RFC 6.5]
    def on_request(self, now: float, sender: NodeId, request: RouteRequest) -> None:
        """Learn the way back; then answer, or pass it on."""
        station, settings = self._station, self._station.settings
        if request.origin == station.node or not self._is_new(now, sender, request):
            return
        if request.hops >= MAX_HOPS:
            station.drop("hops_exhausted", sender)
            return
        hops = request.hops + 1
        if station.is_forged(now, request.origin, request.origin_sequence) or station.is_forged(
            now, request.target, request.target_sequence
        ):
            station.drop("sequence_forged", sender)
            return
        back_until = now + reverse_life_s(settings, hops)
        taken = station.table.offer(now, request.origin, request.origin_sequence, hops, sender, back_until)
        if taken is None:
            station.drop("table_full", sender)
            return
        back = station.table.valid(now, request.origin)
        if request.target == station.node:
            self._answer_as_target(now, request, back)
        elif not self._answer_for_target(now, sender, request, back):
            self._pass_on(now, sender, request, hops)

    # [RFC 6.5] The same request within PATH_DISCOVERY_TIME is dropped without a word: each node hears most of them
    # several times.
    def _is_new(self, now: float, sender: NodeId, request: RouteRequest) -> bool:
        met, settings = self._met, self._station.settings
        while met:
            first = next(iter(met))
            if met[first] > now:
                break
            del met[first]
        key = (request.origin, request.search)
        if key in met:
            return False
        if self._deaf_to.get(sender, 0.0) > now:
            self._station.drop("one_way_link", sender)
            return False
        if len(met) >= settings.max_requests:
            self._station.drop("request_storm", sender)
            return False
        met[key] = now + settings.path_discovery_s
        if not self._rate_of(request.origin).take(now):
            # No honest node asks that often; the factor is for requests that queues have bunched.
            self._station.drop("request_rate", sender)
            return False
        return True

    def _rate_of(self, origin: NodeId) -> RateLimit:
        rate = self._rates.get(origin)
        if rate is None:
            if len(self._rates) >= self._station.settings.max_requests:
                self._rates.clear()
            rate = self._rates[origin] = RateLimit(2 * self._station.settings.request_rate)
        return rate

    # [RFC 6.6.1]
    def _answer_as_target(self, now: float, request: RouteRequest, back: Route | None) -> None:
        station, settings = self._station, self._station.settings
        if settings.raise_on_reply or request.destination_only:
            # ns-2: max(own, asked for) + 1. Deviation: with flag D too. A reply that is no news to a node on the way,
            # which has the same number from before, would go no further.
            station.raise_sequence(request.target_sequence + 1)
        elif request.target_sequence > station.sequence:
            # [RFC 6.1] "the maximum of its current number and the number in the RREQ"
            station.raise_sequence(request.target_sequence)
        lifetime_ms = round(1000 * settings.my_route_timeout_s)
        self._reply(back, RouteReply(request.origin, station.node, station.sequence, 0, lifetime_ms))

    # [RFC 6.6.2, 6.6.3]
    def _answer_for_target(self, now: float, sender: NodeId, request: RouteRequest, back: Route | None) -> bool:
        station = self._station
        route = station.table.valid(now, request.target)
        fresh = route is not None and route.sequence > 0 and route.sequence >= request.target_sequence
        if route is None or not fresh or request.destination_only or self._discovery.quiet:
            return False
        if route.next_hop == sender:
            # It would be told what it has told, and must have lost it, or it would not pass the request on.
            return False
        route.rely(sender)
        if back is not None:
            back.rely(route.next_hop)
        answer = RouteReply(
            request.origin, request.target, route.sequence, route.hops, round(1000 * (route.until - now))
        )
        self._reply(back, answer)
        if request.gratuitous and back is not None and back.sequence > 0:
            lifetime_ms = round(1000 * (back.until - now))
            news = RouteReply(request.target, request.origin, back.sequence, back.hops, lifetime_ms)
            self._reply(route, news)
        return True

    def _reply(self, way: Route | None, reply: RouteReply) -> None:
        if way is None:
            self._station.drop("no_way_back")
        else:
            self._station.send(way.next_hop, reply)

    # [RFC 6.5] TTL > 1: one less, one hop more, and the greatest number known of the target.
    def _pass_on(self, now: float, sender: NodeId, request: RouteRequest, hops: int) -> None:
        station, settings = self._station, self._station.settings
        ttl = min(request.ttl, settings.net_diameter) - 1
        if ttl < 1 or self._discovery.quiet:
            # [RFC 6.13] A node that has just started passes no request on.
            return
        route = station.table.known(now, request.target)
        target_sequence = max(request.target_sequence, 0 if route is None else route.sequence)
        onward = RouteRequest(
            request.origin,
            request.origin_sequence,
            request.search,
            request.target,
            target_sequence,
            hops,
            ttl,
            request.gratuitous,
            request.destination_only,
        )
        if settings.forward_jitter_s == 0:
            station.broadcast(now, onward)
            return
        self._next_relay += 1
        self._relays[self._next_relay] = onward
        station.port.set_timer(("relay", self._next_relay), settings.forward_jitter_s * self._rng.random())

    def relay(self, now: float, number: int) -> None:
        """A request's turn has come."""
        self._station.broadcast(now, self._relays.pop(number))

    # [RFC 6.7]
    def on_reply(self, now: float, sender: NodeId, reply: RouteReply) -> None:
        """Learn the route, and pass the reply on to who asked if it was news."""
        station, settings, table = self._station, self._station.settings, self._station.table
        if reply.target == station.node:
            station.drop("route_to_self", sender)
            return
        if station.is_forged(now, reply.target, reply.target_sequence):
            station.drop("sequence_forged", sender)
            return
        if reply.hops >= MAX_HOPS:
            # A distance that cannot grow any more would not order routes.
            station.drop("hops_exhausted", sender)
            return
        hops = reply.hops + 1
        # Nobody may keep others believing for longer than a destination itself does.
        longest_s = max(settings.my_route_timeout_s, settings.active_route_timeout_s)
        until = now + min(reply.lifetime_ms / 1000, longest_s)
        taken = table.offer(now, reply.target, reply.target_sequence, hops, sender, until)
        if taken is None:
            station.drop("table_full", sender)
        if not taken or reply.origin == station.node:
            return
        # [RFC 6.7] "the (reverse) route used to forward a RREP has its lifetime changed"
        table.touch(now, reply.origin, now + settings.active_route_timeout_s)
        back = table.valid(now, reply.origin)
        if back is None or self._discovery.quiet:
            station.drop("no_way_back", sender)
            return
        route = table.valid(now, reply.target)
        if route is not None:
            route.rely(back.next_hop)
        to_target = table.valid(now, sender)
        if to_target is not None:
            to_target.rely(back.next_hop)
        onward = RouteReply(reply.origin, reply.target, reply.target_sequence, hops, reply.lifetime_ms)
        station.send(back.next_hop, onward)
