"""The system channel and two of its adaptors: topology construction and load balancing [002 §3.3, §3.5]."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact
from carrycast.protocols.overlay.broker_tables import Brokers
from carrycast.protocols.overlay.client_tables import Clients
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.messages import MAX_ENTRIES, Item, Topology
from carrycast.protocols.overlay.modulators import Modulators, Running
from carrycast.protocols.overlay.producers import Productions
from carrycast.protocols.overlay.relocation import Relocation
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.rules import Found, in_vicinity


class LookedAround(NamedTuple):
    """A time event: the period is over, and these brokers were found near."""

    found: tuple[Found, ...]


class Propagated(NamedTuple):
    """A neighbor has passed on what is new to it."""

    origin: NodeId
    items: tuple[Item, ...]


class ClientReported(NamedTuple):
    """A client of this home has found a nearer broker."""

    client: NodeId
    broker: NodeId
    distance: float


class LoadSampled(NamedTuple):
    """The resource monitor has looked at this broker's load."""

    load: float


SystemEvent: TypeAlias = LookedAround | Propagated | ClientReported | LoadSampled


class Services(NamedTuple):
    """The basic components, as adaptors use them."""

    station: Station
    monitor: ResourceMonitor
    brokers: Brokers
    clients: Clients
    modulators: Modulators
    productions: Productions
    relocation: Relocation


class Adaptor(ABC):
    """One adaptation."""

    interests: ClassVar[tuple[type, ...]]
    """The events that it is told of."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @abstractmethod
    def process(self, now: float, event: SystemEvent) -> None:
        """React to an event."""


class SystemChannel:
    """Brings each event to those who are interested, in the order in which they registered."""

    def __init__(self) -> None:
        self._adaptors: list[Adaptor] = []

    def register(self, adaptor: Adaptor) -> None:
        """An adaptor wants to be told."""
        self._adaptors.append(adaptor)

    def post(self, now: float, event: SystemEvent) -> None:
        """Something has happened."""
        for adaptor in self._adaptors:
            if isinstance(event, adaptor.interests):
                adaptor.process(now, event)


class TopologyConstruction(Adaptor):
    """Links follow the network; what is new goes one overlay hop further in each period.

    One that does not `follow` looks around once, and from then on only passes on what it hears.
    """

    interests = (LookedAround, Propagated)

    def __init__(self, services: Services, follow: bool) -> None:
        super().__init__(services)
        self._follow = follow
        self._has_looked = False

    def process(self, now: float, event: SystemEvent) -> None:
        if isinstance(event, Propagated):
            # Steps 3 and 4: newer items replace older ones and are marked changed; paths are found anew when asked for.
            for reason in self.services.brokers.receive(now, event.items):
                self.services.station.drop(reason, event.origin)
        elif isinstance(event, LookedAround):
            self._update(now, event)

    def _update(self, now: float, event: LookedAround) -> None:
        station, brokers, settings = self.services.station, self.services.brokers, self.services.station.settings
        # Step 1: neighbors that are too far are dropped, those that are near are added.
        if self._follow or not self._has_looked:
            self._has_looked = self._has_looked or bool(event.found)
            near = in_vicinity(event.found, settings.vicinity, settings.degree, settings.within_hops)
            known = set(brokers.neighbors)
            if brokers.look_around(now, near, self.services.monitor.information(now)):
                station.port.note(Fact("overlay_links", value=float(len(near))))
            if not known.issuperset(near) and known:
                brokers.mark_all()
            if self._follow:
                brokers.forget_older(now - max(settings.item_s, 3 * settings.update_s))
        # Step 2: "those items in its topology table that have changed since the prior propagation period".
        items = brokers.changes(now)
        for begin in range(0, len(items), MAX_ENTRIES):
            update = Topology(tuple(items[begin : begin + MAX_ENTRIES]))
            # [002 §4.1] Overhead is the bandwidth "for propagating its broker topology knowledge to its neighbors".
            bits = 8.0 * len(msgspec.msgpack.encode(update))
            for neighbor in brokers.neighbors:
                station.send(now, neighbor, update)
                station.port.note(Fact("update", peer=neighbor, value=bits))


class LoadBalancing(Adaptor):
    """Upstream if a broker on the way from all producers can take it, else downstream, else to a neighbor."""

    interests = (LoadSampled,)

    def process(self, now: float, event: SystemEvent) -> None:
        assert isinstance(event, LoadSampled)
        if event.load <= self.services.station.settings.max_load:
            return
        heavy = [one for one in self.services.modulators if one.subscription.processor is not None]
        free = [one for one in heavy if not one.frozen and not self.services.relocation.busy(one.client)]
        if free:
            one = max(free, key=self._time_s)
            target = self._target(one, event.load)
            if target is not None:
                self.services.relocation.start(now, one.client, target, (one.subscription.id,), with_home=False)

    def _time_s(self, one: Running) -> float:
        assert one.subscription.processor is not None
        return self.services.monitor.time_s(one.subscription.processor)

    def _target(self, one: Running, load: float) -> NodeId | None:
        """The lightest of the first group that has anybody light enough."""
        brokers, settings = self.services.brokers, self.services.station.settings
        groups = (self.upstream(one), self.downstream(one), list(brokers.neighbors))
        for group in groups:
            light = [(brokers.load(other), other) for other in group if other != self.services.station.node]
            light = [found for found in light if found[0] < min(load, settings.max_load)]
            if light:
                return min(light)[1]
        return None

    def upstream(self, one: Running) -> list[NodeId]:
        """[002 §3.4] Brokers that are on the paths from all producers' homes to this one."""
        node, brokers = self.services.station.node, self.services.brokers
        on_all: list[NodeId] | None = None
        for source in dict.fromkeys(one.sources.values()):
            reached = brokers.reached(source).get(node)
            on_way = [] if reached is None else [source, *reached.path]
            on_all = on_way if on_all is None else [broker for broker in on_all if broker in on_way]
        return on_all or []

    def downstream(self, one: Running) -> list[NodeId]:
        """[002 §3.4] Brokers on the path from here to the client's home, which is the last."""
        return list(self.services.brokers.path(one.home)) if one.home != self.services.station.node else []
