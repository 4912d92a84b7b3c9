"""Opportunistic overlays [002]: a broker if that is its role, a client in any case."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, Failure, NodeId, Processor, Subscription, SubscriptionId
from carrycast.core.parts import Undelivered
from carrycast.core.protocol import (
    Capability,
    Host,
    Interface,
    Link,
    Place,
    Port,
    Probe,
    Protocol,
    RunsProcessors,
    TimerKey,
    Token,
    UsesRouter,
)
from carrycast.core.wire import Message, classify
from carrycast.protocols.overlay.broker import OverlayBroker
from carrycast.protocols.overlay.client import OverlayClient
from carrycast.protocols.overlay.context import BROKER, NodeContext
from carrycast.protocols.overlay.global_view import PROBES, TopologyOracle
from carrycast.protocols.overlay.messages import (
    MESSAGES,
    Ack,
    HomeConfirmed,
    Hop,
    ModulatorLost,
    NotHome,
    Output,
    Packet,
    PublishAck,
    RingAnswer,
    RingQuery,
    SequenceNumber,
)
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.ring_search import RingSearch
from carrycast.protocols.overlay.rules import FoundBroker
from carrycast.protocols.overlay.settings import SCHEMES, OverlaySettings

FIRST_SEARCH_S = 0.5
"""Nodes that start together search first at a random moment of this period, so that they do not all send at once."""
SEARCH_AGAIN_S = 1.0
"""The shortest time between two searches of a node, however often the network changes."""
CLIENT_MESSAGES = (Output, PublishAck, HomeConfirmed, NotHome, ModulatorLost)


class OpportunisticOverlay(Protocol, UsesRouter, RunsProcessors):
    """The components of a node: passes each input to the one that it is for."""

    name = "overlay"
    summary = "brokers whose overlay follows the network, and clients whose home broker and modulators follow them"
    settings_type = OverlaySettings
    messages = MESSAGES
    needs = frozenset({Capability.DIRECTORY, Capability.NODE_ROUTES})
    needs_roles = frozenset({BROKER})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = SCHEMES
    probes: ClassVar[Mapping[str, Probe]] = PROBES
    router = "aodv"
    serves_subscriptions = True

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self.context = NodeContext(node, settings, port, host, self._path_to)
        self.monitor = ResourceMonitor(host)
        self._oracle = TopologyOracle(host, self.context.brokers, settings) if settings.near == "view" else None
        self.broker = OverlayBroker(self.context, self.monitor, self._oracle) if BROKER in host.roles else None
        self.client = OverlayClient(self.context)
        self._phase = rng.random()
        self._search = RingSearch(node, settings, port, host.incarnation, self._on_brokers_found)

    def _path_to(self, peer: NodeId) -> tuple[NodeId, ...]:
        return () if self.broker is None else self.broker.path_to(peer)

    def on_start(self, now: float) -> None:
        if self.broker is not None:
            self.broker.start(now)
            self._flush(now)
            if self._oracle is None:
                self.context.start_timer("update", FIRST_SEARCH_S * self.rng.random())
            self.context.start_timer("refresh", self._settings.refresh_s)
            if self._settings.load_balancing_by in self.host.roles:
                self.context.start_timer("load", self._settings.load_s)

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """The home broker and the modulators of this node; at a broker also the modulators that run here."""
        return self.client.report(name) | ({} if self.broker is None else self.broker.modulators.report(name))

    def on_stop(self, now: float) -> None:
        self._search.stop()
        self.context.stop()

    # Applications.

    def on_publish(self, now: float, event: Event) -> None:
        self.client.publish(now, event)
        self._find_home(now)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.client.subscribe(now, subscription)
        self._find_home(now)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self.client.unsubscribe(now, subscription)

    def on_processor(self, now: float, processor: Processor) -> None:
        """Nothing to do: `host.processors` has it."""

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        assert self.broker is not None, "only brokers call processors"
        self.broker.modulators.on_processed(now, token, state, events, cost_s, error)
        self._flush(now)
        self.context.start_timer("maintain", self._settings.resend_s)

    # Searches.

    def _find_home(self, now: float) -> None:
        if self.client.home is None and self.client.refused:
            # A request at once would be refused at once, for ever.
            self.context.start_timer("search", SEARCH_AGAIN_S + self.rng.random())
        elif self.client.home is None:
            # The timer of the next period would be too late.
            self.context.stop_timer("search")
            self.context.start_timer("search", FIRST_SEARCH_S * self.rng.random() if self.broker is None else 0.0)

    def on_link_up(self, now: float, link: Link) -> None:
        self._on_link_change()

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._on_link_change()

    def _on_link_change(self) -> None:
        # [002 §2.4] "in response to changes indicated by the underlying physical network protocol".
        if self._settings.look_on_change and self.broker is None and not self.client.is_idle:
            self.context.start_timer("changed", SEARCH_AGAIN_S)

    def _search_brokers(self, now: float, enough: int) -> None:
        found: list[FoundBroker] = []
        if self._oracle is not None:
            found = self._oracle.nearest(self.node)
        elif self._settings.near == "router":
            others = [broker for broker in self.context.brokers if broker != self.node]
            found = self.monitor.known_distances(now, others)
        if self._oracle is not None or found:
            self._on_brokers_found(now, found)
        else:
            # A reactive router knows no route to a node that no message has been sent to.
            self._search.begin(now, enough)

    def _on_brokers_found(self, now: float, found: list[FoundBroker]) -> None:
        if self.broker is not None:
            self.broker.on_neighbor_search(now, found)
        else:
            self.client.on_brokers_found(now, found, {broker: load for broker, (_, load) in self._search.found.items()})
            if self.client.home is None and not self.client.is_idle:
                self.context.stop_timer("search")
                self.context.start_timer("search", SEARCH_AGAIN_S + self.rng.random())

    def on_timer(self, now: float, key: TimerKey) -> None:
        self.context.on_timer(key)
        self._dispatch_timer(now, key)
        self._flush(now)

    def _flush(self, now: float) -> None:
        if self.broker is not None:
            self.broker.handover.flush(now)

    def _dispatch_timer(self, now: float, key: TimerKey) -> None:
        match key:
            case "ring":
                self._search.on_timer(now)
            case "update":
                self._search_brokers(now, self._settings.degree)
                # All brokers search at their start; from then on each has its own phase.
                share, self._phase = self._phase, 1.0
                self.context.start_timer("update", self._settings.update_s * share)
            case "search" | "changed":
                self._on_search_timer(now)
            case "keepalive":
                self.client.send_keepalive(now)
            case "output_ack":
                self.client.send_acks()
            case ("move", SequenceNumber() as move):
                assert self.broker is not None
                self.broker.relocation.on_timer(now, move)
            case ("channel", (int(token),)):
                self._on_given_up(now, self.context.transport.on_timer(now, token))
            case "maintain":
                waits = self.client.maintain(now)
                if (self.broker is not None and self.broker.maintain(now)) or waits:
                    self.context.start_timer("maintain", self._settings.resend_s)
            case _:
                self._dispatch_broker_timer(now, key)

    def _on_search_timer(self, now: float) -> None:
        if self.broker is not None:
            # [002 §2.4] The nearest broker is on the same node.
            if self.client.home is None and not self.client.is_idle:
                self.client.on_brokers_found(now, [(0.0, self.node)], {})
        elif not self.client.is_idle:
            self.client.query_home(now)
            self._search_brokers(now, 1)
            self.context.start_timer(
                "search", self._settings.look_s if self.client.home is not None else SEARCH_AGAIN_S
            )

    def _dispatch_broker_timer(self, now: float, key: TimerKey) -> None:
        assert self.broker is not None
        match key:
            case "refresh":
                self.broker.refresh(now)
                self.context.start_timer("refresh", self._settings.refresh_s)
            case "load":
                self.broker.sample_load(now)
                self.context.start_timer("load", self._settings.load_s)
            case "acknowledge":
                self.broker.send_acknowledgements(now)
            case "directory":
                self.broker.on_directory_timer(now)

    # Messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, RingQuery):
            load = None if self.broker is None else self.monitor.load(now)
            self._search.on_query(now, sender, message, load)
        else:
            self.context.drop("not_routed", sender)

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        self._dispatch_packet(now, origin, message, hops)
        self._flush(now)

    def _dispatch_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Packet():
                for received in self.context.transport.on_packet(now, origin, message, hops):
                    self._dispatch_message(now, received.origin, received.message, received.hops)
            case Ack():
                self._on_given_up(now, self.context.transport.on_ack(now, origin, message))
            case Hop():
                inner = self.context.transport.on_hop(now, message, hops)
                if inner is not None:
                    self._dispatch_packet(now, *inner)
            case RingAnswer():
                self._search.on_answer(now, origin, message, self.context.is_broker(origin))
            case _:
                self._dispatch_message(now, origin, message, hops)

    def _dispatch_message(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        if isinstance(message, CLIENT_MESSAGES):
            if self.client.on_message(now, origin, message, hops):
                self._find_home(now)
        elif self.broker is not None:
            self.broker.on_message(now, origin, message, hops)
        else:
            self.context.drop("not_a_broker", origin, classify(message)[1])

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        if isinstance(message, Hop):
            self.context.transport.on_unreachable(now, target, message)
        else:
            # The channel retransmits its own messages; the others are sent again periodically.
            self.context.drop("unreachable", event=classify(message)[1])

    def _on_given_up(self, now: float, given_up: list[Undelivered]) -> None:
        for one in given_up:
            if self.client.on_given_up(now, one.peer, one.cause):
                self._find_home(now)
                self.context.start_timer("changed", SEARCH_AGAIN_S)
            if self.broker is not None:
                self.broker.on_given_up(now, one.peer, one.message, one.cause)
                self.context.start_timer("maintain", self._settings.resend_s)
