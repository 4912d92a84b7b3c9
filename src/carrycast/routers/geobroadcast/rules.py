"""The formulas of contention-based forwarding. [GN] is ETSI EN 302 636-4-1 V1.4.1, GeoNetworking."""

import enum
from math import sqrt

from carrycast.core.model import Position
from carrycast.routers.geobroadcast.settings import GeoBroadcastSettings


class ForwardingAlgorithm(enum.Enum):
    """How a node forwards a packet [GN, annex D]."""

    AREA = enum.auto()
    """The node is in the area: it spreads the packet there."""
    LINE = enum.auto()
    """The node is outside, and so was the sender: the packet is brought nearer to the area."""
    NONE = enum.auto()
    """The node is outside, and the sender was inside: the packet has left the area."""


def distance_m(one: Position, other: Position) -> float:
    """DIST(P1, P2)."""
    dx_m, dy_m = one[0] - other[0], one[1] - other[1]
    return sqrt(dx_m * dx_m + dy_m * dy_m)


# [GN, 4; EN 302 931] F(x, y) = 1 - (x/r)^2 - (y/r)^2 for a circle: 0 on its border, above 0 inside, below 0 outside.
def is_inside(place: Position, center: Position, radius_m: float) -> bool:
    """Whether F >= 0 for a place."""
    dx_m, dy_m = place[0] - center[0], place[1] - center[1]
    return dx_m * dx_m + dy_m * dy_m <= radius_m * radius_m


# [GN, annex D] In the area: area forwarding. Outside, if the sender was inside: the packet is discarded. Else non-area
# forwarding.
def select_forwarding(here: Position, sender: Position, center: Position, radius_m: float) -> ForwardingAlgorithm:
    """How this node forwards a packet of a sender."""
    if is_inside(here, center, radius_m):
        return ForwardingAlgorithm.AREA
    return ForwardingAlgorithm.NONE if is_inside(sender, center, radius_m) else ForwardingAlgorithm.LINE


# [GN, annex F.3] TO_CBF_GBC = TO_CBF_MAX + (TO_CBF_MIN - TO_CBF_MAX) / DIST_MAX * DIST for DIST <= DIST_MAX, and
# TO_CBF_MIN beyond. [GN, annex E.3] has the same with the progress PROG in place of DIST.
def timeout_s(settings: GeoBroadcastSettings, distance_or_progress_m: float) -> float:
    """How long a node contends: the farther from the sender, or the greater its progress, the shorter."""
    if distance_or_progress_m > settings.max_distance_m:
        return settings.min_s
    slope = (settings.min_s - settings.max_s) / settings.max_distance_m
    return settings.max_s + slope * distance_or_progress_m


# [GN, annex E.3] PROG = DIST(sender, destination) - DIST(ego, destination).
def progress_m(here: Position, sender: Position, center: Position) -> float:
    """How much nearer to the center of the area this node is than the sender."""
    return distance_m(sender, center) - distance_m(here, center)
