"""The route table [RFC 2, 6.1, 6.2]: for each destination the next hop, the sequence number and the precursor list.

Loop freedom rests on one measure: along the next hops toward a destination, (sequence number, fewer hops) gets strictly
better, where an invalid route counts one number less than it has. Therefore a sequence number never falls, it grows by
one when a route breaks or expires, and an invalid entry is kept for as long as other nodes may still use this node as
their next hop.
"""

from collections.abc import Iterator

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import MAX_SEQUENCE
from carrycast.routers.aodv.rules import is_better_route

MAX_PRECURSORS = 64
"""The longest precursor list. Two entries serve as well as all of them: from two on, a RERR is broadcast [RFC 6.11]."""


class RouteEntry:
    """A route table entry [RFC 2]."""

    __slots__ = ("destination", "expires_at", "hop_count", "next_hop", "precursors", "sequence", "valid")

    def __init__(self, destination: NodeId, next_hop: NodeId, hop_count: int, sequence: int, expires_at: float) -> None:
        self.destination = destination
        self.next_hop = next_hop
        self.hop_count = hop_count
        """An invalid route keeps its last hop count."""
        self.sequence = sequence
        """The destination sequence number; 0 if unknown, and then the destination is a neighbor."""
        self.expires_at = expires_at
        """When the lifetime of a valid route ends, or when an invalid entry is deleted."""
        self.valid = True
        self.precursors: dict[NodeId, None] = {}
        """The neighbors that use this node as their next hop to the destination, in the order of their arrival."""

    def add_precursor(self, neighbor: NodeId) -> None:
        """Remember a neighbor that uses this node as its next hop."""
        if len(self.precursors) < MAX_PRECURSORS:
            self.precursors[neighbor] = None


class RouteTable:
    """Route table entries by destination. There is none for the own node."""

    def __init__(self, node: NodeId, delete_period_s: float, max_entries: int) -> None:
        self._node = node
        self._delete_period_s = delete_period_s
        self._max_entries = max_entries
        self._entries: dict[NodeId, RouteEntry] = {}
        self._purge_at = delete_period_s
        self._full_purge_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RouteEntry]:
        return iter(self._entries.values())

    # Lookups.

    def find_valid(self, now: float, destination: NodeId) -> RouteEntry | None:
        """The entry of a destination if packets may use its route."""
        entry = self._entries.get(destination)
        return entry if entry is not None and entry.valid and entry.expires_at > now else None

    def find(self, now: float, destination: NodeId) -> RouteEntry | None:
        """The entry of a destination, valid or invalid. A route whose lifetime is over becomes invalid."""
        entry = self._entries.get(destination)
        if entry is None:
            return None
        if entry.valid and entry.expires_at <= now:
            self._invalidate(entry, entry.expires_at)
        if not entry.valid and entry.expires_at <= now:
            del self._entries[destination]
            return None
        return entry

    def hops_to(self, now: float, destination: NodeId) -> int | None:
        """The hop count to a destination if there is a valid route. The table does not change."""
        if destination == self._node:
            return 0
        entry = self.find_valid(now, destination)
        return None if entry is None else entry.hop_count

    def has_active_route(self, now: float) -> bool:
        """Whether there is any valid route."""
        return any(entry.valid and entry.expires_at > now for entry in self._entries.values())

    # Updates.

    # [RFC 6.5, 6.7] "first creates or updates a route to the previous hop without a valid sequence number"
    def update_previous_hop(self, now: float, neighbor: NodeId, expires_at: float) -> bool:
        """Create or update the route to the neighbor that sent a message. False if the table is full.

        A known sequence number stays: a route whose next hop is the destination itself cannot be part of a loop.
        """
        entry = self.find(now, neighbor)
        if entry is None:
            return self._create(now, RouteEntry(neighbor, neighbor, 1, 0, expires_at))
        if entry.valid and entry.next_hop == neighbor:
            entry.expires_at = max(entry.expires_at, expires_at)
        else:
            self._replace(entry, neighbor, 1, entry.sequence, expires_at)
        return True

    # [RFC 6.2, 6.5, 6.7]
    def update(
        self, now: float, destination: NodeId, sequence: int, hop_count: int, next_hop: NodeId, expires_at: float
    ) -> bool | None:
        """Install a received route if it is better. False if the own route is as good, None if the table is full."""
        assert destination != self._node
        entry = self.find(now, destination)
        if entry is None:
            created = self._create(now, RouteEntry(destination, next_hop, hop_count, sequence, expires_at))
            return True if created else None
        if not is_better_route(sequence, hop_count, entry.sequence, entry.hop_count, entry.valid):
            return False
        self._replace(entry, next_hop, hop_count, sequence, expires_at)
        return True

    def extend_lifetime(self, now: float, destination: NodeId, expires_at: float) -> None:
        """Prolong a route that a packet has used.

        An invalid entry is kept for another DELETE_PERIOD: the packet shows that a node may still use this one as its
        next hop, and without the entry this node would accept an outdated route, which may be part of a loop.
        """
        entry = self.find(now, destination)
        if entry is not None:
            entry.expires_at = max(entry.expires_at, expires_at if entry.valid else now + self._delete_period_s)

    # [RFC 6.11]
    def invalidate_next_hop(self, now: float, neighbor: NodeId) -> list[RouteEntry]:
        """The link to a neighbor is broken: invalidate the routes over it, and return their entries."""
        invalidated = []
        for entry in self._entries.values():
            entry.precursors.pop(neighbor, None)
            if entry.next_hop == neighbor and entry.valid and entry.expires_at > now:
                self._invalidate(entry, now)
                invalidated.append(entry)
        return invalidated

    # [RFC 6.11] Deviation: the number never falls to the one in the RERR, which may be older than the own.
    def invalidate(self, now: float, entry: RouteEntry, sequence: int) -> None:
        """Invalidate a route because of a RERR from its next hop, which reports this destination sequence number."""
        self._invalidate(entry, now)
        entry.sequence = max(entry.sequence, sequence)

    # [RFC 6.1, 6.11] The sequence number of a broken or expired route grows by one.
    def _invalidate(self, entry: RouteEntry, at: float) -> None:
        entry.valid = False
        if entry.sequence:
            entry.sequence = min(entry.sequence + 1, MAX_SEQUENCE)
        entry.expires_at = at + self._delete_period_s

    def _replace(self, entry: RouteEntry, next_hop: NodeId, hop_count: int, sequence: int, expires_at: float) -> None:
        same_hop = entry.valid and entry.next_hop == next_hop
        entry.expires_at = max(entry.expires_at, expires_at) if same_hop else expires_at
        entry.next_hop, entry.hop_count, entry.sequence, entry.valid = next_hop, hop_count, sequence, True

    def _create(self, now: float, entry: RouteEntry) -> bool:
        if now >= (self._purge_at if len(self._entries) < self._max_entries else self._full_purge_at):
            self._purge(now)
        if len(self._entries) >= self._max_entries:
            return False
        self._entries[entry.destination] = entry
        return True

    def _purge(self, now: float) -> None:
        """Delete entries whose time is over.

        This happens twice in a delete period, and each second while the table is full, so that a flood of destinations
        does not cost a purge for each of them.
        """
        self._purge_at = now + self._delete_period_s / 2
        self._full_purge_at = now + 1.0
        for destination in list(self._entries):
            self.find(now, destination)
