"""Route discovery [RFC 6.3 to 6.8, 6.12, 6.13]: RREQs by expanding ring search, and the RREPs that answer them."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import RouteReply, RouteRequest
from carrycast.routers.aodv.route_table import RouteEntry
from carrycast.routers.aodv.rules import (
    MessageRateLimit,
    first_sequence_number,
    plan_ring_search,
    reverse_route_lifetime_s,
    ring_traversal_time_s,
)
from carrycast.routers.aodv.state import AodvState

MAX_HOP_COUNT = 255


class PendingDiscovery:
    """The RREQs for one destination that are still to be sent."""

    __slots__ = ("attempts", "repair_hop_count", "sent")

    def __init__(self, attempts: list[tuple[int, float]], repair_hop_count: int | None) -> None:
        self.attempts = attempts
        self.sent = 0
        self.repair_hop_count = repair_hop_count
        """Of a local repair: the hop count to the destination before the break."""


class RouteDiscovery:
    """The route discoveries that one node has started. Each has the timer ("discovery", destination)."""

    def __init__(self, state: AodvState, incarnation: int) -> None:
        self._state = state
        self._pending: dict[NodeId, PendingDiscovery] = {}
        self._rests: dict[NodeId, float] = {}
        """Until when no new discovery starts for a destination that was not found (`rest_s`)."""
        self._waits_after_reboot = False
        # A node that restarts must not repeat earlier RREQ IDs, which other nodes still remember [RFC 6.3].
        self._next_rreq_id = first_sequence_number(incarnation)
        self._limit = MessageRateLimit(state.settings.request_rate)

    def __contains__(self, destination: NodeId) -> bool:
        return destination in self._pending

    @property
    def waits_after_reboot(self) -> bool:
        """Whether the node has just restarted and must not send a RREQ yet [RFC 6.13]."""
        return self._waits_after_reboot

    # [RFC 6.13] "each node on reboot waits for DELETE_PERIOD before transmitting any route discovery messages"
    def start_reboot_wait(self) -> None:
        """Send no RREQ for DELETE_PERIOD from now on. The timer is "reboot"."""
        self._waits_after_reboot = True
        self._state.port.set_timer("reboot", self._state.settings.delete_period_s)

    def end_reboot_wait(self) -> None:
        """Permit RREQs again."""
        self._waits_after_reboot = False

    def start(self, now: float, destination: NodeId) -> None:
        """Start a route discovery, unless there is one already."""
        if destination in self._pending or self._waits_after_reboot:
            return
        state = self._state
        entry = state.table.find(now, destination)
        hop_count = entry.hop_count if entry is not None else None
        self._pending[destination] = PendingDiscovery(plan_ring_search(state.settings, hop_count), None)
        rest_s = self._rests.pop(destination, now) - now
        if rest_s > 0:
            state.port.set_timer(("discovery", destination), rest_s)
        else:
            self.send_next_rreq(now, destination)

    # [RFC 6.12]
    def start_local_repair(self, now: float, destination: NodeId, ttl: int, hop_count: int) -> None:
        """Send one RREQ for a destination that was `hop_count` hops away before its route broke."""
        timeout_s = ring_traversal_time_s(self._state.settings, ttl)
        self._pending[destination] = PendingDiscovery([(ttl, timeout_s)], hop_count)
        self.send_next_rreq(now, destination)

    def send_next_rreq(self, now: float, destination: NodeId) -> PendingDiscovery | None:
        """Send the next RREQ. If none is left, the discovery has failed, and is returned."""
        state, discovery = self._state, self._pending[destination]
        if discovery.sent == len(discovery.attempts):
            del self._pending[destination]
            self._start_rest(now, destination, discovery)
            return discovery
        wait_s = self._limit.wait_s(now)
        if wait_s > 0:
            # [RFC 6.3] RREQ_RATELIMIT
            state.port.set_timer(("discovery", destination), wait_s)
            return None
        self._limit.take(now)
        ttl, timeout_s = discovery.attempts[discovery.sent]
        discovery.sent += 1
        self._broadcast_rreq(now, destination, ttl)
        state.port.set_timer(("discovery", destination), timeout_s)
        return None

    def finish(self, destination: NodeId) -> PendingDiscovery | None:
        """End the discovery of a destination, to which there is a route now."""
        discovery = self._pending.pop(destination, None)
        if discovery is not None:
            self._state.port.cancel_timer(("discovery", destination))
        return discovery

    def stop(self) -> None:
        """Cancel all timers."""
        for destination in list(self._pending):
            self.finish(destination)
        self._state.port.cancel_timer("reboot")

    def _start_rest(self, now: float, destination: NodeId, discovery: PendingDiscovery) -> None:
        rest_s = self._state.settings.rest_s
        if rest_s > 0 and discovery.repair_hop_count is None:
            self._rests = {other: until for other, until in self._rests.items() if until > now}
            self._rests[destination] = now + rest_s

    def _broadcast_rreq(self, now: float, destination: NodeId, ttl: int) -> None:
        state, settings = self._state, self._state.settings
        entry = state.table.find(now, destination)
        # [RFC 6.1, 6.3] The own sequence number grows before each RREQ. That of the destination is the last known.
        request = RouteRequest(
            state.node,
            state.increment_sequence(),
            self._next_rreq_id,
            destination,
            0 if entry is None else entry.sequence,
            0,
            ttl,
            settings.gratuitous,
            settings.destination_only,
        )
        self._next_rreq_id += 1
        state.broadcast(now, request)


class RequestReplyHandler:
    """Answers and forwards the RREQs and RREPs of other nodes. A delayed RREQ has the timer ("forward", number)."""

    def __init__(self, state: AodvState, discovery: RouteDiscovery, rng: Random) -> None:
        self._state = state
        self._discovery = discovery
        self._rng = rng
        self._seen: dict[tuple[NodeId, int], float] = {}
        """RREQs by originator and RREQ ID, each with the end of its PATH_DISCOVERY_TIME. The oldest ends first."""
        self._limits: dict[NodeId, MessageRateLimit] = {}
        """The rate limit of each originator."""
        self._delayed: dict[int, RouteRequest] = {}
        self._last_delayed = 0
        self._blacklist: dict[NodeId, float] = {}
        """Neighbors that a RREP could not reach, and until when their RREQs are ignored [RFC 6.8]."""

    def stop(self) -> None:
        """Cancel all timers."""
        for number in self._delayed:
            self._state.port.cancel_timer(("forward", number))
        self._delayed.clear()

    # [RFC 6.8] BLACKLIST_TIMEOUT = RREQ_RETRIES NET_TRAVERSAL_TIME
    def on_reply_failed(self, now: float, neighbor: NodeId) -> None:
        """Put a neighbor on the blacklist: the link is unidirectional, and RREQs have to come over other neighbors."""
        settings = self._state.settings
        self._blacklist = {other: until for other, until in self._blacklist.items() if until > now}
        self._blacklist[neighbor] = now + max(settings.request_retries, 1) * settings.net_traversal_s

    # [RFC 6.5]
    def on_request(self, now: float, sender: NodeId, request: RouteRequest) -> None:
        """Create the reverse route to the originator; then answer the RREQ or forward it."""
        state, settings = self._state, self._state.settings
        if request.originator == state.node or not self._accept_request(now, sender, request):
            return
        if request.hop_count >= MAX_HOP_COUNT:
            state.drop("hops_exhausted", sender)
            return
        hop_count = request.hop_count + 1
        if state.is_forged(now, request.originator, request.originator_sequence) or state.is_forged(
            now, request.destination, request.destination_sequence
        ):
            state.drop("sequence_forged", sender)
            return
        expires_at = now + reverse_route_lifetime_s(settings, hop_count)
        updated = state.table.update(
            now, request.originator, request.originator_sequence, hop_count, sender, expires_at
        )
        if updated is None:
            state.drop("table_full", sender)
            return
        reverse = state.table.find_valid(now, request.originator)
        if request.destination == state.node:
            self._reply_as_destination(request, reverse)
        elif not self._reply_as_intermediate(now, sender, request, reverse):
            self._forward_request(now, request, hop_count)

    # [RFC 6.5] A RREQ with the same originator and RREQ ID within PATH_DISCOVERY_TIME is discarded. This is no recorded
    # drop, since each node hears most RREQs several times.
    def _accept_request(self, now: float, sender: NodeId, request: RouteRequest) -> bool:
        seen, settings = self._seen, self._state.settings
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] > now:
                break
            del seen[oldest]
        key = (request.originator, request.rreq_id)
        if key in seen:
            return False
        if self._blacklist.get(sender, 0.0) > now:
            self._state.drop("one_way_link", sender)
            return False
        if len(seen) >= settings.max_requests:
            self._state.drop("request_storm", sender)
            return False
        seen[key] = now + settings.path_discovery_s
        if not self._limit_of(request.originator).take(now):
            self._state.drop("request_rate", sender)
            return False
        return True

    def _limit_of(self, originator: NodeId) -> MessageRateLimit:
        limit = self._limits.get(originator)
        if limit is None:
            if len(self._limits) >= self._state.settings.max_requests:
                self._limits.clear()
            # Twice the rate of an honest node, since queues may bring its RREQs close together.
            limit = self._limits[originator] = MessageRateLimit(2 * self._state.settings.request_rate)
        return limit

    # [RFC 6.6.1]
    def _reply_as_destination(self, request: RouteRequest, reverse: RouteEntry | None) -> None:
        state, settings = self._state, self._state.settings
        if settings.raise_on_reply or request.destination_only:
            # ns-2: max(own number, number in the RREQ) + 1. Deviation: with flag D too. An intermediate node that has
            # the same number already would not forward the RREP.
            state.increment_sequence(request.destination_sequence + 1)
        elif request.destination_sequence > state.sequence:
            # [RFC 6.1] "the maximum of its current number and the number in the RREQ"
            state.increment_sequence(request.destination_sequence)
        lifetime_ms = round(1000 * settings.my_route_timeout_s)
        self._send_reply(reverse, RouteReply(request.originator, state.node, state.sequence, 0, lifetime_ms))

    # [RFC 6.6.2, 6.6.3]
    def _reply_as_intermediate(
        self, now: float, sender: NodeId, request: RouteRequest, reverse: RouteEntry | None
    ) -> bool:
        """Answer a RREQ from the own route table. False if there is no route that is fresh enough."""
        state = self._state
        forward = state.table.find_valid(now, request.destination)
        if forward is None or forward.sequence == 0 or forward.sequence < request.destination_sequence:
            return False
        if request.destination_only or self._discovery.waits_after_reboot:
            return False
        if forward.next_hop == sender:
            # The sender has lost the route that this node has learned from it, or it would not forward the RREQ.
            return False
        forward.add_precursor(sender)
        if reverse is not None:
            reverse.add_precursor(forward.next_hop)
        lifetime_ms = round(1000 * (forward.expires_at - now))
        reply = RouteReply(request.originator, request.destination, forward.sequence, forward.hop_count, lifetime_ms)
        self._send_reply(reverse, reply)
        if request.gratuitous and reverse is not None and reverse.sequence > 0:
            lifetime_ms = round(1000 * (reverse.expires_at - now))
            self._send_reply(
                forward,
                RouteReply(request.destination, request.originator, reverse.sequence, reverse.hop_count, lifetime_ms),
            )
        return True

    def _send_reply(self, route: RouteEntry | None, reply: RouteReply) -> None:
        if route is None:
            self._state.drop("no_way_back")
        else:
            self._state.send(route.next_hop, reply)

    # [RFC 6.5] If the TTL is above 1, it is decremented, the hop count is incremented, and the destination sequence
    # number becomes the greatest one known.
    def _forward_request(self, now: float, request: RouteRequest, hop_count: int) -> None:
        state, settings = self._state, self._state.settings
        ttl = min(request.ttl, settings.net_diameter) - 1
        if ttl < 1 or self._discovery.waits_after_reboot:
            # [RFC 6.13] A node that has just restarted forwards no RREQ.
            return
        entry = state.table.find(now, request.destination)
        onward = RouteRequest(
            request.originator,
            request.originator_sequence,
            request.rreq_id,
            request.destination,
            max(request.destination_sequence, 0 if entry is None else entry.sequence),
            hop_count,
            ttl,
            request.gratuitous,
            request.destination_only,
        )
        if settings.forward_jitter_s == 0:
            state.broadcast(now, onward)
            return
        self._last_delayed += 1
        self._delayed[self._last_delayed] = onward
        state.port.set_timer(("forward", self._last_delayed), settings.forward_jitter_s * self._rng.random())

    def broadcast_delayed(self, now: float, number: int) -> None:
        """Broadcast a RREQ whose random delay is over."""
        self._state.broadcast(now, self._delayed.pop(number))

    # [RFC 6.7]
    def on_reply(self, now: float, sender: NodeId, reply: RouteReply) -> None:
        """Create or update the forward route. If it changed, forward the RREP toward the originator of the RREQ."""
        state, settings, table = self._state, self._state.settings, self._state.table
        if reply.destination == state.node:
            state.drop("route_to_self", sender)
            return
        if state.is_forged(now, reply.destination, reply.destination_sequence):
            state.drop("sequence_forged", sender)
            return
        if reply.hop_count >= MAX_HOP_COUNT:
            # Hop counts that cannot grow any more would not order routes.
            state.drop("hops_exhausted", sender)
            return
        hop_count = reply.hop_count + 1
        # No node may prolong a route beyond the lifetime that its destination would give it.
        max_lifetime_s = max(settings.my_route_timeout_s, settings.active_route_timeout_s)
        expires_at = now + min(reply.lifetime_ms / 1000, max_lifetime_s)
        updated = table.update(now, reply.destination, reply.destination_sequence, hop_count, sender, expires_at)
        if updated is None:
            state.drop("table_full", sender)
        if updated and reply.originator != state.node:
            self._forward_reply(now, sender, reply, hop_count)

    # [RFC 6.7]
    def _forward_reply(self, now: float, sender: NodeId, reply: RouteReply, hop_count: int) -> None:
        state, table = self._state, self._state.table
        # "the (reverse) route used to forward a RREP has its lifetime changed"
        table.extend_lifetime(now, reply.originator, now + state.settings.active_route_timeout_s)
        reverse = table.find_valid(now, reply.originator)
        if reverse is None or self._discovery.waits_after_reboot:
            state.drop("no_way_back", sender)
            return
        for route in (table.find_valid(now, reply.destination), table.find_valid(now, sender)):
            if route is not None:
                route.add_precursor(reverse.next_hop)
        onward = RouteReply(
            reply.originator, reply.destination, reply.destination_sequence, hop_count, reply.lifetime_ms
        )
        state.send(reverse.next_hop, onward)
