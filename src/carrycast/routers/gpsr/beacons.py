"""Beacons [GPSR00 §2.1]: a node broadcasts its position periodically, with jitter, and may skip beacons."""

from math import isfinite
from random import Random
from typing import TypeGuard

from carrycast.core.model import Position, Velocity
from carrycast.core.protocol import Host, Port
from carrycast.routers.gpsr.geometry import squared_distance_m2
from carrycast.routers.gpsr.messages import GeoBeacon
from carrycast.routers.gpsr.neighbor_table import dead_reckon
from carrycast.routers.gpsr.settings import GpsrSettings

BEACON_ERROR_M = 25.0
"""The error of the neighbors' estimate above which no beacon is skipped: a tenth of the usual range of 250 m."""


def is_valid_position(position: Position | None) -> TypeGuard[Position]:
    """Whether a position is given and finite. A node that is absent has none."""
    return position is not None and isfinite(position[0]) and isfinite(position[1])


class Beacons:
    """The beacons of one node, with the timer "beacon"."""

    def __init__(self, settings: GpsrSettings, port: Port, host: Host, rng: Random) -> None:
        self._settings = settings
        self._port = port
        self._host = host
        self._rng = rng
        self._last: tuple[float, GeoBeacon] | None = None
        """The last beacon, and when it was sent."""
        self._skipped = 0
        self._has_sent_packet = False
        self._has_new_neighbor = False

    def start(self) -> None:
        """Set the timer to a random moment of the first period: nodes started together must not stay synchronized."""
        self._port.set_timer("beacon", self._settings.beacon_s * self._rng.random())

    def stop(self) -> None:
        """Cancel the timer."""
        self._port.cancel_timer("beacon")

    def on_packet_sent(self) -> None:
        """A packet with this node's position was sent, which may replace the next beacon."""
        self._has_sent_packet = True

    def on_new_neighbor(self) -> None:
        """A new neighbor may not know this node, so the next beacon is sent."""
        self._has_new_neighbor = True

    def on_timer(self, now: float) -> None:
        """Broadcast a beacon, unless it can be skipped."""
        settings, host = self._settings, self._host
        jitter = settings.beacon_jitter
        # [GPSR00 §2.1] "we jitter each beacon's transmission by 50% of the interval"
        self._port.set_timer("beacon", settings.beacon_s * self._rng.uniform(1 - jitter, 1 + jitter))
        position = host.position(now)
        if not is_valid_position(position):
            return
        if self._may_skip(now, position):
            self._skipped += 1
        else:
            self._skipped = 0
            self._has_new_neighbor = False
            velocity = self._velocity(now)
            self._last = (now, GeoBeacon(position, velocity))
            self._port.broadcast(self._last[1])
        self._has_sent_packet = False

    def _velocity(self, now: float) -> Velocity | None:
        if not self._settings.dead_reckoning:
            return None
        velocity = self._host.velocity(now)
        known = velocity is not None and isfinite(velocity[0]) and isfinite(velocity[1])
        return velocity if known else Velocity(0.0, 0.0)

    def _may_skip(self, now: float, position: Position) -> bool:
        settings = self._settings
        if settings.suppress_beacons and self._has_sent_packet and (settings.overhear or self._skipped == 0):
            return True
        if self._skipped >= settings.beacon_skips or self._has_new_neighbor or self._last is None:
            return False
        sent_at, beacon = self._last
        estimated = beacon.position
        if beacon.velocity is not None:
            estimated = dead_reckon(beacon.position, beacon.velocity, now - sent_at)
        return squared_distance_m2(position, estimated) < BEACON_ERROR_M**2
