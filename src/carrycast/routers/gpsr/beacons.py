"""When a node says where it is [GPSR00 §2.1], and when it need not."""

from math import isfinite
from random import Random
from typing import TypeGuard

from carrycast.core.model import Position, Velocity
from carrycast.core.protocol import Host, Port
from carrycast.routers.gpsr.geometry import square_m2
from carrycast.routers.gpsr.messages import Here
from carrycast.routers.gpsr.neighbors import moved
from carrycast.routers.gpsr.settings import GpsrSettings


def is_position(position: Position | None) -> TypeGuard[Position]:
    """Whether it is one at all: a node that is not there has none."""
    return position is not None and isfinite(position[0]) and isfinite(position[1])


class Beacons:
    """The beacons of one node, with the timer "beacon"."""

    def __init__(self, settings: GpsrSettings, port: Port, host: Host, rng: Random) -> None:
        self._settings = settings
        self._port = port
        self._host = host
        self._rng = rng
        self._last: tuple[float, Here] | None = None
        self._skipped = 0
        self._sent_packet = False
        self._met_somebody = False

    def start(self) -> None:
        """At a random moment of the first period, so that nodes started together do not speak together for ever."""
        self._port.set_timer("beacon", self._settings.beacon_s * self._rng.random())

    def stop(self) -> None:
        """Leave no timer armed."""
        self._port.cancel_timer("beacon")

    def packet_sent(self) -> None:
        """A packet with this node's position was sent."""
        self._sent_packet = True

    def neighbor_met(self) -> None:
        """Somebody new is there, who may not know this node."""
        self._met_somebody = True

    def tick(self, now: float) -> None:
        """It is time for a beacon, unless it can be left out."""
        settings, host = self._settings, self._host
        jitter = settings.beacon_jitter
        # [GPSR00 §2.1] "we jitter each beacon's transmission by 50% of the interval"
        self._port.set_timer("beacon", settings.beacon_s * self._rng.uniform(1 - jitter, 1 + jitter))
        position = host.position(now)
        if not is_position(position):
            return
        if self._may_skip(now, position):
            self._skipped += 1
        else:
            self._skipped = 0
            self._met_somebody = False
            velocity = self._velocity(now)
            self._last = (now, Here(position, velocity))
            self._port.broadcast(self._last[1])
        self._sent_packet = False

    def _velocity(self, now: float) -> Velocity | None:
        if not self._settings.dead_reckoning:
            return None
        velocity = self._host.velocity(now)
        known = velocity is not None and isfinite(velocity[0]) and isfinite(velocity[1])
        return velocity if known else Velocity(0.0, 0.0)

    def _may_skip(self, now: float, position: Position) -> bool:
        settings = self._settings
        if settings.suppress_beacons and self._sent_packet and (settings.overhear or self._skipped == 0):
            return True
        if self._skipped >= settings.beacon_skips or self._met_somebody or self._last is None:
            return False
        told_at, told = self._last
        believed = told.position
        if told.velocity is not None:
            believed = moved(told.position, told.velocity, now - told_at)
        return square_m2(position, believed) < settings.beacon_error_m**2
