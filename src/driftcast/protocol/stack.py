"""The layers of one node: discovery (if by beacons), a router (if the protocol uses one), the protocol.

A world makes one port per layer and hands every input to the stack with the layer it belongs to. Between layers nothing
is called directly: what one layer tells another waits until the handler that said it has returned.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from driftcast.model import (
    Advertisement,
    Event,
    NodeId,
    Processor,
    ProcessorId,
    Request,
    Subscription,
    SubscriptionId,
)
from driftcast.protocol.discovery import BeaconDiscovery, BeaconSettings, Neighborhood
from driftcast.protocol.host import Host
from driftcast.protocol.machine import Protocol, Router, Settings, StateMachine, Upward
from driftcast.protocol.optional import Advertises, AnswersRequests, RunsProcessors, UsesRouter
from driftcast.protocol.port import Fact, Interface, Link, Place, Port, TimerKey, Token
from driftcast.wire import LEASE_OVER, Codec, DecodeError, Layer, Message, Parcel, carried


class StackPlan:
    """Which machines with which settings; the same for every node of a run."""

    def __init__(
        self,
        protocol: type[Protocol],
        settings: Settings,
        router: type[Router] | None = None,
        router_settings: Settings | None = None,
        beacons: BeaconSettings | None = None,
    ) -> None:
        self.protocol = protocol
        self.settings = settings
        self.router = router
        self.router_settings = router_settings
        self.beacons = beacons
        self.codecs: dict[Layer, Codec] = {
            Layer.DISSEMINATION: Codec(Layer.DISSEMINATION, protocol.name, protocol.messages)
        }
        if router is not None:
            self.codecs[Layer.ROUTING] = Codec(Layer.ROUTING, router.name, router.messages)
        if beacons is not None:
            self.codecs[Layer.DISCOVERY] = Codec(Layer.DISCOVERY, BeaconDiscovery.name, BeaconDiscovery.messages)


class Stack(Upward, Neighborhood):
    """The machines of one node, wired together."""

    def __init__(
        self,
        plan: StackPlan,
        node: NodeId,
        ports: Callable[[Layer], Port],
        host: Callable[[Layer], Host],
        rng: Callable[[Layer], Random],
        interfaces: tuple[Interface, ...],
        cost_s: Callable[[NodeId, Interface], float],
        witness: Callable[[Link, bool], None] | None = None,
    ) -> None:
        """`witness` is told of each link that discovery finds or loses, before the layers above are."""
        self.plan = plan
        self._node = node
        self._by_layer: list[StateMachine | None] = [None] * len(Layer)
        self._cost_s = cost_s
        self._witness = witness
        self._waiting: deque[Callable[[float], None]] = deque()
        self._machines: list[StateMachine] = []
        self.discovery: BeaconDiscovery | None = None
        self.router: Router | None = None

        def parts(layer: Layer) -> tuple[Port, Host, Random]:
            return ports(layer), host(layer), rng(layer)

        if plan.beacons is not None:
            self.discovery = BeaconDiscovery(node, plan.beacons, *parts(Layer.DISCOVERY), self, interfaces)
            self._place(Layer.DISCOVERY, self.discovery)
        if plan.router is not None:
            assert plan.router_settings is not None
            self.router = plan.router(node, plan.router_settings, *parts(Layer.ROUTING), self)
            self._place(Layer.ROUTING, self.router)
        self._port, protocol_host, protocol_rng = parts(Layer.DISSEMINATION)
        self.protocol = plan.protocol(node, plan.settings, self._port, protocol_host, protocol_rng)
        self._place(Layer.DISSEMINATION, self.protocol)

    def _place(self, layer: Layer, machine: StateMachine) -> None:
        self._machines.append(machine)
        self._by_layer[layer] = machine

    def _machine(self, layer: Layer) -> StateMachine:
        machine = self._by_layer[layer]
        assert machine is not None
        return machine

    # Inputs from the world.

    def on_start(self, now: float) -> None:
        """Bottom first, so that a layer may use the one beneath."""
        for machine in self._machines:
            machine.on_start(now)
            self.settle(now)

    def on_stop(self, now: float) -> None:
        """Top first."""
        for machine in reversed(self._machines):
            machine.on_stop(now)
            self.settle(now)

    def on_message(self, now: float, layer: Layer, sender: NodeId, message: Message, via: Interface) -> None:
        """A message of one layer."""
        self._machine(layer).on_message(now, sender, message, via)
        self.settle(now)

    def on_timer(self, now: float, layer: Layer, key: TimerKey) -> None:
        """A timer of one layer."""
        self._machine(layer).on_timer(now, key)
        self.settle(now)

    def on_sent(self, now: float, layer: Layer, token: Token, failure: str) -> None:
        """The outcome of a send of one layer."""
        self._machine(layer).on_sent(now, token, failure)
        self.settle(now)

    def on_link_up(self, now: float, link: Link) -> None:
        """For the router, then for the protocol."""
        if self.router is not None:
            self.router.on_link_up(now, link)
        self.protocol.on_link_up(now, link)
        self.settle(now)

    def on_link_changed(self, now: float, link: Link) -> None:
        """For the router, then for the protocol."""
        if self.router is not None:
            self.router.on_link_changed(now, link)
        self.protocol.on_link_changed(now, link)
        self.settle(now)

    def on_link_down(self, now: float, link: Link) -> None:
        """For the router, then for the protocol."""
        if self.router is not None:
            self.router.on_link_down(now, link)
        self.protocol.on_link_down(now, link)
        self.settle(now)

    def on_unreachable(self, now: float, neighbor: NodeId, interface: Interface) -> None:
        """The world failed to reach a neighbor: with discovery by beacons, its link is lost until the next one."""
        if self.discovery is not None:
            self.discovery.on_unreachable(neighbor, interface)
            self.settle(now)

    def on_publish(self, now: float, event: Event) -> None:
        """An application publishes."""
        self.protocol.on_publish(now, event)
        self.settle(now)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        """An application subscribes."""
        self.protocol.on_subscribe(now, subscription)
        self.settle(now)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription ends."""
        self.protocol.on_unsubscribe(now, subscription)
        self.settle(now)

    def on_processor(self, now: float, processor: Processor) -> None:
        """The node can run a processor; protocols that place none are not told."""
        if isinstance(self.protocol, RunsProcessors):
            self.protocol.on_processor(now, processor)
            self.settle(now)

    def on_processor_gone(self, now: float, processor: ProcessorId) -> None:
        """The node can no longer run it."""
        if isinstance(self.protocol, RunsProcessors):
            self.protocol.on_processor_gone(now, processor)
            self.settle(now)

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """An application advertises; protocols that make no use of it are not told."""
        if isinstance(self.protocol, Advertises):
            self.protocol.on_advertise(now, advertisement)
            self.settle(now)

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        """An advertisement ends."""
        if isinstance(self.protocol, Advertises):
            self.protocol.on_unadvertise(now, advertisement)
            self.settle(now)

    def on_request(self, now: float, request: Request) -> None:
        """An application asks for stored events; with a protocol that has none, nothing is found, at once."""
        if isinstance(self.protocol, AnswersRequests):
            self.protocol.on_request(now, request)
            self.settle(now)
        else:
            self._port.close(request.id, complete=False)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of `port.process`."""
        assert isinstance(self.protocol, RunsProcessors)
        self.protocol.on_processed(now, token, state, events, cost_s, error)
        self.settle(now)

    def abandon(self) -> None:
        """A handler raised: what it told other layers before is not passed on."""
        self._waiting.clear()

    def route(self, target: NodeId | Place, message: Message) -> None:
        """What the protocol's port does with `route`."""
        if self.router is None:
            raise TypeError(f"{self.plan.protocol.name} uses a router, but its stack has none")
        router, node = self.router, self._node
        traffic, event = carried(message)
        parcel = Parcel(self.plan.codecs[Layer.DISSEMINATION].encode(message), traffic, event)
        if target == node or (isinstance(target, Place) and target.node == node):
            self.packet(node, parcel, 0)
        else:
            self._waiting.append(lambda now: router.on_route(now, target, parcel))

    def settle(self, now: float) -> None:
        """Pass on what layers have told each other, until nothing waits."""
        while self._waiting:
            self._waiting.popleft()(now)

    # What the router and discovery say.

    def packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        self._waiting.append(lambda now: self._hand_up(now, origin, parcel, hops))

    def unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        self._waiting.append(lambda now: self._hand_back(now, target, parcel))

    def link_found(self, link: Link) -> None:
        if self._witness is not None:
            self._witness(link, True)
        self._waiting.append(lambda now: self.on_link_up(now, link))

    def link_lost(self, link: Link) -> None:
        if self._witness is not None:
            self._witness(link, False)
        self._waiting.append(lambda now: self.on_link_down(now, link))

    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        return self._cost_s(neighbor, interface)

    def _hand_up(self, now: float, origin: NodeId, parcel: Parcel, hops: int) -> None:
        protocol = self.protocol
        assert isinstance(protocol, UsesRouter)
        message = self._unpacked(origin, parcel)
        if message is not None:
            protocol.on_packet(now, origin, message, hops)

    def _hand_back(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        protocol = self.protocol
        assert isinstance(protocol, UsesRouter)
        message = self._unpacked(self._node, parcel)
        if message is not None:
            protocol.on_unreachable(now, target, message)

    def _unpacked(self, origin: NodeId, parcel: Parcel) -> Message | None:
        """The message in a parcel as old as it is; None, with the reason noted, if there is none or its lease is over.

        What a router gives back may have waited long as well, and the protocol may send it again.
        """
        try:
            message = self.plan.codecs[Layer.DISSEMINATION].decode(parcel.body)
        except DecodeError as error:
            self._port.note(Fact("drop", peer=origin, reason=str(error.flaw)))
            return None
        aged = message.aged(parcel.waited_s)
        if aged is None:
            self._port.note(Fact("drop", carried(message)[1], origin, LEASE_OVER))
        return aged
