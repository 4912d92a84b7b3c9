"""The routing table of DSDV [DSDV94, Route Table Entry Structure, Route Selection Criteria, Damping Fluctuations]."""

import enum
from collections.abc import Iterator

from carrycast.core.model import NodeId
from carrycast.routers.dsdv.messages import COUNTER_BITS, INFINITE, AdvertisedRoute
from carrycast.routers.dsdv.settings import DsdvSettings

MAX_SEQUENCE_JUMP = 1 << 17
"""The most by which an honest node raises its number while others remember the old one: 2 for each full dump, at most
every millisecond, and 1 for each break. A restart may raise it by any amount."""


class Change(enum.IntEnum):
    """What other nodes do not yet know of a route."""

    NONE = 0
    SEQUENCE = 1
    """A new sequence number with the same metric, which is "not a significant change" [DSDV94]."""
    METRIC = 2
    """A new destination, another metric, or a lost route."""


class DistanceEntry:
    """A destination: the forwarding table's fields, what was last advertised, and its settling time."""

    __slots__ = (
        "advertise_at",
        "advertised_metric",
        "advertised_sequence",
        "average_settling_s",
        "change",
        "expires_at",
        "first_heard_at",
        "improved_at",
        "metric",
        "next_hop",
        "sequence",
    )

    def __init__(self, now: float, next_hop: NodeId, route: AdvertisedRoute, settling_s: float) -> None:
        self.next_hop = next_hop
        self.metric = route.metric
        self.sequence = route.sequence
        self.expires_at = now
        self.change = Change.METRIC
        self.advertise_at = now
        """The route settles until then: others are told the previous metric and sequence number."""
        self.advertised_metric = INFINITE
        self.advertised_sequence = 0
        self.first_heard_at = now
        """When the sequence number arrived first."""
        self.improved_at = now
        """When the best metric with this sequence number arrived."""
        self.average_settling_s = settling_s

    @property
    def is_valid(self) -> bool:
        """Whether the destination can be reached."""
        return self.metric < INFINITE


# [DSDV94, Route Selection Criteria] "Routes with more recent sequence numbers are always preferred as the basis for
# making forwarding decisions, but not necessarily advertised. Of the paths with the same sequence number, those with
# the smallest metric will be used."
def is_better_route(sequence: int, metric: int, own_sequence: int, own_metric: int) -> bool:
    """Whether a received route replaces the own one."""
    return sequence > own_sequence or (sequence == own_sequence and metric < own_metric)


# [DSDV94, Damping Fluctuations] The settling time of a destination is a running, weighted average over the most recent
# updates of its routes.
def average_settling_s(average_s: float, measured_s: float, weight: float) -> float:
    """The new average settling time."""
    return weight * average_s + (1 - weight) * measured_s


def is_plausible_sequence(claimed: int, known: int) -> bool:
    """Whether a destination whose number was `known` can have reached `claimed`."""
    return claimed >> COUNTER_BITS != known >> COUNTER_BITS or claimed - known <= MAX_SEQUENCE_JUMP


class DistanceTable:
    """The routes of one node to all destinations that it has heard of."""

    def __init__(self, settings: DsdvSettings) -> None:
        self._settings = settings
        self._entries: dict[NodeId, DistanceEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[NodeId, DistanceEntry]]:
        return iter(self._entries.items())

    def find(self, destination: NodeId) -> DistanceEntry | None:
        """The entry of a destination, valid or not."""
        return self._entries.get(destination)

    def find_valid(self, now: float, destination: NodeId) -> DistanceEntry | None:
        """The entry of a destination that can be reached."""
        entry = self._entries.get(destination)
        return entry if entry is not None and entry.is_valid and entry.expires_at > now else None

    def is_full(self) -> bool:
        """Whether no destination can be added."""
        return len(self._entries) >= self._settings.max_routes

    def add(self, now: float, sender: NodeId, route: AdvertisedRoute) -> DistanceEntry:
        """Add a destination. Its first route is advertised at once."""
        entry = self._entries[route.destination] = DistanceEntry(now, sender, route, self._settings.settling_s)
        entry.expires_at = now + self._settings.hold_s
        return entry

    # [DSDV94, Damping Fluctuations] A route whose metric has changed is used at once, and advertised after twice the
    # average settling time, because a better one with the same sequence number may follow.
    def replace(self, now: float, entry: DistanceEntry, sender: NodeId, route: AdvertisedRoute) -> None:
        """Use a better route."""
        if route.sequence > entry.sequence:
            measured_s = entry.improved_at - entry.first_heard_at
            weight = self._settings.settling_weight
            entry.average_settling_s = average_settling_s(entry.average_settling_s, measured_s, weight)
            entry.first_heard_at = entry.improved_at = now
        else:
            entry.improved_at = now
        was_valid = entry.is_valid
        entry.next_hop, entry.metric, entry.sequence = sender, route.metric, route.sequence
        entry.expires_at = now + self._settings.hold_s
        if route.metric == INFINITE or not was_valid:
            # [DSDV94, Responding to Topology Changes] A lost route is a "substantial route change" and is reported at
            # once; so is a destination that can be reached again.
            entry.change, entry.advertise_at = Change.METRIC, now
        elif route.metric != entry.advertised_metric:
            entry.change, entry.advertise_at = Change.METRIC, now + 2 * entry.average_settling_s
        else:
            entry.change, entry.advertise_at = Change.SEQUENCE, now

    # [DSDV94, Responding to Topology Changes] "When a link to a next hop has broken, any route through that next hop is
    # immediately assigned an infinite metric and an updated sequence number." The number is odd.
    def lose(self, now: float, entry: DistanceEntry) -> None:
        """A route is lost."""
        if entry.is_valid:
            entry.metric = INFINITE
            entry.sequence += 1
            entry.change, entry.advertise_at = Change.METRIC, now
            entry.expires_at = now + self._settings.hold_s

    def lose_neighbor(self, now: float, neighbor: NodeId, but: NodeId | None = None) -> bool:
        """Lose all routes over a neighbor; True if there were any. The route to `but` stays."""
        over = [
            entry
            for destination, entry in self._entries.items()
            if entry.next_hop == neighbor and entry.is_valid and destination != but
        ]
        for entry in over:
            self.lose(now, entry)
        return bool(over)

    # [DSDV94, Route Table Entry Structure] "the install time ... helps determine when to delete stale routes."
    def expire(self, now: float) -> bool:
        """Lose the routes that were not advertised again, and forget those that were lost long ago; True if a route was
        lost."""
        lost = False
        for destination, entry in list(self._entries.items()):
            if entry.expires_at > now:
                continue
            if entry.is_valid:
                self.lose(now, entry)
                lost = True
            elif entry.expires_at + self._settings.hold_s <= now:
                # Nobody can have a route over this node any more that was made before this one was lost.
                del self._entries[destination]
        return lost
