"""Rate limits: how often a neighbor is served, so that requests without end do not get answers without end."""

from collections.abc import Hashable

from carrycast.core.model import NodeId

WINDOW_S = 60.0
MAX_KEYS = 1 << 14
"""Further keys within one window are refused, so that a flood of invented keys cannot fill the memory."""

BURST_DIGESTS = 2
"""Digests that a neighbor may cause at once: one may be lost."""
MAX_BUCKETS = 1024
"""Neighbors whose buckets are remembered."""


class FixedWindowLimiter:
    """A fixed-window rate limiter: it counts by key, and all counts start again at zero every minute."""

    __slots__ = ("_counts", "_start_s")

    def __init__(self) -> None:
        self._start_s = 0.0
        self._counts: dict[Hashable, int] = {}

    def allow(self, now: float, key: Hashable, most: int) -> bool:
        """Count one use of a key; False if there were `most` in this window already."""
        # A clock that was set back starts a new window too.
        if not 0.0 <= now - self._start_s < WINDOW_S:
            self._start_s = now
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= most or (not count and len(self._counts) >= MAX_KEYS):
            return False
        self._counts[key] = count + 1
        return True


class _DigestBucket:
    """A token bucket whose tokens are bytes of digests."""

    __slots__ = ("received_bytes", "tokens", "updated_s")

    def __init__(self, now: float, received_bytes: int, tokens: float) -> None:
        self.updated_s = now
        self.received_bytes = received_bytes
        self.tokens = tokens

    def refill(self, now: float, received_bytes: int, burst: float, fill_s: float) -> float:
        """Refill and return the tokens. An empty bucket is full after `fill_s`; each byte of a new event adds one."""
        # After a clock was set back, no time has passed.
        elapsed_s = max(0.0, now - self.updated_s)
        self.tokens = min(burst, self.tokens + burst * elapsed_s / fill_s + (received_bytes - self.received_bytes))
        self.updated_s, self.received_bytes = now, received_bytes
        return self.tokens


class DigestLimiter:
    """Limits the bytes of digests that neighbors cause by hashes that differ: for each neighbor and for all together.

    A bucket holds two digests of the current set. It fills within Imax, after which a digest is due anyway, and by as
    many bytes as the events have that were received meanwhile: many new events need more reconciliation.
    """

    def __init__(self) -> None:
        self.received_bytes = 0
        """Bytes of the events received so far."""
        self._shared: _DigestBucket | None = None
        self._buckets: dict[NodeId, _DigestBucket] = {}
        """By neighbor, also past ones, so that a neighbor that returns does not get a full bucket; the most recent one
        is last."""

    def allow(self, now: float, node: NodeId, size: int, fill_s: float, first: bool) -> bool:
        """Whether a neighbor may cause a digest of this size; if so, it is charged. The first digest after a neighbor
        came needs no tokens of the shared bucket: every newcomer needs that one, however many come."""
        burst = BURST_DIGESTS * size
        own = self._buckets.pop(node, None) or _DigestBucket(now, self.received_bytes, burst)
        self._buckets[node] = own
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        shared = self._shared = self._shared or _DigestBucket(now, self.received_bytes, burst)
        own_tokens = own.refill(now, self.received_bytes, burst, fill_s)
        shared_tokens = shared.refill(now, self.received_bytes, burst, fill_s)
        if own_tokens < size or (shared_tokens < size and not first):
            return False
        own.tokens -= size
        shared.tokens = max(0.0, shared_tokens - size)
        return True
