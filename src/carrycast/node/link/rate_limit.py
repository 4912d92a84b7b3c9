"""Rate limiters: token buckets (RFC 2697) for the CPU time of neighbors and for handshakes, and a limit for warnings.

`CpuLimiter` limits the CPU time that the messages of one neighbor may take. A neighbor's bucket holds some seconds of
CPU time and is refilled with a share of the time that passes. The CPU time of other programs is not charged. While the
bucket is empty, the neighbor's messages are dropped before they are decoded. They are not acknowledged, so that an
honest neighbor sends them again later. To measure CPU time takes longer than to handle some messages. So consecutive
messages of one neighbor are measured together, at most for one turn of the event loop.

`HandshakeLimiter` limits handshakes. One attacker may have many addresses: an IPv6 subscriber has at least a /64, and
often a /48. So unknown hosts share a bucket by prefix, one by site, and one for all of them. Members have other
buckets, which a flood of unknown hosts cannot empty: members are the hosts where a session was authenticated, and the
hosts that this node itself wants to reach.

`LogLimiter` limits the warnings about rejected hosts: the same warning is logged once a minute.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import AddressScope
from carrycast.node.link.frame import MAX_SENDERS
from carrycast.node.recorder import LOG


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[quotas]`: the limits for the neighbors on each interface."""

    neighbors: Annotated[
        int, Meta(ge=1, le=4096, description="the most neighbors on one interface; others are ignored")
    ] = 256
    share: Annotated[
        float,
        Meta(
            gt=0, le=1, description="the share of a CPU core that the messages of one neighbor may use in the long run"
        ),
    ] = 0.9
    advance_s: Annotated[float, Meta(gt=0, le=3600, description="CPU seconds that a neighbor may use at once")] = 5.0


class CpuLimiter:
    """A token bucket of CPU time for each neighbor. `soon` calls a function in the next turn of the event loop."""

    def __init__(self, settings: QuotaSettings, soon: Callable[[Callable[[], None]], object]) -> None:
        self._rate = settings.share
        self._burst_s = settings.advance_s
        self._soon = soon
        self._used: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        """The tokens missing from a neighbor's bucket, and the time of that; other neighbors have full buckets."""
        self._measured: NodeId | None = None
        """The neighbor to which the CPU time from `_begun_s` on is charged."""
        self._begun_s = 0.0
        self._scheduled = False

    def admit(self, neighbor: NodeId) -> bool:
        """Whether a message of a neighbor may be handled now; if so, the CPU time from now on is charged to it."""
        if neighbor == self._measured:
            return True
        self._charge()
        if self._count_missing(neighbor, time.perf_counter()) >= self._burst_s:
            return False
        self._measured = neighbor
        self._begun_s = time.thread_time()
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.stop_measuring)
        return True

    def stop_measuring(self) -> None:
        """Charge no neighbor for the CPU time from now on."""
        self._scheduled = False
        self._charge()

    def _count_missing(self, neighbor: NodeId, now_s: float) -> float:
        """Return how many tokens are missing from a neighbor's bucket."""
        found = self._used.get(neighbor)
        return 0.0 if found is None else max(found[0] - (now_s - found[1]) * self._rate, 0.0)

    def _charge(self) -> None:
        neighbor, self._measured = self._measured, None
        if neighbor is None:
            return
        now_s = time.perf_counter()
        self._used[neighbor] = (self._count_missing(neighbor, now_s) + time.thread_time() - self._begun_s, now_s)
        self._used.move_to_end(neighbor)
        if len(self._used) > MAX_SENDERS:
            self._used.popitem(last=False)


MAX_BUCKETS = 1024
"""The most buckets of one level. The least recently used one is removed, and is full when it is needed again."""


class _Level(NamedTuple):
    """The token buckets of one level of aggregation, all with the same rate and burst."""

    rate: float
    burst: float
    buckets: "OrderedDict[str, tuple[float, float]]"
    """The tokens in each bucket, and when that was computed."""


class HandshakeLimiter:
    """Limits the handshakes of one interface."""

    def __init__(self, per_s: float, burst: float) -> None:
        """`per_s` and `burst` are the rate and the burst of one host, in handshakes."""

        def make_level(rate: float, at_once: float) -> _Level:
            return _Level(rate * per_s, at_once * burst, OrderedDict())

        self._members = (make_level(1, 1), make_level(8, 4))
        # All unknown hosts together start fewer handshakes than are stored, so that they evict none of a member.
        self._unknown = (make_level(1, 1), make_level(2, 1), make_level(4, 2))
        self._member_hosts: OrderedDict[str, None] = OrderedDict()

    def add_member(self, scope: AddressScope) -> None:
        """A member was authenticated at a host, or this node wants to reach a node there."""
        self._member_hosts[scope.host] = None
        self._member_hosts.move_to_end(scope.host)
        if len(self._member_hosts) > MAX_BUCKETS:
            self._member_hosts.popitem(last=False)

    def take(self, scope: AddressScope, now_s: float, tokens: float) -> bool:
        """Take tokens for an address from each of its buckets; False, and nothing is taken, if one has too few."""
        if scope.host in self._member_hosts:
            levels, keys = self._members, (scope.host, "")
        else:
            levels, keys = self._unknown, (scope.prefix, scope.site, "")  # type: ignore[assignment]
        found = [(level, key, _count_tokens(level, key, now_s)) for level, key in zip(levels, keys, strict=True)]
        enough = all(left >= tokens for _, _, left in found)
        for level, key, left in found:
            level.buckets[key] = (left - tokens if enough else left, now_s)
            level.buckets.move_to_end(key)
            if len(level.buckets) > MAX_BUCKETS:
                level.buckets.popitem(last=False)
        return enough


def _count_tokens(level: _Level, key: str, now_s: float) -> float:
    left, since_s = level.buckets.get(key, (level.burst, now_s))
    return min(level.burst, left + (now_s - since_s) * level.rate)


LOG_AGAIN_S = 60.0
"""The least time between two equal warnings."""
MAX_LOGGED = 256
"""The most warnings that are remembered. Then all are forgotten, at most once per LOG_AGAIN_S, so that a flood of
forged addresses does not fill the log."""


class LogLimiter:
    """Limits the warnings of one interface about other hosts."""

    def __init__(self) -> None:
        self._logged_s: dict[tuple[str, str], float] = {}
        self._full_s = float("-inf")

    def warn(self, host: str, address: str, text: str) -> None:
        """Log a warning about an address, unless the same warning about its host was logged within LOG_AGAIN_S."""
        now_s, key = time.monotonic(), (host, text)
        if now_s - self._logged_s.get(key, float("-inf")) < LOG_AGAIN_S:
            return
        if len(self._logged_s) >= MAX_LOGGED:
            if now_s - self._full_s < LOG_AGAIN_S:
                return
            self._full_s = now_s
            self._logged_s.clear()
        self._logged_s[key] = now_s
        LOG.warning("%s: %s", address, text)
