"""The system channel [002 §3.3, §3.5] and its adaptors for topology construction and load balancing.

Components post events to the channel, and each adaptor names the events that it is interested in. The third adaptor,
home broker change, is in `home_broker`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact
from carrycast.protocols.overlay.broker_tables import BrokerTables
from carrycast.protocols.overlay.client_tables import ClientInformationTable
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.messages import MAX_ENTRIES, Topology, TopologyItem
from carrycast.protocols.overlay.modulators import Modulators, RunningModulator
from carrycast.protocols.overlay.relocation import Relocation
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.rules import FoundBroker, select_vicinity


class NeighborSearchDone(NamedTuple):
    """A time event: the update period has passed, and these brokers were found near."""

    found: tuple[FoundBroker, ...]


class TopologyReceived(NamedTuple):
    """A neighbor has propagated its changed topology items."""

    origin: NodeId
    items: tuple[TopologyItem, ...]


class NearerBrokerReported(NamedTuple):
    """A client of this home broker has found a nearer broker."""

    client: NodeId
    broker: NodeId
    distance: float


class LoadSampled(NamedTuple):
    """The resource monitor has sampled this broker's load."""

    load: float


SystemEvent: TypeAlias = NeighborSearchDone | TopologyReceived | NearerBrokerReported | LoadSampled


class BrokerComponents(NamedTuple):
    """The basic components that adaptors use."""

    context: NodeContext
    monitor: ResourceMonitor
    brokers: BrokerTables
    clients: ClientInformationTable
    modulators: Modulators
    relocation: Relocation


class Adaptor(ABC):
    """One adaptation."""

    interests: ClassVar[tuple[type, ...]]
    """The types of events that it processes."""

    def __init__(self, components: BrokerComponents) -> None:
        self.components = components

    @abstractmethod
    def process(self, now: float, event: SystemEvent) -> None:
        """React to an event."""


class SystemChannel:
    """Passes each event to the adaptors that are interested in it, in the order in which they registered."""

    def __init__(self) -> None:
        self._adaptors: list[Adaptor] = []

    def register(self, adaptor: Adaptor) -> None:
        """Add an adaptor."""
        self._adaptors.append(adaptor)

    def post(self, now: float, event: SystemEvent) -> None:
        """Pass an event on."""
        for adaptor in self._adaptors:
            if isinstance(event, adaptor.interests):
                adaptor.process(now, event)


class TopologyConstruction(Adaptor):
    """Dynamic construction of the broker network [002 §2.3].

    Links follow the physical network, and a change travels one overlay hop in each period. Without `follow` the broker
    searches its neighbors once, and from then on only propagates what it receives.
    """

    interests = (NeighborSearchDone, TopologyReceived)

    def __init__(self, components: BrokerComponents, follow: bool) -> None:
        super().__init__(components)
        self._follow = follow
        self._has_searched = False

    def process(self, now: float, event: SystemEvent) -> None:
        if isinstance(event, TopologyReceived):
            # Steps 3 and 4: newer items replace older ones and are marked changed; paths are computed when needed.
            for reason in self.components.brokers.merge(now, event.items):
                self.components.context.drop(reason, event.origin)
        elif isinstance(event, NeighborSearchDone):
            self._update(now, event)

    def _update(self, now: float, event: NeighborSearchDone) -> None:
        context, brokers = self.components.context, self.components.brokers
        settings = context.settings
        # Step 1: neighbors that are too far are dropped, those that are near are added.
        if self._follow or not self._has_searched:
            self._has_searched = self._has_searched or bool(event.found)
            near = select_vicinity(event.found, settings.vicinity, settings.degree, settings.within_hops)
            before = set(brokers.neighbors)
            if brokers.update_neighbors(now, near, self.components.monitor.information(now)):
                context.port.note(Fact("overlay_links", value=float(len(near))))
            if not before.issuperset(near) and before:
                brokers.mark_all_changed()
            if self._follow:
                brokers.remove_older(now - max(settings.item_s, 3 * settings.update_s))
        # Step 2: "those items in its topology table that have changed since the prior propagation period".
        items = brokers.take_changes(now)
        for begin in range(0, len(items), MAX_ENTRIES):
            update = Topology(tuple(items[begin : begin + MAX_ENTRIES]))
            # [002 §4.1] Overhead is the bandwidth "for propagating its broker topology knowledge to its neighbors".
            bits = 8.0 * len(msgspec.msgpack.encode(update))
            for neighbor in brokers.neighbors:
                context.send(now, neighbor, update)
                context.port.note(Fact("update", peer=neighbor, value=bits))


class LoadBalancing(Adaptor):
    """Load balancing [002 §2.4, §3.5]: an overloaded broker moves a modulator to a broker that is not overloaded.

    The modulator moves upstream if a broker on the paths from all producers has capacity, else downstream, else to a
    neighbor.
    """

    interests = (LoadSampled,)

    def process(self, now: float, event: SystemEvent) -> None:
        assert isinstance(event, LoadSampled)
        if event.load <= self.components.context.settings.max_load:
            return
        relocation = self.components.relocation
        with_function = [one for one in self.components.modulators if one.subscription.processor is not None]
        movable = [one for one in with_function if not one.frozen and not relocation.is_relocating(one.client)]
        if movable:
            slowest = max(movable, key=self._run_time_s)
            target = self._choose_target(slowest, event.load)
            if target is not None:
                relocation.start(now, slowest.client, target, (slowest.subscription.id,), with_home=False)

    def _run_time_s(self, modulator: RunningModulator) -> float:
        assert modulator.subscription.processor is not None
        return self.components.monitor.run_time_s(modulator.subscription.processor)

    def _choose_target(self, modulator: RunningModulator, load: float) -> NodeId | None:
        """Return the broker with the lowest load of the first group that has one with capacity."""
        brokers, context = self.components.brokers, self.components.context
        groups = (self.find_upstream(modulator), self.find_downstream(modulator), list(brokers.neighbors))
        for group in groups:
            loads = [(brokers.load_of(other), other) for other in group if other != context.node]
            with_capacity = [found for found in loads if found[0] < min(load, context.settings.max_load)]
            if with_capacity:
                return min(with_capacity)[1]
        return None

    def find_upstream(self, modulator: RunningModulator) -> list[NodeId]:
        """[002 §3.4] The brokers on the paths from all producers' home brokers to this one."""
        node, brokers = self.components.context.node, self.components.brokers
        on_all: list[NodeId] | None = None
        for home in dict.fromkeys(modulator.producer_homes.values()):
            path = brokers.paths_from(home).get(node)
            on_path = [] if path is None else [home, *path.path]
            on_all = on_path if on_all is None else [broker for broker in on_all if broker in on_path]
        return on_all or []

    def find_downstream(self, modulator: RunningModulator) -> list[NodeId]:
        """[002 §3.4] The brokers on the path from here to the client's home broker, which is the last."""
        if modulator.home == self.components.context.node:
            return []
        return list(self.components.brokers.path_to(modulator.home))
