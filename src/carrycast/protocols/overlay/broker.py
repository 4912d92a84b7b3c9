"""A broker: the basic components of [002 §3.3], the moves above them, and the adaptors that it runs [002 §3.5]."""

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Failure, NodeId, SubscriptionId
from carrycast.core.wire import Message
from carrycast.protocols.overlay.adaptors import (
    ClientReported,
    LoadBalancing,
    LoadSampled,
    LookedAround,
    Propagated,
    Services,
    SystemChannel,
    TopologyConstruction,
)
from carrycast.protocols.overlay.broker_tables import Brokers, PathLinks
from carrycast.protocols.overlay.client_tables import Client, Clients, InterestTable, Starting
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.durable_state import Ledger
from carrycast.protocols.overlay.global_view import Oracle
from carrycast.protocols.overlay.handover import HandOver
from carrycast.protocols.overlay.home_broker import HomeChange
from carrycast.protocols.overlay.messages import (
    Ask,
    Attach,
    Ended,
    Got,
    Here,
    Home,
    Interests,
    Known,
    Missing,
    Modulator,
    Publish,
    Raw,
    Report,
    Seek,
    Skip,
    Taken,
    Topology,
    Unknown,
    Unwant,
    Version,
    Want,
)
from carrycast.protocols.overlay.modulators import Modulators
from carrycast.protocols.overlay.producers import Productions
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.rules import Found


class Broker:
    """One broker; which adaptors it runs its roles decide."""

    def __init__(self, station: Station, monitor: ResourceMonitor, oracle: Oracle | None) -> None:
        settings, roles = station.settings, station.host.roles
        self._station = station
        self._monitor = monitor
        self._oracle = oracle
        self.brokers = Brokers(station.node, settings, station.host.incarnation)
        self.clients = Clients(settings.max_clients)
        self.interests = InterestTable(settings.max_interests)
        self.starting = Starting(station, self.interests)
        self.productions = Productions(station, self.interests)
        self.ledger = Ledger(station)
        self.modulators = Modulators(station, monitor, self.ledger.touch)
        self.hands = HandOver(
            station, monitor, self.ledger, self.clients, self.interests, self.productions, self.modulators
        )
        self.relocation = self.hands.relocation
        services = Services(
            station, monitor, self.brokers, self.clients, self.modulators, self.productions, self.relocation
        )
        self.channel = SystemChannel()
        self.channel.register(TopologyConstruction(services, settings.topology_by in roles))
        if settings.home_change_by in roles:
            self.channel.register(HomeChange(services))
        if settings.load_balancing_by in roles:
            self.channel.register(LoadBalancing(services))

    def path(self, peer: NodeId) -> tuple[NodeId, ...]:
        """[002 §2.2] The brokers over which a node is reached: of a client those to its home, and that."""
        if self._station.is_broker(peer):
            self._see()
            return self.brokers.path(peer)[:-1]
        home = self.interests.home(peer)
        if home is None or home == self._station.node or peer in self.clients:
            return ()
        self._see()
        return self.brokers.path(home)

    def _see(self) -> None:
        if self._oracle is not None and self._oracle.changed():
            self.brokers.assume(self._oracle.rows())

    def known_links(self) -> PathLinks:
        """The links of the paths to all brokers that this one knows a path to."""
        self._see()
        return self.brokers.known_links()

    # Periods.

    def start(self, now: float) -> None:
        """Others know what runs with them."""
        self.starting.begin(now)
        self.hands.recover(now)

    def on_started(self, now: float) -> None:
        """Nobody has answered for too long."""
        if self.starting.on_timer(now):
            self._started(now)

    def _started(self, now: float) -> None:
        for origin, message, hops in self.starting.held(now):
            self._on_publish(now, origin, message, hops)

    def looked_around(self, now: float, found: list[Found]) -> None:
        """The period is over and so is the search."""
        self.channel.post(now, LookedAround(tuple(found)))

    def sample(self, now: float) -> None:
        """Look at the own load."""
        self.channel.post(now, LoadSampled(self._monitor.load(now)))

    def refresh(self, now: float) -> None:
        """Soft state: say again what runs here, and forget who has not been heard of."""
        self.hands.announce(now, list(self.modulators), with_streams=False)
        gone = self.interests.expire(now)
        self.productions.forget(gone)
        for id in gone:
            # The broker that ran it is silent. Only the client knows what it wants run.
            if id.subscriber in self.clients and id not in self.modulators:
                self._station.send(now, id.subscriber, Missing(id))
        for client in self.clients:
            if now - client.heard > self._station.settings.lease_s and not self.relocation.busy(client.node):
                self._station.drop("client_expired", client.node)
                self._lose(now, client)

    def tell(self, now: float) -> None:
        """Word of what has arrived."""
        self.productions.tell_accepted(now)
        self.modulators.tell_taken(now)

    def tend(self, now: float) -> bool:
        """Send again what got nowhere; whether anything waits."""
        waits = [self.productions.tend(now), self.modulators.tend(now), self.relocation.tend(now)]
        return any(waits)

    def _lose(self, now: float, client: Client) -> None:
        self.ledger.touch(client.node)
        self.clients.remove(client.node)
        self.productions.retire(client.node)
        for one in self.modulators.of(client.node):
            self.hands.end(now, one.subscription.id, one.version)

    # Messages.

    def on_message(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        """From a client or a broker."""
        match message:
            case Raw():
                self.modulators.on_raw(now, origin, message, hops)
            case Publish():
                self._on_publish(now, origin, message, hops)
            case Taken():
                self.productions.on_taken(now, origin, message)
            case Got():
                self.modulators.on_got(now, origin, message)
            case Skip():
                self.modulators.on_skip(now, origin, message)
            case Topology():
                self.channel.post(now, Propagated(origin, message.items))
            case Interests():
                self.hands.learn(now, origin, message)
            case Seek():
                known = self.clients.get(origin)
                if known is not None and known.version[:2] == message.version[:2]:
                    self._station.send(now, origin, Home(known.version))
            case Ask():
                self.starting.on_ask(now, origin)
            case Known():
                if self.starting.on_known(now, origin, message):
                    self._started(now)
            case Ended():
                self.hands.on_ended(now, message)
            case Unwant():
                self._on_unwant(now, origin, message.subscription)
            case Attach() | Here() | Report() | Want():
                self._on_client(now, origin, message, hops)
            case _:
                self.relocation.on_message(now, origin, message)

    def on_given_up(self, now: float, peer: NodeId, message: Message, cause: Failure) -> None:
        """Something could not be brought to a broker or a client."""
        if isinstance(message, Raw | Skip):
            self.productions.stall(peer)
        elif not self._station.is_broker(peer):
            self.modulators.stall(now, peer)
        self.relocation.on_given_up(now, peer, message, cause)

    def _on_publish(self, now: float, origin: NodeId, message: Publish, hops: int) -> None:
        client = self._known(now, origin, message.version)
        if client is None:
            return
        client.distance = float(hops)
        if self.hands.is_leaving(origin):
            # It keeps the event, and sends it to its new home.
            self._station.drop("client_moving", origin, message.event.id)
        elif not self.starting.done:
            self.starting.hold(now, origin, message, hops)
        else:
            self.productions.on_publish(now, origin, message, hops)
            self.ledger.touch(origin)
            self._station.arm("tend", self._station.settings.resend_s)

    def _known(self, now: float, origin: NodeId, version: Version) -> Client | None:
        """A client of this home, heard of now; else it is told that it is none."""
        client = self.clients.get(origin)
        if client is None or client.version[:2] != version[:2]:
            self._station.drop("not_home", origin)
            self._station.send(now, origin, Unknown(version))
            return None
        client.heard = now
        self.modulators.welcome(now, origin)
        return client

    def _on_client(self, now: float, origin: NodeId, message: Attach | Here | Report | Want, hops: int) -> None:
        if isinstance(message, Attach):
            self._on_attach(now, origin, message, hops)
            return
        client = self._known(now, origin, message.version)
        if client is None:
            return
        client.distance = float(hops)
        if isinstance(message, Want):
            self._on_want(now, client, message)
        elif isinstance(message, Report):
            self._on_report(now, client, message)

    def _on_attach(self, now: float, origin: NodeId, message: Attach, hops: int) -> None:
        known = self.clients.get(origin)
        if known is None or known.version < message.version:
            if not self.clients.add(Client(origin, message.version, float(hops), now)):
                self._station.drop("clients_full", origin)
                self._station.send(now, origin, Unknown(message.version))
                return
            self._station.arm("refresh", self._station.settings.refresh_s)
            self.ledger.touch(origin)
        self._station.send(now, origin, Home(message.version))

    def _on_want(self, now: float, client: Client, message: Want) -> None:
        subscription, running = message.subscription, self.modulators.get(message.subscription.id)
        if subscription.subscriber != client.node:
            self._station.drop("forged_subscriber", client.node)
        elif not _is_filter(subscription.filter):
            self._station.drop("filter_unreadable", client.node)
        elif subscription.processor is not None and not self._monitor.can_run(subscription.processor):
            self._station.drop("processor_unknown", client.node)
        elif running is not None and running.version[:2] == message.version[:2]:
            # A renewal; what it asks for may be another.
            running.subscription = subscription
            self.hands.announce(now, [running], with_streams=False)
        else:
            self.ledger.touch(client.node)
            record = Modulator(subscription, client.version, subscription.state, message.following, message.output, ())
            self.modulators.open(now, record, self._station.node)
            opened = self.modulators.get(subscription.id)
            assert opened is not None
            self.hands.announce(now, [opened], with_streams=True)

    def _on_unwant(self, now: float, origin: NodeId, id: SubscriptionId) -> None:
        running, known = self.modulators.get(id), self.interests.get(id)
        if origin != id.subscriber and not self._station.is_broker(origin):
            self._station.drop("forged_subscriber", origin)
        elif running is not None:
            self.hands.end(now, id, running.version)
        elif known is not None and known.place != self._station.node and origin == id.subscriber:
            self._station.send(now, known.place, Unwant(id))

    # [002 §2.4 step 1] "it shares with its current home broker the newly discovered broker along with its distance".
    def _on_report(self, now: float, client: Client, message: Report) -> None:
        if not self._station.is_broker(message.broker) or message.broker == self._station.node:
            self._station.drop("unknown_broker", client.node)
            return
        self._see()
        if message.load is not None:
            self.brokers.hear(now, message.broker, message.load)
        client.peers = self.productions.places(client.node)
        for one in self.modulators.of(client.node):
            client.peers |= {producer: source for (producer, _), source in one.sources.items()}
        self.channel.post(now, ClientReported(client.node, message.broker, message.distance))


def _is_filter(text: str) -> bool:
    try:
        Filter(text)
    except FilterError:
        return False
    return True
