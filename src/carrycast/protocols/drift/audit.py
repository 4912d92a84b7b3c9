"""Audits of multicast trees: the source publishes hashes of the events it has sent, and interested nodes compare them
with the events they got.

An `Audit` is flooded to all nodes, over all links, so that no node of a path can hold it back. For each filter it has a
salted hash of the events that match. A node with one of these filters that got other events ends the tree, and the
events that were swallowed are reconciled like all others.
"""

from random import Random
from zlib import crc32

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Port
from carrycast.protocols.drift.messages import MAX_FILTERS, SALT_BITS, Audit
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.set_hash import hash_ids
from carrycast.protocols.drift.settings import DriftSettings

AUDIT = "audit"
FIRST_S = 5.0
"""From the first event of a tree to its first audit; the interval then doubles up to `hash_max_s`."""
MIN_AGE_S = 1.0
"""Younger events may be in transit and are not audited."""
SETTLE_S = 5.0
"""A node whose filters have just changed may be missing earlier events, and does not compare for this time."""
MAX_EVENTS = 512
"""Events of one tree that wait for their last audit; the oldest beyond that are not audited."""


class AuditedEvents:
    """The events of one tree that a node has sent or got since the audit before the last, by sequence number."""

    __slots__ = ("audited", "events")

    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.audited = -1
        """The last sequence number that was audited."""

    def add(self, event: Event) -> None:
        """Add an event."""
        self.events[event.id.sequence] = event
        if len(self.events) > MAX_EVENTS:
            del self.events[next(iter(self.events))]

    def hash_matching(self, filter: Filter, after: int, last: int, salt: int) -> int:
        """The hash of the matching events with sequence numbers greater than `after`, up to `last`."""
        matching = (
            event.id
            for number, event in self.events.items()
            if after < number <= last and filter.matches(event.attributes)
        )
        return hash_ids(matching, salt)

    def forget(self, last: int) -> None:
        """Remove the events up to `last`: they were audited twice."""
        for number in [number for number in self.events if number <= last]:
            del self.events[number]


def hash_filter(text: str) -> int:
    """Hash a filter to 32 bits. Two filters with the same hash may end a tree without need."""
    return crc32(text.encode())


class TreeAudit:
    """The audits of a node's own tree, and of the trees of others."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, neighbors: DriftNeighborTable) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._neighbors = neighbors
        self._audited: dict[NodeId, AuditedEvents] = {}
        self._sent: dict[int, float] = {}
        """When each event of the own tree was sent, of those that were not audited yet."""
        self._after = -1
        """The next audit begins after this sequence number."""
        self._interval_s = FIRST_S
        self.filters_changed_s = float("-inf")
        """When the local filters changed last."""

    # At the source.

    def on_sent(self, now: float, event: Event) -> None:
        """An own event was sent down the tree."""
        if not self._sent:
            self._port.set_timer(AUDIT, self._interval_s)
        self._sent[event.id.sequence] = now
        self.add(event)

    def restart(self, source: NodeId) -> None:
        """The filters in the tree have changed: events sent so far are not audited."""
        audited = self._audited.get(source)
        if audited is not None and audited.events:
            self._after = max(audited.events)

    def send(self, now: float, source: NodeId, number: int, filters: list[Filter]) -> None:
        """Send an audit of the events that are old enough."""
        audited = self._audited.get(source)
        # A time in the future is from before the clock was set back.
        old = [sequence for sequence, sent_s in self._sent.items() if not 0.0 <= now - sent_s < MIN_AGE_S]
        if audited is not None and old and filters:
            last = max(old)
            salt = self._rng.getrandbits(SALT_BITS)
            hashes = {
                hash_filter(one.text): audited.hash_matching(one, self._after, last, salt)
                for one in filters[:MAX_FILTERS]
            }
            self._neighbors.broadcast(Audit(source, number, self._after + 1, last, salt, hashes))
            # The next audit includes these events too, for nodes that have not received this one.
            audited.forget(self._after)
            self._after, audited.audited = max(self._after, audited.audited), last
            self._interval_s = min(2 * self._interval_s, self.settings.hash_max_s)
        for sequence in old:
            del self._sent[sequence]
        if self._sent:
            self._port.set_timer(AUDIT, self._interval_s)

    # At all other nodes.

    def add(self, event: Event) -> None:
        """An event was sent or received by a tree."""
        self._audited.setdefault(event.id.source, AuditedEvents()).add(event)

    def is_new(self, audit: Audit) -> bool:
        """Whether this audit was not received before."""
        audited = self._audited.setdefault(audit.source, AuditedEvents())
        if audit.last <= audited.audited:
            return False
        audited.audited = audit.last
        return True

    def is_complete(self, now: float, audit: Audit, filters: list[str]) -> bool:
        """Return whether this node got all events that match its filters."""
        audited = self._audited[audit.source]
        audited.forget(audit.first - 1)
        if 0.0 <= now - self.filters_changed_s < SETTLE_S:
            return True
        for text in filters:
            filter = Filter(text)
            expected = audit.hashes.get(hash_filter(filter.text))
            if expected is not None and expected != audited.hash_matching(
                filter, audit.first - 1, audit.last, audit.salt
            ):
                return False
        return True

    # Ending.

    def on_tree_ended(self, source: NodeId, own: bool) -> None:
        """A tree was torn down."""
        self._audited.pop(source, None)
        if own:
            self._sent.clear()
            self._after = -1
            self._interval_s = FIRST_S
            self._port.cancel_timer(AUDIT)

    def stop(self) -> None:
        """Cancel the timer."""
        self._port.cancel_timer(AUDIT)
