"""The layers of one node: discovery (if by beacons), a router (if the protocol uses one), the protocol.

A world makes one port per layer and hands every input to the stack with the layer it belongs to. Between layers nothing
is called directly: what one layer tells another waits until the handler that said it has returned.

Every handler is entered in `enter`, and nowhere else, so that is the one place where a world can put something around
a handler. The only exception is named: `receiver`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

from carrycast.core.model import Advertisement, Event, Failure, Processor, Request, Subscription
from carrycast.core.model.identity import EventId, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol.discovery import BeaconDiscovery, DiscoveryUpcalls
from carrycast.core.protocol.host import Host
from carrycast.core.protocol.machine import Router, RouterUpcalls, Settings, StateMachine
from carrycast.core.protocol.optional import (
    AcknowledgesReplicas,
    Advertises,
    AnswersRequests,
    RunsProcessors,
    UsesRouter,
)
from carrycast.core.protocol.plan import StackPlan
from carrycast.core.protocol.port import Fact, Interface, Link, Place, Port, TimerKey, Token
from carrycast.core.wire import LEASE_OVER, DecodeError, Layer, Message, Parcel, carried

Receiver: TypeAlias = Callable[[float, NodeId, Message, Interface], None]
"""A handler of messages: now, sender, message, interface."""

LinkObserver: TypeAlias = Callable[[Link, Failure | None], None]
"""Told of each link that discovery has found (None) or lost (why), before the layers above are."""


class Stack(RouterUpcalls, DiscoveryUpcalls):
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
        link_observer: LinkObserver | None = None,
    ) -> None:
        self.plan = plan
        self._node = node
        self._by_layer: list[StateMachine | None] = [None] * len(Layer)
        self._cost_s = cost_s
        self._link_observer = link_observer
        self._waiting: deque[tuple[Layer, Callable[..., None], tuple[Any, ...]]] = deque()
        self._machines: list[tuple[Layer, StateMachine]] = []
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
        if self.router is not None:
            protocol_host.attach_router(self.router.offers, self.router.hops_to)
        protocol_host.set_codec(plan.codecs[Layer.DISSEMINATION])
        self.protocol = plan.protocol(node, plan.settings, self._port, protocol_host, protocol_rng)
        self._place(Layer.DISSEMINATION, self.protocol)
        self._above = [(layer, machine) for layer, machine in self._machines if layer is not Layer.DISCOVERY]
        """Those that are told of links."""

    def _place(self, layer: Layer, machine: StateMachine) -> None:
        self._machines.append((layer, machine))
        self._by_layer[layer] = machine

    def _machine(self, layer: Layer) -> StateMachine:
        machine = self._by_layer[layer]
        assert machine is not None
        return machine

    # Where handlers are entered.

    def enter(self, now: float, layer: Layer, handler: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """Run one handler of one layer; False if it failed.

        A world that must do something around each handler overrides this. If the handler fails it takes back what that
        has told the other layers: `take_back` all that came after `told` was asked before.
        """
        handler(now, *arguments)
        return True

    @property
    def queued_calls(self) -> int:
        """How much has been told that is not passed on yet."""
        return len(self._waiting)

    def discard_calls_after(self, queued_calls: int) -> None:
        """Forget what was told after so much had been."""
        while len(self._waiting) > queued_calls:
            self._waiting.pop()

    def receiver(self, layer: Layer) -> Receiver | None:
        """A layer's own handler of messages, for a world that needs nothing between a message and its handler.

        None where something must come between: `enter` does more than to call. Where a layer has another to tell, what
        it told is passed on when its handler has returned, as ever.
        """
        if type(self).enter is not Stack.enter:
            return None
        handler, waiting, settle = self._machine(layer).on_message, self._waiting, self._settle
        if layer is Layer.DISSEMINATION and self.router is None:
            return handler

        def receive(now: float, sender: NodeId, message: Message, via: Interface) -> None:
            handler(now, sender, message, via)
            if waiting:
                settle(now)

        return receive

    def _input(self, now: float, layer: Layer, handler: Callable[..., None], *arguments: object) -> bool:
        """A handler, and whatever follows from it in the other layers; False if the handler itself failed."""
        went_well = self.enter(now, layer, handler, arguments)
        if self._waiting:
            self._settle(now)
        return went_well

    def _settle(self, now: float) -> None:
        """Pass on what layers have told each other, until nothing waits."""
        waiting = self._waiting
        while waiting:
            layer, handler, arguments = waiting.popleft()
            self.enter(now, layer, handler, arguments)

    def _tell(self, layer: Layer, handler: Callable[..., None], *arguments: object) -> None:
        """To be entered when the handler that says it has returned."""
        self._waiting.append((layer, handler, arguments))

    # Inputs from the world.

    def on_start(self, now: float) -> None:
        """Bottom first, so that a layer may use the one beneath."""
        for layer, machine in self._machines:
            self._input(now, layer, machine.on_start)

    def on_stop(self, now: float) -> None:
        """Top first."""
        for layer, machine in reversed(self._machines):
            self._input(now, layer, machine.on_stop)

    def on_message(self, now: float, layer: Layer, sender: NodeId, message: Message, via: Interface) -> None:
        """A message of one layer."""
        self._input(now, layer, self._machine(layer).on_message, sender, message, via)

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A message of the routing layer that is meant for another node."""
        if self.router is not None:
            self._input(now, Layer.ROUTING, self.router.on_overheard, sender, message, via)

    def on_timer(self, now: float, layer: Layer, key: TimerKey) -> None:
        """A timer of one layer."""
        machine = self._by_layer[layer]
        assert machine is not None
        self.enter(now, layer, machine.on_timer, (key,))
        if self._waiting:
            self._settle(now)

    def on_sent(self, now: float, layer: Layer, token: Token, failure: Failure | None) -> None:
        """The outcome of a send of one layer."""
        self._input(now, layer, self._machine(layer).on_sent, token, failure)

    def on_retune(self, now: float, layer: Layer, settings: Settings) -> bool:
        """The settings of one layer are others; False if it failed on them."""
        return self._input(now, layer, self._machine(layer).on_retune, settings)

    def machine(self, layer: Layer) -> StateMachine | None:
        """The machine of a layer, if there is one."""
        return self._by_layer[layer]

    def on_link_up(self, now: float, link: Link) -> None:
        """For the router, then for the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_up, link)

    def on_link_changed(self, now: float, link: Link) -> None:
        """For the router, then for the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_changed, link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        """For the router, then for the protocol."""
        for layer, machine in self._above:
            self._input(now, layer, machine.on_link_down, link, cause)

    def on_neighbor_failed(self, now: float, neighbor: NodeId, interface: Interface, cause: Failure) -> None:
        """The world could not reach a neighbor, or saw it start anew: with discovery by beacons, its link is lost until
        the next one. The sends that failed are told before."""
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
        """An application waits until so many neighbors hold an event; only for protocols that can tell."""
        assert isinstance(self.protocol, AcknowledgesReplicas)
        self._input(now, Layer.DISSEMINATION, self.protocol.on_await_replicas, event, copies)

    def on_processor(self, now: float, processor: Processor) -> None:
        """The node can run a processor; protocols that place none are not told."""
        if isinstance(self.protocol, RunsProcessors):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_processor, processor)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of `port.process`."""
        assert isinstance(self.protocol, RunsProcessors)
        self._input(now, Layer.DISSEMINATION, self.protocol.on_processed, token, state, events, cost_s, error)

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """An application advertises; protocols that make no use of it are not told."""
        if isinstance(self.protocol, Advertises):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_advertise, advertisement)

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        """An advertisement ends."""
        if isinstance(self.protocol, Advertises):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_unadvertise, advertisement)

    def on_request(self, now: float, request: Request) -> None:
        """An application asks for stored events; with a protocol that has none, nothing is found, at once."""
        protocol = self.protocol
        answer = protocol.on_request if isinstance(protocol, AnswersRequests) else self._find_nothing
        self._input(now, Layer.DISSEMINATION, answer, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        """Nobody waits for the answers to a request any more."""
        if isinstance(self.protocol, AnswersRequests):
            self._input(now, Layer.DISSEMINATION, self.protocol.on_request_canceled, request)

    def _find_nothing(self, now: float, request: Request) -> None:
        self._port.close_request(request.id, complete=False)

    # What a layer says to another.

    def route(self, target: NodeId | Place, message: Message) -> int:
        """What the protocol's port does with `route`; how many bytes the router is handed, 0 for the own node."""
        router, parcel = self._packed(message)
        if self._is_here(target):
            self.deliver_packet(self._node, parcel, 0)
            return 0
        self._tell(Layer.ROUTING, router.on_route, target, parcel)
        return len(parcel.body)

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> int:
        """What the protocol's port does with `route_each`; the router is handed one parcel for all that are away."""
        router, parcel = self._packed(message)
        away = [target for target in targets if not self._is_here(target)]
        if len(away) < len(targets):
            self.deliver_packet(self._node, parcel, 0)
        if not away:
            return 0
        self._tell(Layer.ROUTING, router.on_route_each, away, parcel)
        return len(parcel.body)

    def _packed(self, message: Message) -> tuple[Router, Parcel]:
        if self.router is None:
            raise TypeError(f"{self.plan.protocol.name} uses a router, but its stack has none")
        traffic, event = carried(message)
        return self.router, Parcel(self.plan.codecs[Layer.DISSEMINATION].encode(message), traffic, event)

    def _is_here(self, target: NodeId | Place) -> bool:
        return target == self._node or (isinstance(target, Place) and target.node == self._node)

    def deliver_packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        self._tell(Layer.DISSEMINATION, self._hand_up, origin, parcel, hops)

    def report_unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        self._tell(Layer.DISSEMINATION, self._hand_back, target, parcel)

    def report_link_up(self, link: Link) -> None:
        self._tell(Layer.DISCOVERY, self._observe_link, link, None)
        for layer, machine in self._above:
            self._tell(layer, machine.on_link_up, link)

    def report_link_down(self, link: Link, cause: Failure) -> None:
        self._tell(Layer.DISCOVERY, self._observe_link, link, cause)
        for layer, machine in self._above:
            self._tell(layer, machine.on_link_down, link, cause)

    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        return self._cost_s(neighbor, interface)

    def _observe_link(self, now: float, link: Link, lost: Failure | None) -> None:
        if self._link_observer is not None:
            self._link_observer(link, lost)

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
