"""A topic is an area: an event is broadcast to the area that it names, and nodes there select by their subscriptions.

GeoNetworking has the same model: facilities above GeoBroadcast (ETSI EN 302 636-4-1) name a destination area for each
message, and every station there receives it.
"""

from math import isfinite
from random import Random
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import Event, NodeId, Position, Subscription, SubscriptionId
from carrycast.core.parts import LocalSubscriptions, SeenCache
from carrycast.core.protocol import Capability, Fact, Host, Place, Port, Protocol, Settings, UsesRouter
from carrycast.core.wire import EventMessage, Message, hops_after

Name = Annotated[str, Meta(min_length=1, max_length=128)]
UNCOUNTED_S = 0.002
"""The time of a hop that environments do not count as waiting."""
MAX_HOPS = 255


class AreaTopicsSettings(Settings, frozen=True):
    """The attributes that name an area, and how long packets live."""

    x: Annotated[Name, Meta(description="the attribute with the x coordinate of the center, in meters")] = "x_m"
    y: Annotated[Name, Meta(description="the attribute with the y coordinate of the center, in meters")] = "y_m"
    radius: Annotated[Name, Meta(description="the attribute with the radius of the area, in meters")] = "radius_m"
    # [EN 302 636-4-1, annex H] itsGnDefaultMaxCommunicationRange.
    radius_m: Annotated[float, Meta(gt=0, le=1e9, description="the radius of the area of events that name none")] = (
        1000.0
    )
    # [EN 302 636-4-1, annex H] itsGnDefaultPacketLifetime.
    life_s: Annotated[
        float, Meta(ge=0.001, le=1e6, description="how long a packet may travel; it is remembered for twice as long")
    ] = 60.0


class AreaEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event for all nodes in an area."""


class AreaTopics(Protocol, UsesRouter):
    """One geographic broadcast for each event."""

    name = "area_topics"
    summary = "a topic is an area: each event goes to all nodes in the area that it names"
    settings_type = AreaTopicsSettings
    messages = (AreaEvent,)
    needs = frozenset({Capability.POSITION, Capability.AREA_ROUTES})
    router = "geobroadcast"

    def __init__(self, node: NodeId, settings: AreaTopicsSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._seen = SeenCache()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_publish(self, now: float, event: Event) -> None:
        self._seen.add(now, event.id, self._remembered_until(now))
        self._local.deliver(event, 0)
        area = self.find_area(now, event)
        if area is None:
            self.port.note(Fact("drop", event=event.id, reason="no_area"))
        else:
            self.port.route(area, AreaEvent(event, 0, min(event.lease_s, self._settings.life_s)))

    def find_area(self, now: float, event: Event) -> Place | None:
        """The area of an event: the one that it names, else the surroundings of its publisher. None for an area that is
        no circle on a plane, or a publisher that does not know where it is."""
        settings = self._settings
        named = [event.attributes.get(name) for name in (settings.x, settings.y, settings.radius)]
        x_m, y_m, radius_m = (_number(value) for value in named)
        if named[2] is None:
            radius_m = settings.radius_m
        if named[0] is None and named[1] is None:
            here = self.host.position(now)
            x_m, y_m = (None, None) if here is None else (here[0], here[1])
        if x_m is None or y_m is None or radius_m is None or not 0 <= radius_m <= 1e9:
            return None
        return Place(Position(x_m, y_m), radius_m)

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        assert isinstance(message, AreaEvent)
        if self._seen.add(now, message.event.id, self._remembered_until(now)):
            self._local.deliver(message.event, hops_after(message.hops, hops))
        else:
            self.port.note(Fact("drop", event=message.event.id, peer=origin, reason="repeated"))

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        """The router has recorded why it dropped the packet."""

    def _remembered_until(self, now: float) -> float:
        return now + 2 * self._settings.life_s + MAX_HOPS * UNCOUNTED_S


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)
