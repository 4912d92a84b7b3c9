"""One simulated node: its ports, its timers, its durable store, its clock."""

import math
from collections.abc import Sequence

from carrycast.core.model import (
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    Failure,
    NodeId,
    ProcessorId,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import (
    Fact,
    GlobalView,
    Interface,
    Link,
    Place,
    Port,
    Protocol,
    Stack,
    TimerKey,
    Token,
    log_of,
)
from carrycast.core.streams import stream
from carrycast.core.wire import Layer, Message
from carrycast.sim.engine.application_host import SimApplications
from carrycast.sim.engine.computer import Computer
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.host import MemoryStore, SimHost
from carrycast.sim.engine.interfaces import Interfaces
from carrycast.sim.engine.kernel import Timer
from carrycast.trace import Kind


class SimPort(Port):
    """The port of one layer of one node."""

    __slots__ = ("_layer", "_node", "_transmit", "_transmit_each")

    def __init__(self, node: "SimNode", layer: Layer, interfaces: Interfaces) -> None:
        self._node = node
        self._layer = layer
        self._transmit = interfaces.transmit
        self._transmit_each = interfaces.transmit_each

    def send(self, target: NodeId, message: Message, via: Interface | None = None, token: Token | None = None) -> None:
        self._transmit(self._node.id, target, self._layer, message, via, token)

    def send_each(self, targets: Sequence[NodeId], message: Message) -> None:
        self._transmit_each(self._node.id, targets, self._layer, message)

    def broadcast(self, message: Message, on: Interface | None = None) -> None:
        self._transmit(self._node.id, None, self._layer, message, on, None)

    def route(self, target: NodeId | Place, message: Message) -> None:
        size_bytes = self._node.stack.route(target, message)
        if size_bytes:
            self._node.recorder.on_route(self._node.id, message, size_bytes)

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> None:
        size_bytes = self._node.stack.route_each(targets, message)
        if size_bytes:
            self._node.recorder.on_route(self._node.id, message, size_bytes)

    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        self._node.set_timer(self._layer, key, delay_s)

    def cancel_timer(self, key: TimerKey) -> None:
        self._node.cancel_timer(self._layer, key)

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self._node.recorder.on_deliver(self._node.id, subscription, event, hops)
        if self._node.applications is not None:
            self._node.applications.hosted.on_event(subscription, event, hops)

    def answer(self, request: RequestId, event: Event, hops: int) -> None:
        self._node.recorder.on_answer(self._node.id, request, event, hops)
        if self._node.applications is not None:
            self._node.applications.hosted.on_answer(request, event, hops)

    def close_request(self, request: RequestId, complete: bool) -> None:
        self._node.recorder.on_close(self._node.id, request, complete)
        if self._node.applications is not None:
            self._node.applications.hosted.on_closed(request, complete)

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        """Ignored: simulated subscribers do not wait for it, and the trace has the facts of the retrieval."""

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._node.recorder.on_fact(self._node.id, self._layer, Fact("held", event, neighbor))

    def process(self, processor: ProcessorId, state: bytes, events: Sequence[Event], token: Token) -> None:
        self._node.computer.process(processor, state, tuple(events), token)

    def note(self, fact: Fact) -> None:
        self._node.recorder.on_fact(self._node.id, self._layer, fact)


class SimNode:
    """A node across its crashes: each start makes a new stack; stores, subscriptions and counters survive."""

    def __init__(self, id: NodeId, context: RunContext, interfaces: Interfaces, view: GlobalView) -> None:
        self.id = id
        self.recorder = context.recorder
        self.clock = context.faults.clocks.get(id)
        self.up = False
        self.started_us = 0
        self.stack: Stack
        self.protocol: Protocol
        self.links: dict[tuple[NodeId, Interface], Link] = {}
        """The links reported to this node; only with oracle discovery."""
        self.subscriptions: dict[SubscriptionId, Subscription] = {}
        self.advertisements: dict[AdvertisementId, Advertisement] = {}
        self.applications: SimApplications | None = None
        self.application_numbers = 0
        self.computer = Computer(id, context, self.now, self._report_processed)
        self._context = context
        self._kernel = context.kernel
        self._interfaces = interfaces
        self._view = view
        self._installed = context.installed[id]
        self._stores: dict[Layer | str, MemoryStore] = {}
        """The durable store of each layer and each application."""
        self._timers: list[dict[TimerKey, Timer]] = [{} for _ in Layer]
        self._boot = 0

    def now(self) -> float:
        """This node's own clock."""
        true_s = self._kernel.now_s
        return true_s if self.clock is None else self.clock.offset_s + (1 + self.clock.drift) * true_s

    def start(self) -> None:
        """Boot with a new stack, which is given the store, the subscriptions, advertisements and processors."""
        boot = self._boot
        self._boot += 1

        def layer_stream(layer: Layer) -> str:
            return layer.name.lower() if boot == 0 else f"{layer.name.lower()} boot {boot}"

        self.started_us = self._kernel.now_us
        self.stack = Stack(
            self._context.stack,
            self.id,
            self._make_port,
            lambda layer: self._make_host(layer, boot),
            lambda layer: stream(self._context.seed, layer_stream(layer), self.id),
            self._interfaces.own[self.id],
            self._cost_s,
            lambda link, lost: self.recorder.on_link(self.id, link, lost),
        )
        self.protocol = self.stack.protocol
        self.up = True
        self.recorder.on_node(self.id, Kind.START)
        now = self.now()
        self.recorder.on_log(self.id, log_of(self.protocol))
        self.stack.on_start(now)
        self.recorder.on_started(self.id)
        for installed in self._installed.values():
            self.stack.on_processor(now, installed.processor)
        for subscription in self.subscriptions.values():
            self.stack.on_subscribe(now, subscription)
        for advertisement in self.advertisements.values():
            self.stack.on_advertise(now, advertisement)
        if self.id in self._context.applications:
            self.applications = SimApplications(self, self._context, lambda name: self._make_host(name, boot), boot)
            self.applications.hosted.start()

    def _make_port(self, layer: Layer) -> Port:
        return SimPort(self, layer, self._interfaces)

    def _make_host(self, owner: Layer | str, boot: int) -> SimHost:
        """Create the host of a layer or of a named application."""
        store = self._stores.setdefault(owner, MemoryStore())
        return SimHost(self.id, self._context, self._view, store, self.computer, boot)

    def stop(self) -> None:
        """Stop the node cleanly."""
        if self.applications is not None:
            self.applications.stop()
        self.stack.on_stop(self.now())
        self.recorder.on_node(self.id, Kind.STOP)
        self.up = False

    def crash(self) -> None:
        """Lose everything in memory, timers included."""
        self.up = False
        if self.applications is not None:
            self.applications.crash()
            self.applications = None
        self._forget_timers_and_links()
        self.computer.crash()
        self.recorder.on_node(self.id, Kind.CRASH)

    def _forget_timers_and_links(self) -> None:
        for timers in self._timers:
            for timer in timers.values():
                self._kernel.cancel(timer)
            timers.clear()
        self.links.clear()

    def armed_timers(self) -> list[tuple[Layer, TimerKey]]:
        """The timers that have not fired."""
        return [(layer, key) for layer in Layer for key in self._timers[layer]]

    def _report_processed(self, token: Token, state: bytes, events: list[Event], cost_s: float, error: str) -> None:
        if self.up:
            self.stack.on_processed(self.now(), token, state, events, cost_s, error)

    # Calls of applications.

    def publish(self, event: Event) -> None:
        """An application publishes an event. On a node that is down no application runs."""
        if self.up:
            self.recorder.on_event(self.id, event)
            log = log_of(self.protocol)
            # A simulated application publishes at level `stored` where the log admits that, else at `accepted`.
            if log is not None and log.rejection(event) is None:
                log.guarantee(event.id)
                self.stack.on_publish(self.now(), event)
                log.guarantee(None)
            else:
                self.stack.on_publish(self.now(), event)
            self.recorder.on_published(self.id, event.id)

    def subscribe(self, subscription: Subscription) -> None:
        """An application subscribes, now or, if the node is down, when it is up again."""
        self.subscriptions[subscription.id] = subscription
        self.recorder.on_subscribe(self.id, subscription)
        if self.up:
            self.stack.on_subscribe(self.now(), subscription)

    def unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription ends."""
        del self.subscriptions[id]
        self.recorder.on_unsubscribe(self.id, id)
        if self.up:
            self.stack.on_unsubscribe(self.now(), id)

    def command(self, application: str, verb: str, body: bytes) -> int | None:
        """Send a command to an application; None if the node runs none."""
        return None if self.applications is None else self.applications.command(application, verb, body)

    def advertise(self, advertisement: Advertisement) -> None:
        """An application advertises, now or, if the node is down, when it is up again."""
        self.advertisements[advertisement.id] = advertisement
        if self.up:
            self.stack.on_advertise(self.now(), advertisement)

    def unadvertise(self, advertisement: Advertisement) -> None:
        """An advertisement ends."""
        del self.advertisements[advertisement.id]
        if self.up:
            self.stack.on_unadvertise(self.now(), advertisement)

    def request(self, request: Request) -> None:
        """An application requests stored events. On a node that is down no application runs."""
        if self.up:
            self.recorder.on_request(self.id, request)
            self.stack.on_request(self.now(), request)

    def cancel_request(self, id: RequestId) -> None:
        """The application cancels a request."""
        if self.up:
            self.stack.on_request_canceled(self.now(), id)

    # Links with oracle discovery.

    def report_link(self, link: Link, up: bool) -> None:
        """A link has come up or gone down."""
        key = (link.neighbor, link.interface)
        if up == (key in self.links):
            return
        if up:
            self.recorder.on_link(self.id, link, None)
            self.links[key] = link
            self.stack.on_link_up(self.now(), link)
        else:
            self.recorder.on_link(self.id, link, Failure.OUT_OF_REACH)
            self.stack.on_link_down(self.now(), self.links.pop(key), Failure.OUT_OF_REACH)

    def _cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        return self._interfaces.cost_s[interface] + self._context.slow.extra_s(self.id, neighbor)

    def report_cost(self, link: Link) -> None:
        """The cost of a link has changed. Ignored if the node does not know the link."""
        discovery = self.stack.discovery
        if not self._replace_link(link) and (discovery is None or not discovery.knows(link.neighbor, link.interface)):
            return
        self.recorder.on_link_changed(self.id, link)
        self.stack.on_link_changed(self.now(), link)

    def _replace_link(self, link: Link) -> bool:
        """Replace a link that was reported; False if there is none."""
        key = (link.neighbor, link.interface)
        if key in self.links:
            self.links[key] = link
            return True
        return False

    # Timers.

    def set_timer(self, layer: Layer, key: TimerKey, delay_s: float) -> None:
        """Arm a timer, or arm it again."""
        timers = self._timers[layer]
        armed = timers.get(key)
        if armed is not None:
            self._kernel.cancel(armed)
        if delay_s == math.inf:
            timers.pop(key, None)
            return
        if self.clock is not None:
            delay_s /= 1 + self.clock.drift
        timers[key] = self._kernel.timer(delay_s, self._on_timer, (layer, key))

    def cancel_timer(self, layer: Layer, key: TimerKey) -> None:
        """Disarm a timer."""
        timer = self._timers[layer].pop(key, None)
        if timer is not None:
            self._kernel.cancel(timer)

    def _on_timer(self, armed: object) -> None:
        assert isinstance(armed, tuple)
        layer, key = armed
        del self._timers[layer][key]
        self.stack.on_timer(self._kernel.now_s if self.clock is None else self.now(), layer, key)
