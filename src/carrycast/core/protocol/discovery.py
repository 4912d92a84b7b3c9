"""Neighbor discovery by beacons: the same state machine in every world.

Every `period_s` a node says one beacon on each of its interfaces; whoever hears one has a link with the speaker until
`missed` periods have passed in silence, or until the speaker says that it has started anew. How late a lost link is
noticed changes results more than most details of a protocol, so both numbers are part of every scenario.
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
"""More neighbors than any radio has; a flood of forged beacons cannot fill the memory."""


class Beacon(Message, frozen=True, gc=False, tag=1):
    """I am here, and you will hear me again within `period_s`. `incarnation` counts my starts."""

    traffic: ClassVar[Traffic] = Traffic.DISCOVERY

    period_s: Annotated[float, Meta(gt=0, le=3600)]
    incarnation: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class BeaconSettings(Settings, frozen=True):
    """When to speak and when to give up on a silent neighbor."""

    period_s: Annotated[float, Meta(ge=0.01, le=3600, description="time between two beacons")] = 1.0
    missed: Annotated[float, Meta(ge=1, le=100, description="silent periods after which a link is lost")] = 3.0
    jitter: Annotated[float, Meta(ge=0, le=0.5, description="share by which each period varies")] = 0.1
    believed_s: Annotated[
        float,
        Meta(ge=0.01, le=3600, description="longest period of a neighbor that is believed; the own one is in any case"),
    ] = 60.0
    """Whoever announces more is given up `missed` times this after its last beacon: a stranger that is never heard
    again is a neighbor for three minutes, not for hours. Networks beacon every few seconds; nodes that sleep for longer
    between beacons say so here."""


class DiscoveryUpcalls(ABC):
    """What discovery tells the layers above it. Commands, as those of a port."""

    __slots__ = ()

    @abstractmethod
    def report_link_up(self, link: Link) -> None:
        """A neighbor was heard for the first time on an interface."""

    @abstractmethod
    def report_link_down(self, link: Link, cause: Failure) -> None:
        """A neighbor is gone, or no longer the one it was."""

    @abstractmethod
    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        """The cost of a link, as the world knows it."""


class BeaconDiscovery(StateMachine):
    """Speaks, listens, and keeps the table of links."""

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
        self._links: dict[tuple[NodeId, Interface], Link] = {}
        self._deadlines: dict[tuple[NodeId, Interface], float] = {}
        self._incarnations: dict[tuple[NodeId, Interface], int] = {}
        self._watching = False
        self._due = math.inf
        """When this node's own next beacon is to be said."""

    def on_start(self, now: float) -> None:
        # The first beacon comes at a random moment of the first period, so that nodes started together do not speak
        # together for ever.
        self._rest(now, self._settings.period_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("beacon")
        self.port.cancel_timer("silence")

    def on_retune(self, now: float, settings: Settings) -> None:
        assert isinstance(settings, BeaconSettings)
        self._settings = settings
        # At once: neighbors go by the period that they were last told, and would miss the longer one.
        self._speak(now)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if now - self._due > self._settings.period_s:
            self._excuse(now)
        if key == "beacon":
            self._speak(now)
        else:
            self._watching = False
            self._drop_silent(now)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Beacon)
        link = (sender, via)
        if self._incarnations.get(link, message.incarnation) != message.incarnation:
            # It holds nothing of what it held, however short it was away: a new neighbor.
            self._lose(link, Failure.RESTARTED)
        known = link in self._deadlines
        if not known and len(self._deadlines) >= MAX_NEIGHBORS:
            self.port.note(Fact("drop", peer=sender, reason="beacon_too_many_neighbors"))
            return
        # The speaker's own period counts, so nodes with different settings understand each other.
        believed_s = self.believed_s(message.period_s)
        self._deadlines[link] = now + believed_s * self._settings.missed
        if not known:
            if believed_s < message.period_s:
                self.port.note(Fact("drop", peer=sender, reason="beacon_period_too_long", value=message.period_s))
            self._incarnations[link] = message.incarnation
            found = self._links[link] = Link(sender, via, self._neighborhood.cost_s(sender, via))
            self._neighborhood.report_link_up(found)
        self._watch(now)

    def on_neighbor_failed(self, now: float, neighbor: NodeId, interface: Interface, cause: Failure) -> None:
        """The world failed to reach a neighbor, or saw it start anew, and will not wait for its silence."""
        self._lose((neighbor, interface), cause)

    @property
    def settings(self) -> BeaconSettings:
        """As they are now."""
        return self._settings

    def believed_s(self, period_s: float) -> float:
        """As much of the period that a neighbor announces as is believed."""
        return min(period_s, max(self._settings.believed_s, self._settings.period_s))

    def knows(self, neighbor: NodeId, interface: Interface) -> bool:
        """Whether there is a link with a neighbor over an interface."""
        return (neighbor, interface) in self._links

    def _excuse(self, now: float) -> None:
        """This node was held up itself: suspended, or without a processor. Whoever shares its machine was as well, and
        that time is no silence of theirs."""
        late_s, self._due = now - self._due, now
        latest = now + self._settings.period_s * self._settings.missed
        for link, deadline in self._deadlines.items():
            self._deadlines[link] = max(deadline, min(deadline + late_s, latest))

    def _speak(self, now: float) -> None:
        settings = self._settings
        for interface in self._interfaces:
            self.port.broadcast(Beacon(settings.period_s, self.host.incarnation), on=interface)
        spread = settings.jitter * (2 * self.rng.random() - 1)
        self._rest(now, settings.period_s * (1 + spread))

    def _rest(self, now: float, delay_s: float) -> None:
        self._due = now + delay_s
        self.port.set_timer("beacon", delay_s)

    def _watch(self, now: float) -> None:
        # One timer, armed for the earliest deadline there was. Beacons mostly push deadlines back, so it is early; a
        # neighbor that shortens its period is at worst noticed missing one of its longer periods late.
        if not self._watching and self._deadlines:
            self._watching = True
            self.port.set_timer("silence", max(0.0, min(self._deadlines.values()) - now))

    def _drop_silent(self, now: float) -> None:
        for link in [link for link, deadline in self._deadlines.items() if deadline <= now]:
            self._lose(link, Failure.SILENT)
        self._watch(now)

    def _lose(self, key: tuple[NodeId, Interface], cause: Failure) -> None:
        if self._deadlines.pop(key, None) is not None:
            del self._incarnations[key]
            self._neighborhood.report_link_down(self._links.pop(key), cause)
