"""Opportunistic overlays [002]: a broker if that is its role, a client in any case."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, Failure, NodeId, Processor, Subscription, SubscriptionId
from carrycast.core.parts.outbox import Undelivered
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
from carrycast.protocols.overlay.broker import Broker
from carrycast.protocols.overlay.client import Client
from carrycast.protocols.overlay.context import BROKER, Station
from carrycast.protocols.overlay.global_view import PROBES, Oracle
from carrycast.protocols.overlay.messages import (
    MESSAGES,
    Accepted,
    Ack,
    Home,
    Hop,
    Missing,
    Output,
    Packet,
    RingAnswer,
    RingQuery,
    Round,
    Unknown,
)
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.ring_search import RingSearch
from carrycast.protocols.overlay.rules import Found
from carrycast.protocols.overlay.settings import SCHEMES, OverlaySettings

FIRST_LOOK_S = 0.5
"""Nodes that start together look around at a random moment of this, so that they do not all speak at once."""
LOOK_AGAIN_S = 1.0
"""A network that changes all the time is not searched more often than that."""
FOR_CLIENTS = (Output, Accepted, Home, Unknown, Missing)


class Overlay(Protocol, UsesRouter, RunsProcessors):
    """The node's parts, and which of them each input is for."""

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
        self.station = Station(node, settings, port, host, self._path)
        self.monitor = ResourceMonitor(host)
        self._oracle = Oracle(host, self.station.brokers, settings) if settings.near == "view" else None
        self.broker = Broker(self.station, self.monitor, self._oracle) if BROKER in host.roles else None
        self.client = Client(self.station)
        self._phase = rng.random()
        self._search = RingSearch(node, settings, port, host.incarnation, self._on_found)

    def _path(self, peer: NodeId) -> tuple[NodeId, ...]:
        return () if self.broker is None else self.broker.path(peer)

    def on_start(self, now: float) -> None:
        if self.broker is not None:
            self.broker.start(now)
            self._flush(now)
            if self._oracle is None:
                self.station.arm("update", FIRST_LOOK_S * self.rng.random())
            self.station.arm("refresh", self._settings.refresh_s)
            if self._settings.load_balancing_by in self.host.roles:
                self.station.arm("load", self._settings.load_s)

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """The home of this node, and where the modulators of its subscriptions run; at a broker, whose run here."""
        return self.client.report(name) | ({} if self.broker is None else self.broker.modulators.report(name))

    def on_stop(self, now: float) -> None:
        self._search.stop()
        self.station.stop()

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
        """`host.processors` tells the same when it is asked."""

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        assert self.broker is not None, "nobody else has asked for it"
        self.broker.modulators.on_processed(now, token, state, events, cost_s, error)
        self._flush(now)
        self.station.arm("tend", self._settings.resend_s)

    # Looking around.

    def _find_home(self, now: float) -> None:
        if self.client.home is None and self.client.refused:
            # To ask again at once would be refused at once, for ever.
            self.station.arm("look", LOOK_AGAIN_S + self.rng.random())
        elif self.client.home is None:
            # One that was armed for the next period is too late.
            self.station.disarm("look")
            self.station.arm("look", FIRST_LOOK_S * self.rng.random() if self.broker is None else 0.0)

    def on_link_up(self, now: float, link: Link) -> None:
        self._on_change()

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._on_change()

    def _on_change(self) -> None:
        # [002 §2.4] "in response to changes indicated by the underlying physical network protocol".
        if self._settings.look_on_change and self.broker is None and not self.client.is_idle:
            self.station.arm("changed", LOOK_AGAIN_S)

    def _look(self, now: float, enough: int) -> None:
        found: list[Found] = []
        if self._oracle is not None:
            found = self._oracle.nearest(self.node)
        elif self._settings.near == "router":
            others = [broker for broker in self.station.brokers if broker != self.node]
            found = self.monitor.distances(now, others)
        if self._oracle is not None or found:
            self._on_found(now, found)
        else:
            # A router on demand knows no way to whom nobody has spoken to yet.
            self._search.begin(now, enough)

    def _on_found(self, now: float, found: list[Found]) -> None:
        if self.broker is not None:
            self.broker.looked_around(now, found)
        else:
            self.client.on_found(now, found, {broker: load for broker, (_, load) in self._search.found.items()})
            if self.client.home is None and not self.client.is_idle:
                self.station.disarm("look")
                self.station.arm("look", LOOK_AGAIN_S + self.rng.random())

    def on_timer(self, now: float, key: TimerKey) -> None:
        self.station.rang(key)
        self._ring(now, key)
        self._flush(now)

    def _flush(self, now: float) -> None:
        if self.broker is not None:
            self.broker.hands.flush(now)

    def _ring(self, now: float, key: TimerKey) -> None:
        match key:
            case "ring":
                self._search.on_timer(now)
            case "update":
                self._look(now, self._settings.degree)
                # All look at their start; from then on each has a phase of its own.
                share, self._phase = self._phase, 1.0
                self.station.arm("update", self._settings.update_s * share)
            case "look" | "changed":
                self._on_look(now)
            case "here":
                self.client.refresh(now)
            case "got":
                self.client.tell_got()
            case ("move", Round() as move):
                assert self.broker is not None
                self.broker.relocation.on_timer(now, move)
            case ("channel", (int(token),)):
                self._on_given_up(now, self.station.transport.on_timer(now, token))
            case "tend":
                waits = self.client.tend(now)
                if (self.broker is not None and self.broker.tend(now)) or waits:
                    self.station.arm("tend", self._settings.resend_s)
            case _:
                self._on_period(now, key)

    def _on_look(self, now: float) -> None:
        if self.broker is not None:
            # [002 §2.4] The nearest broker is on the same node.
            if self.client.home is None and not self.client.is_idle:
                self.client.on_found(now, [(0.0, self.node)], {})
        elif not self.client.is_idle:
            self.client.seek(now)
            self._look(now, 1)
            self.station.arm("look", self._settings.look_s if self.client.home is not None else LOOK_AGAIN_S)

    def _on_period(self, now: float, key: TimerKey) -> None:
        assert self.broker is not None
        match key:
            case "refresh":
                self.broker.refresh(now)
                self.station.arm("refresh", self._settings.refresh_s)
            case "load":
                self.broker.sample(now)
                self.station.arm("load", self._settings.load_s)
            case "taken":
                self.broker.tell(now)
            case "started":
                self.broker.on_started(now)

    # Messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, RingQuery):
            load = None if self.broker is None else self.monitor.load(now)
            self._search.on_query(now, sender, message, load)
        else:
            self.station.drop("not_routed", sender)

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        self._take(now, origin, message, hops)
        self._flush(now)

    def _take(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Packet():
                for arrived in self.station.transport.on_packet(now, origin, message, hops):
                    self._on_arrived(now, arrived.origin, arrived.message, arrived.hops)
            case Ack():
                self._on_given_up(now, self.station.transport.on_ack(now, origin, message))
            case Hop():
                inner = self.station.transport.on_hop(now, message, hops)
                if inner is not None:
                    self._take(now, *inner)
            case RingAnswer():
                self._search.on_answer(now, origin, message, self.station.is_broker(origin))
            case _:
                self._on_arrived(now, origin, message, hops)

    def _on_arrived(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        if isinstance(message, FOR_CLIENTS):
            if self.client.on_message(now, origin, message, hops):
                self._find_home(now)
        elif self.broker is not None:
            self.broker.on_message(now, origin, message, hops)
        else:
            self.station.drop("not_a_broker", origin, classify(message)[1])

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        if isinstance(message, Hop):
            self.station.transport.on_unreachable(now, target, message)
        else:
            # The channel repeats what it carries; other words are said again in time.
            self.station.drop("unreachable", event=classify(message)[1])

    def _on_given_up(self, now: float, given_up: list[Undelivered]) -> None:
        for one in given_up:
            if self.client.on_given_up(now, one.peer, one.cause):
                self._find_home(now)
                self.station.arm("changed", LOOK_AGAIN_S)
            if self.broker is not None:
                self.broker.on_given_up(now, one.peer, one.message, one.cause)
                self.station.arm("tend", self._settings.resend_s)
