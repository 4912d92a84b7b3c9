"""Reconciliation: a Trickle timer (RFC 6206) decides when a node sends the hash or the digest of its known events.

The terms of RFC 6206, and their counterparts here:

- *interval I*: `_interval_s`. A transmission is scheduled at a random time t in the second half of it (§4.2, rule 2).
- *Imin*: the setting `contact_s` after a contact, `news_s` after a new event. *Imax*: the setting `hash_max_s`.
- *consistency*: a neighbor sends the hash or digest of an equal set. *Redundancy constant k = 1*: one consistent
  message in the interval suppresses the own (§4.2, rules 3 and 4).
- *inconsistency*: a new neighbor or a new event resets the interval to Imin (§4.2, rule 6).

Deviations from Trickle: the interval is multiplied by four and not doubled (`INTERVAL_FACTOR`); the next interval
starts at t and not at the end of I; a received hash that differs is answered directly instead of by resetting the
timer.

If a neighbor's hash is that of all known events but one, the sketch names this event, and it is sent. Otherwise a node
answers a hash that differs with its own hash, and if its own hash was sent already, with a digest. At the end of an
interval of Imax it sends a digest whatever the hashes say.
"""

from math import inf
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.known_events import KnownEvents
from carrycast.protocols.drift.messages import MAX_RUNS_BYTES, SALT_BITS, Digest, Hash
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.rate_limits import DigestLimiter
from carrycast.protocols.drift.rules import response_backoff_s
from carrycast.protocols.drift.settings import DriftSettings

TRICKLE = "trickle"
REPLY = "reply"
INTERVAL_FACTOR = 4
"""From one interval to the next. Differences that were not found by then are rare, and doubling (RFC 6206 §4.2, rule 5)
sends more than it finds."""
PART_HOLDOFF_S = 0.03
"""After a digest of several parts, no digest is sent for this time for each part. A set of that size always has events
in transit or forgotten, so hashes always differ."""
HASH_BYTES = 12
"""A digest of at most this size is no longer than a hash, and says more."""
OVERHEAD_BYTES = 64
"""The approximate size of an event without its payload; a digest has a quarter of it."""


class Reconciliation:
    """The Trickle timer of one node, and its answers to hashes."""

    def __init__(
        self,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        neighbors: DriftNeighborTable,
        known_events: KnownEvents,
    ) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._neighbors = neighbors
        self._links = neighbors.links
        self._known_events = known_events
        self._hash = known_events.hash
        self._interval_s = 0.0
        """The current interval I; 0 if the timer is stopped."""
        self._suppressed = False
        """Whether a consistent message was received in this interval (c >= k)."""
        self._sent_version = -1
        """The value of `SetHash.changes` when this node last sent its hash or digest."""
        self._new: set[NodeId] = set()
        """Neighbors with which nothing has been compared yet."""
        self._reply: tuple[NodeId, Hash] | None = None
        """The neighbor that is to be answered, and its hash."""
        self._limiter = DigestLimiter()
        self._without_digest: set[NodeId] = set()
        """Neighbors that came after the last digest."""
        self._sent_s = self._digest_sent_s = inf
        """When the last hash, and the last digest, was sent; at first the time of the first contact."""
        self._last_part: EventId | None = None
        """The highest id of the last part of a long digest."""
        self._holdoff_start_s = -inf
        """When the last digest of several parts was sent, and for how long it holds off the next."""
        self._holdoff_s = 0.0

    def on_contact(self, now: float, node: NodeId) -> None:
        """A neighbor has come: an inconsistency."""
        self._new.add(node)
        self._without_digest.add(node)
        if self._digest_sent_s == inf:
            self._sent_s = self._digest_sent_s = now
        self._start_interval(response_backoff_s(self.settings.contact_s, len(self._links)))

    def on_departure(self, node: NodeId) -> None:
        """A neighbor has gone."""
        self._new.discard(node)
        self._without_digest.discard(node)

    def on_received(self, payload_bytes: int) -> None:
        """A new event was received: neighbors may cause as many more bytes of digests."""
        self._limiter.received_bytes += OVERHEAD_BYTES + payload_bytes

    def reset_timer(self) -> None:
        """The set of known events has changed: an inconsistency (RFC 6206 §4.2, rule 6)."""
        self._start_interval(self.settings.news_s)

    def on_trickle_timer(self, now: float) -> None:
        """Send the hash unless it is suppressed (RFC 6206 §4.2, rule 4).

        Once in Imax it is sent in any case, since a neighbor that suppresses it may lie. At the end of an interval of
        Imax a digest is sent instead, since hashes may agree by chance; where new events keep intervals short, after
        four times Imax."""
        settings = self.settings
        last_s, self._interval_s = self._interval_s, 0.0
        if self._links:
            if self._known_events.ids:
                imax_s = settings.hash_max_s
                if last_s >= imax_s or not 0.0 <= now - self._digest_sent_s < INTERVAL_FACTOR * imax_s:
                    self._send_regular_digest(now)
                elif self._new or not self._suppressed or not 0.0 <= now - self._sent_s < imax_s:
                    self._send_hash(now)
            self._start_interval(min(max(INTERVAL_FACTOR * last_s, settings.news_s), settings.hash_max_s))
        self._new.clear()

    def on_hash(self, now: float, node: NodeId, hash: Hash) -> tuple[bool, EventId | None]:
        """Compare a neighbor's hash. Returns whether the sets are equal, and if not, the one event that the neighbor is
        missing if that is the only difference. In all other cases an answer is scheduled."""
        if self._hash.equals(hash.salt, hash.value, hash.sketch):
            self._on_consistent(node)
            # If an answer is scheduled, another neighbor has just given it.
            if self._reply is not None and not self._is_informed(self._reply[0]):
                self._cancel_reply()
            return True, None
        missing = self._hash.find_single_difference(hash.salt, hash.value, hash.sketch)
        if missing is not None:
            self._new.discard(node)
        elif self._reply is None:
            self._reply = (node, hash)
            longest_s = response_backoff_s(self.settings.reply_s, len(self._links))
            self._port.set_timer(REPLY, longest_s * self._rng.random())
        return False, missing

    def on_equal_digest(self, now: float, node: NodeId, digest: Digest) -> None:
        """A neighbor has sent the digest, or the part of it, that this node would send: a scheduled answer is
        suppressed."""
        self._on_consistent(node)
        if self._reply is not None:
            requester = self._reply[0]
            # The requester has caused this digest, whichever node sent it.
            self._charge(now, requester, _estimate_bytes(digest))
            self._without_digest.discard(requester)
            self._cancel_reply()

    def on_reply_timer(self, now: float) -> None:
        """Answer with the hash or, if the neighbor has received that already, with a digest."""
        assert self._reply is not None
        (node, hash), self._reply = self._reply, None
        if node not in self._links or self._hash.equals(hash.salt, hash.value, hash.sketch):
            return
        if not self._is_informed(node):
            self._send_hash(now)
        elif not self._is_held_off(now):
            digests = list(self._known_events.digests())
            if self._charge(now, node, sum(map(_estimate_bytes, digests))):
                self._send_digests(now, digests)
            else:
                self._port.note(Fact("drop", peer=node, reason="digests_too_often"))

    def stop(self) -> None:
        """Cancel the timers."""
        self._port.cancel_timer(TRICKLE)
        self._cancel_reply()

    def _on_consistent(self, node: NodeId) -> None:
        if self._new:
            self._new.discard(node)
        self._suppressed = True

    def _is_informed(self, node: NodeId) -> bool:
        """Whether the current hash was sent since the neighbor came."""
        return self._sent_version == self._hash.changes and node not in self._new

    def _charge(self, now: float, node: NodeId, size: int) -> bool:
        return self._limiter.allow(now, node, size, self.settings.hash_max_s, node in self._without_digest)

    def _send_hash(self, now: float) -> None:
        if self._is_digest_short():
            self._send_digests(now, list(self._known_events.digests()))
            return
        self._sent_version, self._sent_s = self._hash.changes, now
        self._new.clear()
        salt = self._rng.getrandbits(SALT_BITS)
        self._neighbors.broadcast(Hash(salt, self._hash.value(salt), self._hash.sketch))

    def _send_regular_digest(self, now: float) -> None:
        """Send the digest; if it is long, its next part, and the hash of the whole set."""
        part = self._known_events.digest_after(self._last_part)
        if part.low is None and part.high is None:
            self._send_digests(now, [part])
        else:
            self._send_hash(now)
            self._neighbors.broadcast(part)
            self._digest_sent_s = now
        self._last_part = part.high

    def _send_digests(self, now: float, digests: list[Digest]) -> None:
        self._sent_version, self._sent_s = self._hash.changes, now
        self._new.clear()
        self._without_digest.clear()
        self._digest_sent_s = now
        for digest in digests:
            self._neighbors.broadcast(digest)
        if len(digests) > 1:
            self._holdoff_start_s, self._holdoff_s = now, len(digests) * PART_HOLDOFF_S

    def _is_digest_short(self) -> bool:
        """Whether a digest is no longer than a hash: a run takes three bytes."""
        if len(self._hash) > MAX_RUNS_BYTES:
            # It travels in parts, and to go through such a set for each hash would cost more than it saves.
            return False
        sources: set[NodeId] = set()
        for id in self._known_events.ids:
            sources.add(id.source)
            if len(sources) > HASH_BYTES // 3:
                return False
        digest = next(self._known_events.digests())
        return len(digest.known) + len(digest.evicted) <= HASH_BYTES

    def _is_held_off(self, now: float) -> bool:
        return 0.0 <= now - self._holdoff_start_s < self._holdoff_s

    def _start_interval(self, interval_s: float) -> None:
        """Start an interval, unless a shorter one runs, and choose t in its second half (RFC 6206 §4.2, rule 2)."""
        if not 0.0 < self._interval_s <= interval_s:
            self._interval_s = interval_s
            self._suppressed = False
            self._port.set_timer(TRICKLE, interval_s * (0.5 + 0.5 * self._rng.random()))

    def _cancel_reply(self) -> None:
        self._reply = None
        self._port.cancel_timer(REPLY)


def _estimate_bytes(digest: Digest) -> int:
    """The approximate size of a digest in bytes."""
    return OVERHEAD_BYTES // 4 + len(digest.known) + len(digest.evicted)
