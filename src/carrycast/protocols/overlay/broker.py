"""A broker: the basic components of [002 §3.3], relocation, and the adaptors that it runs [002 §3.5]."""

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Failure, NodeId, SubscriptionId
from carrycast.core.wire import Message
from carrycast.protocols.overlay.adaptors import (
    BrokerComponents,
    LoadBalancing,
    LoadSampled,
    NearerBrokerReported,
    NeighborSearchDone,
    SystemChannel,
    TopologyConstruction,
    TopologyReceived,
)
from carrycast.protocols.overlay.broker_tables import BrokerTables, PathLinks
from carrycast.protocols.overlay.client_tables import (
    ClientInformation,
    ClientInformationTable,
    DirectorySync,
    SubscriptionDirectory,
)
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.durable_state import DurableBrokerState
from carrycast.protocols.overlay.global_view import TopologyOracle
from carrycast.protocols.overlay.handover import StateHandover
from carrycast.protocols.overlay.home_broker import HomeBrokerChange
from carrycast.protocols.overlay.messages import (
    Attach,
    ClientAlive,
    DirectoryReply,
    DirectoryRequest,
    DirectoryUpdate,
    HomeConfirmed,
    HomeQuery,
    HomeVersion,
    InputAck,
    ModulatorLost,
    ModulatorRecord,
    NearerBroker,
    NotHome,
    OutputAck,
    ProducedEvent,
    Publish,
    StreamSkip,
    Subscribe,
    SubscriptionEnded,
    Topology,
    Unsubscribe,
)
from carrycast.protocols.overlay.modulators import Modulators
from carrycast.protocols.overlay.producers import Producers
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.rules import FoundBroker

MAX_SUBSCRIPTIONS = 16384
"""Subscriptions in a broker's directory. The bound keeps forged ones from filling its memory."""


class OverlayBroker:
    """One broker. Its roles decide which adaptors it runs."""

    def __init__(self, context: NodeContext, monitor: ResourceMonitor, oracle: TopologyOracle | None) -> None:
        settings, roles = context.settings, context.host.roles
        self._context = context
        self._monitor = monitor
        self._oracle = oracle
        self.brokers = BrokerTables(context.node, settings, context.host.incarnation)
        self.clients = ClientInformationTable(settings.max_clients)
        self.directory = SubscriptionDirectory(MAX_SUBSCRIPTIONS)
        self.directory_sync = DirectorySync(context, self.directory)
        self.producers = Producers(context, self.directory)
        self.durable_state = DurableBrokerState(context)
        self.modulators = Modulators(context, monitor, self.durable_state.mark_changed)
        self.handover = StateHandover(
            context, monitor, self.durable_state, self.clients, self.directory, self.producers, self.modulators
        )
        self.relocation = self.handover.relocation
        components = BrokerComponents(context, monitor, self.brokers, self.clients, self.modulators, self.relocation)
        self.channel = SystemChannel()
        self.channel.register(TopologyConstruction(components, settings.topology_by in roles))
        if settings.home_change_by in roles:
            self.channel.register(HomeBrokerChange(components))
        if settings.load_balancing_by in roles:
            self.channel.register(LoadBalancing(components))

    def path_to(self, peer: NodeId) -> tuple[NodeId, ...]:
        """[002 §2.2] The brokers on the path to a node: to a client, those to its home broker, and that."""
        if self._context.is_broker(peer):
            self._update_view()
            return self.brokers.path_to(peer)[:-1]
        home = self.directory.home_of(peer)
        if home is None or home == self._context.node or peer in self.clients:
            return ()
        self._update_view()
        return self.brokers.path_to(home)

    def _update_view(self) -> None:
        if self._oracle is not None and self._oracle.has_changed():
            self.brokers.set_topology(self._oracle.rows())

    def known_links(self) -> PathLinks:
        """The links of all paths that this broker knows."""
        self._update_view()
        return self.brokers.known_links()

    # Timers.

    def start(self, now: float) -> None:
        """Request the subscription directory, and resume from durable records."""
        self.directory_sync.begin(now)
        self.handover.recover(now)

    def on_directory_timer(self, now: float) -> None:
        """Handle the time-out of directory requests."""
        if self.directory_sync.on_timer(now):
            self._on_directory_known(now)

    def _on_directory_known(self, now: float) -> None:
        for origin, message, hops in self.directory_sync.take_queued(now):
            self._on_publish(now, origin, message, hops)

    def on_neighbor_search(self, now: float, found: list[FoundBroker]) -> None:
        """The periodic search for near brokers is done."""
        self.channel.post(now, NeighborSearchDone(tuple(found)))

    def sample_load(self, now: float) -> None:
        """Sample the load of this broker."""
        self.channel.post(now, LoadSampled(self._monitor.load(now)))

    def refresh(self, now: float) -> None:
        """Soft state: announce the modulators of this broker again, and remove expired clients and entries."""
        self.handover.announce(now, list(self.modulators), with_positions=False)
        expired = self.directory.expire(now)
        self.producers.remove_streams(expired)
        for id in expired:
            # The broker of the modulator is silent. Only the client has the whole subscription.
            if id.subscriber in self.clients and id not in self.modulators:
                self._context.send(now, id.subscriber, ModulatorLost(id))
        for client in self.clients:
            is_silent = now - client.heard > self._context.settings.lease_s
            if is_silent and not self.relocation.is_relocating(client.node):
                self._context.drop("client_expired", client.node)
                self._remove_client(now, client)

    def send_acknowledgements(self, now: float) -> None:
        """Acknowledge events to producers, and inputs of modulators to producers' home brokers."""
        self.producers.send_publish_acks(now)
        self.modulators.send_input_acks(now)

    def maintain(self, now: float) -> bool:
        """Retransmit events that were not acknowledged. Returns whether any are left."""
        waits = [self.producers.maintain(now), self.modulators.maintain(now), self.relocation.maintain(now)]
        return any(waits)

    def _remove_client(self, now: float, client: ClientInformation) -> None:
        self.durable_state.mark_changed(client.node)
        self.clients.remove(client.node)
        self.producers.detach(client.node)
        for modulator in self.modulators.modulators_of(client.node):
            self.handover.end(now, modulator.subscription.id, modulator.version)

    # Messages.

    def on_message(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        """A message of a client or a broker."""
        match message:
            case ProducedEvent():
                self.modulators.on_produced_event(now, origin, message, hops)
            case Publish():
                self._on_publish(now, origin, message, hops)
            case InputAck():
                self.producers.on_input_ack(now, origin, message)
            case OutputAck():
                self.modulators.on_output_ack(now, origin, message)
            case StreamSkip():
                self.modulators.on_skip(now, origin, message)
            case Topology():
                self.channel.post(now, TopologyReceived(origin, message.items))
            case DirectoryUpdate():
                self.handover.on_directory_update(now, origin, message)
            case HomeQuery():
                known = self.clients.get(origin)
                if known is not None and known.version[:2] == message.version[:2]:
                    self._context.send(now, origin, HomeConfirmed(known.version))
            case DirectoryRequest():
                self.directory_sync.on_request(now, origin)
            case DirectoryReply():
                if self.directory_sync.on_reply(now, origin, message):
                    self._on_directory_known(now)
            case SubscriptionEnded():
                self.handover.on_ended(now, message)
            case Unsubscribe():
                self._on_unsubscribe(now, origin, message.subscription)
            case Attach() | ClientAlive() | NearerBroker() | Subscribe():
                self._on_client(now, origin, message, hops)
            case _:
                self.relocation.on_message(now, origin, message)

    def on_given_up(self, now: float, peer: NodeId, message: Message, cause: Failure) -> None:
        """A message could not be delivered to a broker or a client."""
        if isinstance(message, ProducedEvent | StreamSkip):
            self.producers.on_broker_unreachable(peer)
        elif not self._context.is_broker(peer):
            self.modulators.on_client_unreachable(now, peer)
        self.relocation.on_given_up(now, peer, message, cause)

    def _on_publish(self, now: float, origin: NodeId, message: Publish, hops: int) -> None:
        client = self._find_client(now, origin, message.version)
        if client is None:
            return
        client.distance = float(hops)
        if self.handover.is_leaving(origin):
            # The client keeps the event, and sends it to its new home broker.
            self._context.drop("client_moving", origin, message.event.id)
        elif not self.directory_sync.is_done:
            self.directory_sync.queue(now, origin, message, hops)
        else:
            self.producers.on_publish(now, origin, message, hops)
            self.durable_state.mark_changed(origin)
            self._context.start_timer("maintain", self._context.settings.resend_s)

    def _find_client(self, now: float, origin: NodeId, version: HomeVersion) -> ClientInformation | None:
        """Return the client that sent a message. If this is not its home broker, notify it and return None."""
        client = self.clients.get(origin)
        if client is None or client.version[:2] != version[:2]:
            self._context.drop("not_home", origin)
            self._context.send(now, origin, NotHome(version))
            return None
        client.heard = now
        self.modulators.on_client_heard(now, origin)
        return client

    def _on_client(
        self, now: float, origin: NodeId, message: Attach | ClientAlive | NearerBroker | Subscribe, hops: int
    ) -> None:
        if isinstance(message, Attach):
            self._on_attach(now, origin, message, hops)
            return
        client = self._find_client(now, origin, message.version)
        if client is None:
            return
        client.distance = float(hops)
        if isinstance(message, Subscribe):
            self._on_subscribe(now, client, message)
        elif isinstance(message, NearerBroker):
            self._on_nearer_broker(now, client, message)

    def _on_attach(self, now: float, origin: NodeId, message: Attach, hops: int) -> None:
        known = self.clients.get(origin)
        if known is None or known.version < message.version:
            if not self.clients.add(ClientInformation(origin, message.version, float(hops), now)):
                self._context.drop("clients_full", origin)
                self._context.send(now, origin, NotHome(message.version))
                return
            self._context.start_timer("refresh", self._context.settings.refresh_s)
            self.durable_state.mark_changed(origin)
        self._context.send(now, origin, HomeConfirmed(message.version))

    def _on_subscribe(self, now: float, client: ClientInformation, message: Subscribe) -> None:
        subscription, running = message.subscription, self.modulators.get(message.subscription.id)
        if subscription.subscriber != client.node:
            self._context.drop("forged_subscriber", client.node)
        elif not _is_filter(subscription.filter):
            self._context.drop("filter_unreadable", client.node)
        elif subscription.processor is not None and not self._monitor.can_run(subscription.processor):
            self._context.drop("processor_unknown", client.node)
        elif running is not None and running.version[:2] == message.version[:2]:
            # A renewal, perhaps with another filter.
            running.subscription = subscription
            self.handover.announce(now, [running], with_positions=False)
        else:
            self.durable_state.mark_changed(client.node)
            state, positions = subscription.state, message.positions
            record = ModulatorRecord(subscription, client.version, state, positions, message.next_output, ())
            self.modulators.open(now, record, self._context.node)
            opened = self.modulators.get(subscription.id)
            assert opened is not None
            self.handover.announce(now, [opened], with_positions=True)

    def _on_unsubscribe(self, now: float, origin: NodeId, id: SubscriptionId) -> None:
        running, known = self.modulators.get(id), self.directory.get(id)
        if origin != id.subscriber and not self._context.is_broker(origin):
            self._context.drop("forged_subscriber", origin)
        elif running is not None:
            self.handover.end(now, id, running.version)
        elif known is not None and known.broker != self._context.node and origin == id.subscriber:
            self._context.send(now, known.broker, Unsubscribe(id))

    # [002 §2.4 step 1] "it shares with its current home broker the newly discovered broker along with its distance".
    def _on_nearer_broker(self, now: float, client: ClientInformation, message: NearerBroker) -> None:
        if not self._context.is_broker(message.broker) or message.broker == self._context.node:
            self._context.drop("unknown_broker", client.node)
            return
        self._update_view()
        if message.load is not None:
            self.brokers.update_load(now, message.broker, message.load)
        client.peers = self.producers.modulator_brokers(client.node)
        for modulator in self.modulators.modulators_of(client.node):
            client.peers |= {producer: home for (producer, _), home in modulator.producer_homes.items()}
        self.channel.post(now, NearerBrokerReported(client.node, message.broker, message.distance))


def _is_filter(text: str) -> bool:
    try:
        Filter(text)
    except FilterError:
        return False
    return True
