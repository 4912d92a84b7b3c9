"""Unicast through a router, without any other mechanism: for comparing routers with each other.

An event goes to the node that its attribute `to` names, as those of `[[flow]]` do. Any other event goes to every node,
each by its own packet. Nodes select by their subscriptions.
"""

from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from carrycast.core.model import Event, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import LocalSubscriptions, SeenCache
from carrycast.core.protocol import (
    Capability,
    Fact,
    Host,
    Place,
    Port,
    Protocol,
    Settings,
    UsesRouter,
)
from carrycast.core.wire import EventMessage, Message, hops_after

TARGET = "to"
"""The attribute with the destination of an event."""
UNCOUNTED_S = 0.002
"""The time of a hop that environments do not count as waiting."""
MAX_HOPS = 255
"""The most hops of a router."""


class UnicastSettings(Settings, frozen=True):
    """How targets are addressed, and how long packets live."""

    locate: Annotated[
        Literal["id", "oracle"],
        Meta(description="targets are addressed by their ids, or by positions that an oracle knows"),
    ] = "id"
    # Longer than the 30 s for which AODV and DSDV keep a packet that waits for a route.
    life_s: Annotated[
        float, Meta(ge=0.001, le=1e6, description="how long a packet may travel; it is remembered for twice as long")
    ] = 60.0

    def needs(self) -> frozenset[Capability]:
        if self.locate == "oracle":
            return frozenset({Capability.PLACE_ROUTES, Capability.GLOBAL_VIEW})
        return frozenset({Capability.NODE_ROUTES})


class UnicastEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event on its way to one node."""


class UnicastProtocol(Protocol, UsesRouter):
    """One packet for each target of an event."""

    name = "unicast"
    summary = "each event goes to the node that it names, through a router: for comparing routers"
    settings_type = UnicastSettings
    messages = (UnicastEvent,)
    needs = frozenset({Capability.DIRECTORY})
    # Its timers do not depend on how many destinations are unreachable.
    router = "dsdv"
    # Karp and Kung, MobiCom 2000, 3.2, also assume that sources know where destinations are.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"geographic": {"locate": "oracle", "router": "gpsr"}}

    def __init__(self, node: NodeId, settings: UnicastSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._seen = SeenCache()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_publish(self, now: float, event: Event) -> None:
        self._local.deliver(event, 0)
        target = event.attributes.get(TARGET)
        named = isinstance(target, int) and not isinstance(target, bool)
        nodes = [int(target)] if named and target is not None else self.host.directory("all")
        targets = [
            place for node in nodes if node != self.node and (place := self._address(now, event, node)) is not None
        ]
        if targets:
            self.port.route_each(targets, UnicastEvent(event, 0, min(event.lease_s, self._settings.life_s)))

    def _address(self, now: float, event: Event, node: NodeId) -> NodeId | Place | None:
        """The target of a packet for a node; None, with a recorded drop, for a node that is nowhere."""
        if node not in self.host.directory("all"):
            self.port.note(Fact("drop", event=event.id, peer=max(node, 0), reason="unknown_target"))
            return None
        if self._settings.locate == "id":
            return node
        position = self.host.global_view.position(node)
        if position is None:
            self.port.note(Fact("drop", event=event.id, peer=node, reason="position_unknown"))
            return None
        return Place(position, 0.0, node)

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        assert isinstance(message, UnicastEvent)
        # A sender whose acknowledgement was lost may have sent the packet over another path, too.
        until = now + 2 * self._settings.life_s + MAX_HOPS * UNCOUNTED_S
        if not self._seen.add(now, message.event.id, until):
            self.port.note(Fact("drop", event=message.event.id, peer=origin, reason="repeated"))
            return
        self._local.deliver(message.event, hops_after(message.hops, hops))

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        """The router has recorded why it dropped the packet."""
