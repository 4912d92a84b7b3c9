"""Neighbor discovery by beacons: the same state machine in every environment.

Every `period_s` a node broadcasts a beacon on each of its interfaces. A node that receives one has a link with the
sender until no beacon arrived for `missed` periods, or until the sender has restarted. The delay until a lost link is
detected changes results more than most details of a protocol, so both numbers are part of every scenario.
"""

import math
from abc import ABC, abstractmethod
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol.host import Host
from carrycast.core.protocol.machine import Settings, StateMachine
from carrycast.core.protocol.port import Fact, Interface, Link, Port, TimerKey
from carrycast.core.wire import Message, Traffic

MAX_NEIGHBORS = 4096
"""More neighbors than any radio has; bounds the memory against forged beacons."""


class Beacon(Message, frozen=True, gc=False, tag=1):
    """Announces the sender: the next beacon follows within `period_s`. `incarnation` counts the sender's starts."""

    traffic: ClassVar[Traffic] = Traffic.DISCOVERY

    period_s: Annotated[float, Meta(gt=0, le=3600)]
    incarnation: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class BeaconSettings(Settings, frozen=True):
    """The beacon period and the time-out of a silent neighbor."""

    period_s: Annotated[float, Meta(ge=0.01, le=3600, description="time between two beacons")] = 1.0
    missed: Annotated[float, Meta(ge=1, le=100, description="periods without a beacon until a link is lost")] = 3.0
    jitter: Annotated[float, Meta(ge=0, le=0.5, description="random share by which each period varies")] = 0.1
    believed_s: Annotated[
        float,
        Meta(
            ge=0.01,
            le=3600,
            description="the longest period that is accepted from a neighbor, besides the own",
        ),
    ] = 60.0
    """A neighbor that announces a longer period times out as if it had announced this one: with the default, after
    three minutes instead of hours. Networks with nodes that sleep longer between beacons raise it."""


class DiscoveryUpcalls(ABC):
    """Upcalls from discovery to the layers above. Commands, like the calls of a port."""

    __slots__ = ()

    @abstractmethod
    def report_link_up(self, link: Link) -> None:
        """The first beacon of a neighbor arrived on an interface."""

    @abstractmethod
    def report_link_down(self, link: Link, cause: Failure) -> None:
        """A neighbor timed out, failed or restarted."""

    @abstractmethod
    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        """The cost of a link, as measured by the environment."""


class _Neighbor:
    """A neighbor over one interface."""

    __slots__ = ("deadline", "incarnation", "link")

    def __init__(self, link: Link, incarnation: int, deadline: float) -> None:
        self.link = link
        self.incarnation = incarnation
        self.deadline = deadline


class BeaconDiscovery(StateMachine):
    """Sends and receives beacons, and keeps the table of links."""

    name = "beacon"
    summary = "neighbors by periodic beacons"
    settings_type = BeaconSettings
    messages = (Beacon,)
    retunable = frozenset({"period_s", "missed", "jitter", "believed_s"})

    def __init__(
        self,
        node: NodeId,
        settings: BeaconSettings,
        port: Port,
        host: Host,
        rng: Random,
        neighborhood: DiscoveryUpcalls,
        interfaces: tuple[Interface, ...],
    ) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._neighborhood = neighborhood
        self._interfaces = interfaces
        self._neighbors: dict[tuple[NodeId, Interface], _Neighbor] = {}
        self._watching = False
        self._due = math.inf
        """The time of this node's next beacon."""

    def on_start(self, now: float) -> None:
        # The first beacon is sent at a random time in the first period, so that nodes that start together do not send
        # together.
        self._schedule_beacon(now, self._settings.period_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("beacon")
        self.port.cancel_timer("silence")

    def on_retune(self, now: float, settings: Settings) -> None:
        assert isinstance(settings, BeaconSettings)
        self._settings = settings
        # The beacon is sent at once: neighbors use the last announced period, and would time out during a longer one.
        self._send_beacon(now)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if now - self._due > self._settings.period_s:
            self._extend_deadlines(now)
        if key == "beacon":
            self._send_beacon(now)
        else:
            self._watching = False
            self._drop_expired(now)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Beacon)
        key = (sender, via)
        known = self._neighbors.get(key)
        if known is not None and known.incarnation != message.incarnation:
            # A restarted neighbor has lost its state, however short the outage: it is a new neighbor.
            self._lose(key, Failure.RESTARTED)
            known = None
        settings, believed_s = self._settings, message.period_s
        if believed_s > settings.period_s and believed_s > settings.believed_s:
            believed_s = self.limit_period_s(believed_s)
        # The time-out uses the sender's period, so nodes with different settings interoperate.
        deadline = now + believed_s * settings.missed
        if known is not None:
            known.deadline = deadline
        elif len(self._neighbors) >= MAX_NEIGHBORS:
            self.port.note(Fact("drop", peer=sender, reason="beacon_too_many_neighbors"))
            return
        else:
            if believed_s < message.period_s:
                self.port.note(Fact("drop", peer=sender, reason="beacon_period_too_long", value=message.period_s))
            link = Link(sender, via, self._neighborhood.cost_s(sender, via))
            self._neighbors[key] = _Neighbor(link, message.incarnation, deadline)
            self._neighborhood.report_link_up(link)
        if not self._watching:
            self._watch(now)

    def on_neighbor_failed(self, now: float, neighbor: NodeId, interface: Interface, cause: Failure) -> None:
        """The environment could not reach a neighbor, or observed its restart: no need to wait for the time-out."""
        self._lose((neighbor, interface), cause)

    @property
    def settings(self) -> BeaconSettings:
        """The current settings."""
        return self._settings

    def limit_period_s(self, period_s: float) -> float:
        """Limit the announced period of a neighbor to the setting `believed_s`."""
        return min(period_s, max(self._settings.believed_s, self._settings.period_s))

    def knows(self, neighbor: NodeId, interface: Interface) -> bool:
        """Whether there is a link with a neighbor over an interface."""
        return (neighbor, interface) in self._neighbors

    def _extend_deadlines(self, now: float) -> None:
        """Extend all deadlines after this node itself was suspended or starved of CPU: neighbors on the same machine
        were too, so the pause is not evidence that they failed."""
        late_s, self._due = now - self._due, now
        latest = now + self._settings.period_s * self._settings.missed
        for known in self._neighbors.values():
            known.deadline = max(known.deadline, min(known.deadline + late_s, latest))

    def _send_beacon(self, now: float) -> None:
        settings = self._settings
        for interface in self._interfaces:
            self.port.broadcast(Beacon(settings.period_s, self.host.incarnation), on=interface)
        spread = settings.jitter * (2 * self.rng.random() - 1)
        self._schedule_beacon(now, settings.period_s * (1 + spread))

    def _schedule_beacon(self, now: float, delay_s: float) -> None:
        self._due = now + delay_s
        self.port.set_timer("beacon", delay_s)

    def _watch(self, now: float) -> None:
        # One timer, armed for the earliest deadline. Beacons mostly extend deadlines, so it fires early; a neighbor
        # that shortens its period is detected at worst one of its longer periods late.
        if not self._watching and self._neighbors:
            self._watching = True
            earliest = min([known.deadline for known in self._neighbors.values()])
            self.port.set_timer("silence", max(0.0, earliest - now))

    def _drop_expired(self, now: float) -> None:
        for key in [key for key, known in self._neighbors.items() if known.deadline <= now]:
            self._lose(key, Failure.SILENT)
        self._watch(now)

    def _lose(self, key: tuple[NodeId, Interface], cause: Failure) -> None:
        known = self._neighbors.pop(key, None)
        if known is not None:
            self._neighborhood.report_link_down(known.link, cause)
