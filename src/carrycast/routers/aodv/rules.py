"""The formulas of AODV, each beside its section of RFC 3561."""

from collections import deque

from carrycast.routers.aodv.messages import COUNTER_BITS
from carrycast.routers.aodv.settings import AodvSettings

MAX_SEQUENCE_JUMP = 1 << 16
"""The most by which an honest node can raise its sequence number while another node remembers the old one. A node adds
at most `request_rate` a second, for less than a minute, and others add one for each break of the route: far less."""


def first_sequence_number(incarnation: int) -> int:
    """The sequence number of a node that has just started. It is above all numbers of earlier incarnations."""
    return (incarnation << COUNTER_BITS) + 1


def is_plausible_sequence(claimed: int, known: int) -> bool:
    """Whether a node whose sequence number was `known` can have reached `claimed`.

    A restart may raise the number by any amount. Otherwise it grows by at most MAX_SEQUENCE_JUMP.
    """
    return claimed >> COUNTER_BITS != known >> COUNTER_BITS or claimed - known <= MAX_SEQUENCE_JUMP


# [RFC 6.2] The sequence number is greater; or equal with a smaller hop count; or equal and the own route is invalid.
def is_better_route(sequence: int, hop_count: int, own_sequence: int, own_hop_count: int, own_valid: bool) -> bool:
    """Whether a received route replaces the own one. An unknown own number is 0, which is below every other."""
    return sequence > own_sequence or (sequence == own_sequence and (not own_valid or hop_count < own_hop_count))


# [RFC 6.4] Expanding ring search: TTL_START, then TTL_INCREMENT more each time up to TTL_THRESHOLD (1, 3, 5, 7 hops),
# then NET_DIAMETER. It starts from the last known hop count if there is one. [RFC 6.3] RREQs with NET_DIAMETER are
# repeated RREQ_RETRIES times, with a backoff.
def plan_ring_search(settings: AodvSettings, known_hop_count: int | None) -> list[tuple[int, float]]:
    """The RREQs of one route discovery: the TTL of each, and how long to wait for a RREP."""
    attempts: list[tuple[int, float]] = []
    ttl = settings.ttl_start if known_hop_count is None else known_hop_count + settings.ttl_increment
    while ttl < settings.net_diameter:
        attempts.append((ttl, ring_traversal_time_s(settings, ttl)))
        ttl += settings.ttl_increment
        if ttl > settings.ttl_threshold:
            break
    for retry in range(settings.request_retries + 1):
        factor = 2**retry if settings.backoff == "binary" else retry + 1
        attempts.append((settings.net_diameter, factor * settings.net_traversal_s))
    return attempts


# [RFC 10] RING_TRAVERSAL_TIME = 2 NODE_TRAVERSAL_TIME (TTL_VALUE + TIMEOUT_BUFFER)
def ring_traversal_time_s(settings: AodvSettings, ttl: int) -> float:
    """How long the RREPs to a RREQ with this TTL may take."""
    return 2 * settings.node_traversal_s * (ttl + settings.timeout_buffer)


# [RFC 6.5] MinimalLifetime = now + 2 NET_TRAVERSAL_TIME - 2 HopCount NODE_TRAVERSAL_TIME
def reverse_route_lifetime_s(settings: AodvSettings, hop_count: int) -> float:
    """The lifetime of a reverse route, which leads back to the originator of a RREQ."""
    return max(settings.reverse_route_s - 2 * hop_count * settings.node_traversal_s, settings.node_traversal_s)


# [RFC 6.12] A node repairs a route if the destination was within MAX_REPAIR_TTL = 0.3 NET_DIAMETER hops. ns-2: if it is
# nearer to the destination than to the origin.
def may_repair_locally(settings: AodvSettings, hops_done: int, hops_left: int) -> bool:
    """Whether an intermediate node repairs a broken route itself."""
    if settings.local_repair == "near_target":
        return hops_left <= settings.max_repair_share * settings.net_diameter
    return settings.local_repair == "past_half" and hops_done > hops_left


# [RFC 6.12] max(MIN_REPAIR_TTL, 0.5 #hops) + LOCAL_ADD_TTL, where MIN_REPAIR_TTL is the last known hop count to the
# destination and #hops the hop count to the origin.
def local_repair_ttl(settings: AodvSettings, hops_done: int, hops_left: int) -> int:
    """The TTL of the RREQ of a local repair."""
    return min(max(hops_left, hops_done // 2) + settings.local_add_ttl, settings.net_diameter)


class MessageRateLimit:
    """At most `per_s` messages in any second: RREQ_RATELIMIT and RERR_RATELIMIT [RFC 6.3, 6.11]."""

    __slots__ = ("_per_s", "_times")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._times: deque[float] = deque()

    def wait_s(self, now: float) -> float:
        """How long to wait before the next message; 0 if it may be sent now."""
        times = self._times
        while times and times[0] <= now - 1.0:
            times.popleft()
        return 0.0 if len(times) < self._per_s else times[0] + 1.0 - now

    def take(self, now: float) -> bool:
        """Count one message if it may be sent now; False if it may not."""
        if self.wait_s(now) > 0:
            return False
        self._times.append(now)
        return True
