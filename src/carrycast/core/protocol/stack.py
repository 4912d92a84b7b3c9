"""The protocol stack of one node: discovery (with beacons), a router (if the protocol uses one), the protocol.

An environment creates one port per layer, and passes every input to the stack together with its layer. A layer never
calls another directly: its call is queued until the current handler has returned.

Every handler is called in `run_handler`, so that an environment can wrap all handlers by overriding one method. The
only exception is `receiver`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from random import Random
from typing import Any, NamedTuple, TypeAlias

from carrycast.core.model import (
    Advertisement,
    Event,
    EventId,
    Failure,
    NodeId,
    Processor,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol.discovery import BeaconDiscovery, BeaconSettings, DiscoveryUpcalls
from carrycast.core.protocol.host import Capability, Host
from carrycast.core.protocol.machine import Protocol, Router, RouterUpcalls, Settings, StateMachine
from carrycast.core.protocol.optional import (
    AcknowledgesReplicas,
    Advertises,
    AnswersRequests,
    RunsProcessors,
    UsesRouter,
)
from carrycast.core.protocol.port import Fact, Interface, Link, Place, Port, TimerKey, Token
from carrycast.core.wire import LEASE_EXPIRED, Codec, DecodeError, Layer, Message, Parcel, classify


class StackPlan:
    """The state machines of a stack and their settings; the same for every node of a run."""

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
        self.make_discovery: Callable[..., BeaconDiscovery] = BeaconDiscovery
        """Makes the discovery of a node. An environment may have its own implementation of the class."""
        self.overhears = False
        """Whether the router uses promiscuous mode."""
        if router is not None and router_settings is not None:
            self.overhears = Capability.OVERHEARING in router.needs | router_settings.needs()
        if router is not None:
            self.codecs[Layer.ROUTING] = Codec(Layer.ROUTING, router.name, router.messages)
        if beacons is not None:
            self.codecs[Layer.DISCOVERY] = Codec(Layer.DISCOVERY, BeaconDiscovery.name, BeaconDiscovery.messages)


class StackParts(NamedTuple):
    """The inside of a stack, for an environment that calls the handlers without the stack, which is faster.

    After each handler it calls `run_queued` if there are queued calls.
    """

    machines: Mapping[Layer, StateMachine]
    queued: Sized
    run_queued: Callable[[float], None]


Receiver: TypeAlias = Callable[[float, NodeId, Message, Interface], None]
"""A message handler: now, sender, message, interface."""

LinkObserver: TypeAlias = Callable[[Link, Failure | None], None]
"""Called for each link that discovery found (None) or lost (the cause), before the layers above are."""


class Stack(RouterUpcalls, DiscoveryUpcalls):
    """The state machines of one node and the calls between them."""

    def __init__(
        self,
        plan: StackPlan,
        node: NodeId,
        ports: Callable[[Layer], Port],
        host: Callable[[Layer], Host],
        rng: Callable[[Layer], Random],
        interfaces: tuple[Interface, ...],
        cost_s: Callable[[NodeId, Interface], float],
        link_observer: LinkObserver | None = None,
    ) -> None:
        self.plan = plan
        self._node = node
        self._by_layer: list[StateMachine | None] = [None] * len(Layer)
        self._cost_s = cost_s
        self._link_observer = link_observer
        self._queued: deque[tuple[Layer, Callable[..., None], tuple[Any, ...]]] = deque()
        self._machines: list[tuple[Layer, StateMachine]] = []
        self.discovery: BeaconDiscovery | None = None
        self.router: Router | None = None

        def parts(layer: Layer) -> tuple[Port, Host, Random]:
            return ports(layer), host(layer), rng(layer)

        if plan.beacons is not None:
            self.discovery = plan.make_discovery(node, plan.beacons, *parts(Layer.DISCOVERY), self, interfaces)
            self._place(Layer.DISCOVERY, self.discovery)
        if plan.router is not None:
            assert plan.router_settings is not None
            self.router = plan.router(node, plan.router_settings, *parts(Layer.ROUTING), self)
            self._place(Layer.ROUTING, self.router)
        self._port, protocol_host, protocol_rng = parts(Layer.DISSEMINATION)
        if self.router is not None:
            protocol_host.attach_router(self.router.offers, self.router.hops_to)
        protocol_host.set_codec(plan.codecs[Layer.DISSEMINATION])
        self.protocol = plan.protocol(node, plan.settings, self._port, protocol_host, protocol_rng)
        self._place(Layer.DISSEMINATION, self.protocol)
        self._above = [(layer, machine) for layer, machine in self._machines if layer is not Layer.DISCOVERY]
        """The layers above discovery, which receive link changes."""

    def _place(self, layer: Layer, machine: StateMachine) -> None:
        self._machines.append((layer, machine))
        self._by_layer[layer] = machine

    def _machine(self, layer: Layer) -> StateMachine:
        machine = self._by_layer[layer]
        assert machine is not None
        return machine

    # Handlers.

    def run_handler(self, now: float, layer: Layer, handler: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """Run one handler of one layer; False if it failed.

        An environment overrides this to wrap every handler. If the handler fails, it discards the handler's calls to
        other layers: `discard_calls_after` the number of `queued_calls` before the handler.
        """
        handler(now, *arguments)
        return True

    @property
    def queued_calls(self) -> int:
        """The number of queued calls between layers."""
        return len(self._queued)

    def discard_calls_after(self, count: int) -> None:
        """Discard the queued calls after the first `count`."""
        while len(self._queued) > count:
            self._queued.pop()

    def receiver(self, layer: Layer) -> Receiver | None:
        """A layer's message handler, for an environment that calls it without `on_message`, which is faster.

        None if `run_handler` is overridden. Calls to other layers are passed on after the handler, as usual.
        """
        if type(self).run_handler is not Stack.run_handler:
            return None
        handler, queued, run_queued = self._machine(layer).on_message, self._queued, self._run_queued
        if layer is Layer.DISSEMINATION and self.router is None:
            return handler

        def receive(now: float, sender: NodeId, message: Message, via: Interface) -> None:
            handler(now, sender, message, via)
            if queued:
                run_queued(now)

        return receive

    def parts(self) -> StackParts:
        """The machines and the queue of calls between them. Not for an environment that overrides `run_handler`."""
        assert type(self).run_handler is Stack.run_handler
        return StackParts(dict(self._machines), self._queued, self._run_queued)

    def _input(self, now: float, layer: Layer, handler: Callable[..., None], *arguments: object) -> bool:
        """Run a handler, then the calls it made to other layers; False if the handler failed."""
        went_well = self.run_handler(now, layer, handler, arguments)
        if self._queued:
            self._run_queued(now)
        return went_well

    def _run_queued(self, now: float) -> None:
        """Run the queued calls between layers until none is left."""
        queued = self._queued
        while queued:
            layer, handler, arguments = queued.popleft()
            self.run_handler(now, layer, handler, arguments)

    def _queue_call(self, layer: Layer, handler: Callable[..., None], *arguments: object) -> None:
        """Queue a call to another layer until the current handler has returned."""
        self._queued.append((layer, handler, arguments))

    # Inputs from the environment.

    def on_start(self, now: float) -> None:
        """Start the layers bottom first, so that a layer can use the one below."""
        for layer, machine in self._machines:
            self._input(now, layer, machine.on_start)

    def on_stop(self, now: float) -> None:
        """Stop the layers top first."""
        for layer, machine in reversed(self._machines):
            self._input(now, layer, machine.on_stop)

    def on_message(self, now: float, layer: Layer, sender: NodeId, message: Message, via: Interface) -> None:
        """A message of one layer."""
        self._input(now, layer, self._machine(layer).on_message, sender, message, via)

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A message of the routing layer to another node (promiscuous mode)."""
        if self.router is not None:
            self._input(now, Layer.ROUTING, self.router.on_overheard, sender, message, via)

    def on_timer(self, now: float, layer: Layer, key: TimerKey) -> None:
        """A timer of one layer."""
        machine = self._by_layer[layer]
        assert machine is not None
        self.run_handler(now, layer, machine.on_timer, (key,))
        if self._queued:
            self._run_queued(now)

    def on_sent(self, now: float, layer: Layer, token: Token, failure: Failure | None) -> None:
        """The outcome of a send of one layer."""
        self._input(now, layer, self._machine(layer).on_sent, token, failure)

    def on_retune(self, now: float, layer: Layer, settings: Settings) -> bool:
        """New settings for one layer; False if the handler failed."""
        return self._input(now, layer, self._machine(layer).on_retune, settings)

    def machine(self, layer: Layer) -> StateMachine | None:
        """The machine of a layer, if there is one."""
        return self._by_layer[layer]

    def on_link_up(self, now: float, link: Link) -> None:
        """Passed to the router, then to the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_up, link)

    def on_link_changed(self, now: float, link: Link) -> None:
        """Passed to the router, then to the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_changed, link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        """Passed to the router, then to the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_down, link, cause)

    def on_neighbor_failed(self, now: float, neighbor: NodeId, interface: Interface, cause: Failure) -> None:
        """The environment could not reach a neighbor, or observed its restart: with beacons, the link is down until the
        next beacon. `on_sent` for the failed sends comes before."""
        if self.discovery is not None:
            self._input(now, Layer.DISCOVERY, self.discovery.on_neighbor_failed, neighbor, interface, cause)

    def on_publish(self, now: float, event: Event) -> bool:
        """An application publishes; False if the protocol failed on it."""
        return self._input(now, Layer.DISSEMINATION, self.protocol.on_publish, event)

    def on_subscribe(self, now: float, subscription: Subscription) -> bool:
        """An application subscribes; False if the protocol failed on it."""
        return self._input(now, Layer.DISSEMINATION, self.protocol.on_subscribe, subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription ends."""
        self._input(now, Layer.DISSEMINATION, self.protocol.on_unsubscribe, subscription)

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        """A publisher waits for replicas of an event; only for protocols that acknowledge replicas."""
        assert isinstance(self.protocol, AcknowledgesReplicas)
        self._input(now, Layer.DISSEMINATION, self.protocol.on_await_replicas, event, copies)

    def on_processor(self, now: float, processor: Processor) -> None:
        """The node can run a processor; passed only to protocols that run processors."""
        if isinstance(self.protocol, RunsProcessors):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_processor, processor)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of `port.process`."""
        assert isinstance(self.protocol, RunsProcessors)
        self._input(now, Layer.DISSEMINATION, self.protocol.on_processed, token, state, events, cost_s, error)

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """An application advertises; passed only to protocols that use advertisements."""
        if isinstance(self.protocol, Advertises):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_advertise, advertisement)

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        """An advertisement ends."""
        if isinstance(self.protocol, Advertises):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_unadvertise, advertisement)

    def on_request(self, now: float, request: Request) -> None:
        """An application requests stored events. With a protocol without retrieval, the request is closed at once."""
        protocol = self.protocol
        answer = protocol.on_request if isinstance(protocol, AnswersRequests) else self._close_unanswered
        self._input(now, Layer.DISSEMINATION, answer, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        """An application canceled a request."""
        if isinstance(self.protocol, AnswersRequests):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_request_canceled, request)

    def _close_unanswered(self, now: float, request: Request) -> None:
        self._port.close_request(request.id, complete=False)

    # Calls between layers.

    def route(self, target: NodeId | Place, message: Message) -> int:
        """Implements the port's `route`. Returns the bytes passed to the router, 0 if the target is this node."""
        router, parcel = self._pack(message)
        if self._is_here(target):
            self.deliver_packet(self._node, parcel, 0)
            return 0
        self._queue_call(Layer.ROUTING, router.on_route, target, parcel)
        return len(parcel.body)

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> int:
        """Implements the port's `route_each`: the router gets one parcel for all remote targets."""
        router, parcel = self._pack(message)
        remote = [target for target in targets if not self._is_here(target)]
        if len(remote) < len(targets):
            self.deliver_packet(self._node, parcel, 0)
        if not remote:
            return 0
        self._queue_call(Layer.ROUTING, router.on_route_each, remote, parcel)
        return len(parcel.body)

    def _pack(self, message: Message) -> tuple[Router, Parcel]:
        if self.router is None:
            raise TypeError(f"{self.plan.protocol.name} uses a router, but its stack has none")
        traffic, event = classify(message)
        return self.router, Parcel(self.plan.codecs[Layer.DISSEMINATION].encode(message), traffic, event)

    def _is_here(self, target: NodeId | Place) -> bool:
        return target == self._node or (isinstance(target, Place) and target.node == self._node)

    def deliver_packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        self._queue_call(Layer.DISSEMINATION, self._deliver_packet, origin, parcel, hops)

    def report_unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        self._queue_call(Layer.DISSEMINATION, self._report_unreachable, target, parcel)

    def report_link_up(self, link: Link) -> None:
        self._queue_call(Layer.DISCOVERY, self._observe_link, link, None)
        for layer, machine in self._above:
            self._queue_call(layer, machine.on_link_up, link)

    def report_link_down(self, link: Link, cause: Failure) -> None:
        self._queue_call(Layer.DISCOVERY, self._observe_link, link, cause)
        for layer, machine in self._above:
            self._queue_call(layer, machine.on_link_down, link, cause)

    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        return self._cost_s(neighbor, interface)

    def _observe_link(self, now: float, link: Link, lost: Failure | None) -> None:
        if self._link_observer is not None:
            self._link_observer(link, lost)

    def _deliver_packet(self, now: float, origin: NodeId, parcel: Parcel, hops: int) -> None:
        protocol = self.protocol
        assert isinstance(protocol, UsesRouter)
        message = self._unpack(origin, parcel)
        if message is not None:
            protocol.on_packet(now, origin, message, hops)

    def _report_unreachable(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        protocol = self.protocol
        assert isinstance(protocol, UsesRouter)
        message = self._unpack(self._node, parcel)
        if message is not None:
            protocol.on_unreachable(now, target, message)

    def _unpack(self, origin: NodeId, parcel: Parcel) -> Message | None:
        """The message in a parcel, aged by the parcel's waiting time; None, with a recorded drop, if it cannot be
        decoded or its lease expired. Also for parcels that a router returns: the protocol may send them again.
        """
        try:
            message = self.plan.codecs[Layer.DISSEMINATION].decode(parcel.body)
        except DecodeError as error:
            self._port.note(Fact("drop", peer=origin, reason=str(error.flaw)))
            return None
        aged = message.age_by(parcel.waited_s)
        if aged is None:
            self._port.note(Fact("drop", classify(message)[1], origin, LEASE_EXPIRED))
        return aged
