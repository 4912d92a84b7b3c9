"""002: an overlay of brokers that follows the physical network, and clients that look for the nearest broker."""

from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta

from driftcast.matching import serves
from driftcast.model import Event, NodeId, Subscription, SubscriptionId
from driftcast.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Place,
    Port,
    Protocol,
    Settings,
    TimerKey,
    UsesRouter,
)
from driftcast.wire import EventMessage, Message

from .relocation import Nearest
from .rounds import Round

Hops = Annotated[int, Meta(ge=0, le=255)]
Load = Annotated[float, Meta(ge=0, le=1)]
BrokerPath = Annotated[tuple[NodeId, ...], Meta(max_length=64)]


class OverlaySettings(Settings, frozen=True):
    """How often and how far a node looks around."""

    update_s: Annotated[float, Meta(gt=0, description="period of the topology's update")] = 20.0
    ring_s: Annotated[float, Meta(gt=0, description="how long a ring search waits for answers")] = 0.5
    degree: Annotated[int, Meta(ge=1, description="nearest brokers that become overlay neighbors")] = 6


class RingQuery(Message, frozen=True, gc=False, tag=1):
    """[002 §2.3] Who is a broker near me? Rebroadcast while `hops_left`."""

    origin: NodeId
    search: Round
    hops_left: Hops
    hops: Hops


class RingAnswer(Message, frozen=True, gc=False, tag=2):
    """A broker answers with its distance and its load."""

    search: Round
    hops: Hops
    load: Load


class Item(NamedTuple):
    """A row of the broker topology table."""

    broker: NodeId
    version: Round
    links: Annotated[tuple[tuple[NodeId, Hops], ...], Meta(max_length=64)]


class Topology(Message, frozen=True, gc=False, tag=4):
    """[002 §2.3] The items that have changed since the last period; one overlay hop per period."""

    items: Annotated[tuple[Item, ...], Meta(max_length=1024)]


class Home(Message, frozen=True, gc=False, tag=5):
    """A client tells its home broker that it is there."""

    subscription: SubscriptionId


class SourceRouted(EventMessage, frozen=True, gc=False, kw_only=True, tag=6):
    """[002 §2.2] An event with the brokers that are still to come."""

    path: BrokerPath


class Overlay(Protocol, UsesRouter):
    """A broker if that is its role, a client in any case; the first broker of the directory is home to begin with."""

    name = "overlay"
    settings_type = OverlaySettings
    messages = (RingQuery, RingAnswer, Nearest, Topology, Home, SourceRouted)
    needs = frozenset({Capability.LOAD, Capability.DIRECTORY})

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._is_broker = "broker" in host.roles
        self._home = host.directory("broker")[0]
        # After a crash both counters begin anew; the incarnation keeps others from taking them for old.
        self._search = Round(host.incarnation, 0)
        self._version = Round(host.incarnation, 0)
        self._seen: set[tuple[NodeId, Round]] = set()
        self._found: dict[NodeId, tuple[int, float]] = {}
        self._table: dict[NodeId, Item] = {}
        self._changed: dict[NodeId, Item] = {}
        self._clients: dict[SubscriptionId, NodeId] = {}
        self._local: dict[SubscriptionId, Subscription] = {}

    def on_start(self, now: float) -> None:
        self.port.set_timer("update", self._settings.update_s * self.rng.random())

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local[subscription.id] = subscription
        self.port.route(self._home, Home(subscription.id))

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "update":
            self._search = self._search.next()
            self._found = {}
            self.port.broadcast(RingQuery(self.node, self._search, 3, 1))
            self.port.set_timer("ring", self._settings.ring_s)
            self.port.set_timer("update", self._settings.update_s)
        elif self._is_broker:
            self._propagate()
        elif self._found:
            nearest = min(self._found, key=lambda broker: (*self._found[broker], broker))
            if nearest != self._home:
                self.port.route(self._home, Nearest(nearest))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, RingQuery)
        search = (message.origin, message.search)
        if message.origin == self.node or search in self._seen:
            return
        self._seen.add(search)
        if self._is_broker:
            self.port.route(message.origin, RingAnswer(message.search, message.hops, self.host.load(now)))
        if message.hops_left > 1:
            self.port.broadcast(RingQuery(*search, message.hops_left - 1, message.hops + 1))

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case RingAnswer():
                if message.search == self._search:
                    self._found[origin] = (message.hops, message.load)
            case Topology():
                for item in message.items:
                    known = self._table.get(item.broker)
                    if known is None or item.version > known.version:
                        self._table[item.broker] = self._changed[item.broker] = item
            case Home():
                self._clients[message.subscription] = origin
            case SourceRouted():
                self._pass(message, message.hops + hops)
            case Nearest():
                self.port.note(Fact("home_change", peer=message.broker))

    def on_publish(self, now: float, event: Event) -> None:
        # The one path of the sketch: this home broker, then that of the consumers.
        path = tuple(broker for broker in (self._home,) if broker != self.node)
        self._pass(SourceRouted(event, 0, event.lease_s, path=path), 0)

    def _pass(self, routed: SourceRouted, hops: int) -> None:
        if routed.path:
            onward = SourceRouted(routed.event, hops, routed.remaining_s, path=routed.path[1:])
            self.port.route(routed.path[0], onward)
        elif self._local:
            for subscription in self._local.values():
                if serves(routed.event, subscription):
                    self.port.deliver(subscription.id, routed.event, hops)
        else:
            for client in self._clients.values():
                self.port.route(client, SourceRouted(routed.event, hops, routed.remaining_s, path=()))

    def _propagate(self) -> None:
        near = sorted(self._found, key=lambda broker: (self._found[broker][0], broker))[: self._settings.degree]
        own = tuple((broker, self._found[broker][0]) for broker in near)
        old = self._table.get(self.node)
        if old is None or old.links != own:
            self._version = self._version.next()
            item = Item(self.node, self._version, own)
            self._table[self.node] = self._changed[self.node] = item
        items, self._changed = tuple(self._changed.values()), {}
        for broker in near if items else ():
            self.port.route(broker, Topology(items))

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        self.port.note(Fact("drop", reason="unreachable"))
