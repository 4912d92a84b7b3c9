"""The formulas of AODV, each beside its section of RFC 3561."""

from collections import deque

from carrycast.routers.aodv.messages import COUNTER_BITS
from carrycast.routers.aodv.settings import AodvSettings

MAX_JUMP = 1 << 16
"""How far a sequence number can honestly have moved while somebody remembers it: at most `request_rate` times a second
for less than a minute, and one for each break of the route, is far below."""


def first_number(incarnation: int) -> int:
    """The first sequence number of a node that has just started: above all that it had before."""
    return (incarnation << COUNTER_BITS) + 1


def is_plausible(claimed: int, known: int) -> bool:
    """Whether a sequence number can follow on one that was known: a restart may raise it by any amount, and nothing
    else can by much."""
    return claimed >> COUNTER_BITS != known >> COUNTER_BITS or claimed - known <= MAX_JUMP


# [RFC 6.2] A greater number, or the same one and fewer hops, or the same one where the own route is no longer valid.
def is_better(sequence: int, hops: int, own_sequence: int, own_hops: int, own_valid: bool) -> bool:
    """Whether a route that was offered replaces the own one. An unknown own number is 0, and so below every other."""
    return sequence > own_sequence or (sequence == own_sequence and (not own_valid or hops < own_hops))


# [RFC 6.4] 1, 3, 5, 7 hops, then the whole network; from the last known distance if there is one. [RFC 6.3] Requests to
# the whole network are repeated, with a wait that grows.
def ring(settings: AodvSettings, known_hops: int | None) -> list[tuple[int, float]]:
    """The requests of one search: time to live, and how long to wait for a reply."""
    attempts: list[tuple[int, float]] = []
    ttl = settings.ttl_start if known_hops is None else known_hops + settings.ttl_increment
    while ttl < settings.net_diameter:
        attempts.append((ttl, ring_wait_s(settings, ttl)))
        ttl += settings.ttl_increment
        if ttl > settings.ttl_threshold:
            break
    for retry in range(settings.request_retries + 1):
        factor = 2**retry if settings.backoff == "binary" else retry + 1
        attempts.append((settings.net_diameter, factor * settings.net_traversal_s))
    return attempts


# [RFC 10] RING_TRAVERSAL_TIME
def ring_wait_s(settings: AodvSettings, ttl: int) -> float:
    """How long the answers of a ring may take."""
    return 2 * settings.node_traversal_s * (ttl + settings.timeout_buffer)


# [RFC 6.5] MinimalLifetime = now + 2 NET_TRAVERSAL_TIME - 2 HopCount NODE_TRAVERSAL_TIME
def reverse_life_s(settings: AodvSettings, hops: int) -> float:
    """How long a route back to who asks is good for."""
    return max(settings.reverse_route_s - 2 * hops * settings.node_traversal_s, settings.node_traversal_s)


# [RFC 6.12] A repair is for who is near the destination: MAX_REPAIR_TTL = 0.3 NET_DIAMETER. ns-2: who is nearer to it
# than to the origin.
def may_repair(settings: AodvSettings, hops_done: int, hops_left: int) -> bool:
    """Whether a node on the way mends a broken route itself."""
    if settings.local_repair == "near_target":
        return hops_left <= settings.max_repair_share * settings.net_diameter
    return settings.local_repair == "past_half" and hops_done > hops_left


# [RFC 6.12] max(MIN_REPAIR_TTL, 0.5 #hops) + LOCAL_ADD_TTL, where MIN_REPAIR_TTL is the last known distance of the
# destination and #hops the distance of the origin.
def repair_ttl(settings: AodvSettings, hops_done: int, hops_left: int) -> int:
    """How far a repair asks."""
    return min(max(hops_left, hops_done // 2) + settings.local_add_ttl, settings.net_diameter)


class RateLimit:
    """At most so many in any second [RFC 6.3, 6.11]."""

    __slots__ = ("_per_s", "_times")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._times: deque[float] = deque()

    def wait_s(self, now: float) -> float:
        """How long to wait before the next; 0 if it may be now."""
        times = self._times
        while times and times[0] <= now - 1.0:
            times.popleft()
        return 0.0 if len(times) < self._per_s else times[0] + 1.0 - now

    def take(self, now: float) -> bool:
        """Count one, if it may be now."""
        if self.wait_s(now) > 0:
            return False
        self._times.append(now)
        return True
