"""Runs a stack on an event loop: inputs go to handlers, effects go out when a handler has returned."""

import asyncio
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from driftcast.live.frame import MAX_BODY_BYTES
from driftcast.live.guard import GuardedStack, StackWorld
from driftcast.live.interface import InterfaceConfig, InterfaceUser, LiveInterface, Refusal, Unicast
from driftcast.live.record import LOG, Record
from driftcast.live.store import NodeStore
from driftcast.live.transport import Transport
from driftcast.model import Event, NodeId, SubscriptionId
from driftcast.protocol import UNREACHABLE, BufferedPort, Host, Interface, Link, Protocol, StackPlan, TimerKey, Token
from driftcast.protocol.effects import (
    Answer,
    Broadcast,
    CancelTimer,
    Close,
    Deliver,
    Effect,
    Note,
    Process,
    Route,
    Send,
    SetTimer,
)
from driftcast.wire import Layer, Message


class Applications(ABC):
    """What stands above the stack."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event for a local application."""

    @abstractmethod
    def process(self, job: Process) -> None:
        """User code is to be run."""


class Runtime(StackWorld, InterfaceUser):
    """The stack of one node, its timers and its interfaces. Everything happens in the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        plan: StackPlan,
        interfaces: Iterable[tuple[InterfaceConfig, Transport]],
        record: Record,
        host: Callable[[Layer], Host],
        store: NodeStore | None,
        applications: Applications,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._record = record
        self._store = store
        self._applications = applications
        self._ports = {layer: BufferedPort() for layer in Layer}
        self._timers: dict[tuple[Layer, TimerKey], asyncio.TimerHandle] = {}
        self._running = False
        self.interfaces = {
            config.name: LiveInterface(node, config, transport, plan.codecs, record, self)
            for config, transport in interfaces
        }
        self._stack = GuardedStack(
            plan,
            node,
            self._ports.__getitem__,
            host,
            lambda layer: Random(secrets.randbits(128)),
            tuple(self.interfaces),
            lambda neighbor, interface: self.interfaces[interface].cost_s(neighbor),
            self,
        )

    @property
    def protocol(self) -> Protocol:
        """The protocol at the top of the stack."""
        return self._stack.protocol

    def start(self) -> None:
        """Start to hear and to run; nothing stays open if an interface cannot be opened."""
        try:
            for interface in self.interfaces.values():
                interface.open()
        except BaseException:
            self._close_interfaces()
            raise
        self._running = True
        self._stack.on_start(self._loop.time())

    def stop(self) -> None:
        """Stop cleanly; no handler runs afterwards."""
        self._stack.on_stop(self._loop.time())
        self._running = False
        for (layer, _), timer in self._timers.items():
            timer.cancel()
            self._record.drop(layer, "timer_left")
        self._timers.clear()
        self._close_interfaces()

    def _close_interfaces(self) -> None:
        for interface in self.interfaces.values():
            interface.close()

    def run(self, handler: Callable[[float], None]) -> bool:
        """One handler of the protocol; False if it raised."""
        now = self._loop.time()
        return self._stack.run(now, Layer.DISSEMINATION, partial(handler, now))

    @property
    def links(self) -> list[Link]:
        """Every link that discovery knows, in the order of the interfaces."""
        return [
            Link(neighbor, interface.name, interface.cost_s(neighbor))
            for interface in self.interfaces.values()
            for neighbor in interface.neighbors
        ]

    # What the stack tells.

    def handled(self, layer: Layer) -> None:
        if self._store is not None:
            self._store.commit()
        for effect in self._ports[layer].take():
            self._carry_out(layer, effect)

    def failed(self, layer: Layer, error: Exception) -> None:
        self._ports[layer].take()
        if self._store is not None:
            self._store.rollback()
        LOG.error("a handler of the %s layer raised", layer.name.lower(), exc_info=error)
        self._record.drop(layer, "handler_raised")

    def linked(self, link: Link, up: bool) -> None:
        self._record.link(link, up)
        self.interfaces[link.interface].linked(link.neighbor, up)

    # Effects.

    def _carry_out(self, layer: Layer, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(layer, effect)
        elif isinstance(effect, Broadcast):
            self._broadcast(layer, effect)
        elif isinstance(effect, SetTimer):
            self._arm(layer, effect.key, effect.delay_s)
        elif isinstance(effect, CancelTimer):
            self._disarm(layer, effect.key)
        elif isinstance(effect, Deliver):
            self._applications.deliver(effect.subscription, effect.event, effect.hops)
        elif isinstance(effect, Note):
            self._record.note(layer, effect.fact)
        elif isinstance(effect, Process):
            self._applications.process(effect)
        elif isinstance(effect, Route):
            self._route(effect)
        else:
            # Nobody asks this host for stored events, so there is nobody to answer.
            assert isinstance(effect, Answer | Close)
            self._record.drop(layer, "no_such_request")

    def _send(self, layer: Layer, effect: Send) -> None:
        body = self._encoded(layer, effect.message)
        refusal: Refusal | None
        if isinstance(body, Refusal):
            refusal = body
        else:
            interface = self._chosen(effect.target, effect.via)
            unicast = Unicast(layer, effect.message, effect.target, len(body), effect.token)
            refusal = Refusal.OUT_OF_REACH if interface is None else interface.send(unicast, body)
        if refusal is not None:
            self._record.drop(layer, refusal, effect.target, effect.message)
            if effect.token is not None:
                failure = UNREACHABLE if refusal is Refusal.OUT_OF_REACH else str(refusal)
                # Told from the loop, never from inside the handler that is still sending.
                self._loop.call_soon(self._tell_outcome, layer, effect.token, failure)

    def _chosen(self, target: NodeId, via: Interface | None) -> LiveInterface | None:
        """A named interface; else the cheapest with a link to a neighbor, or over which the node was ever heard."""
        if via is not None:
            return self.interfaces.get(via)
        interfaces = self.interfaces.values()
        leading = [one for one in interfaces if target in one.neighbors]
        leading = leading or [one for one in interfaces if one.leads_to(target)]
        return min(leading, key=lambda interface: interface.cost_s(target), default=None)

    def _broadcast(self, layer: Layer, effect: Broadcast) -> None:
        body = self._encoded(layer, effect.message)
        interfaces = [one for one in self.interfaces.values() if effect.on in (None, one.name)]
        if isinstance(body, Refusal):
            self._record.drop(layer, body, None, effect.message)
        elif not interfaces:
            self._record.drop(layer, Refusal.OUT_OF_REACH, None, effect.message)
        else:
            for interface in interfaces:
                interface.broadcast(layer, effect.message, body)

    def _route(self, effect: Route) -> None:
        try:
            self._stack.route(effect.target, effect.message)
        except Exception as error:
            LOG.error("a message could not be routed", exc_info=error)
            self._record.drop(Layer.DISSEMINATION, "not_routed", None, effect.message)

    def _encoded(self, layer: Layer, message: Message) -> bytes | Refusal:
        """The wire frame, or why there is none."""
        try:
            body = self._plan.codecs[layer].encode(message)
        except Exception as error:
            LOG.error("a message of the %s layer cannot be encoded", layer.name.lower(), exc_info=error)
            return Refusal.NOT_ENCODABLE
        return Refusal.TOO_LONG if len(body) > MAX_BODY_BYTES else body

    def _arm(self, layer: Layer, key: TimerKey, delay_s: float) -> None:
        self._disarm(layer, key)
        if delay_s != math.inf:
            self._timers[layer, key] = self._loop.call_later(max(0.0, delay_s), self._on_timer, layer, key)

    def _disarm(self, layer: Layer, key: TimerKey) -> None:
        timer = self._timers.pop((layer, key), None)
        if timer is not None:
            timer.cancel()

    def _on_timer(self, layer: Layer, key: TimerKey) -> None:
        del self._timers[layer, key]
        self._stack.on_timer(self._loop.time(), layer, key)

    def _tell_outcome(self, layer: Layer, token: Token, failure: str) -> None:
        if self._running:
            self._stack.on_sent(self._loop.time(), layer, token, failure)

    # What an interface tells.

    def heard(self, layer: Layer, sender: NodeId, message: Message, via: Interface) -> None:
        self._stack.on_message(self._loop.time(), layer, sender, message, via)

    def finished(self, unicast: Unicast, ok: bool) -> None:
        if not ok:
            self._record.drop(unicast.layer, "unacknowledged", unicast.target, unicast.message)
        if unicast.token is not None:
            self._tell_outcome(unicast.layer, unicast.token, "" if ok else UNREACHABLE)

    def unreachable(self, neighbor: NodeId, via: Interface) -> None:
        self._stack.on_unreachable(self._loop.time(), neighbor, via)

    def cost_changed(self, link: Link) -> None:
        self._record.link_changed(link)
        self._stack.on_link_changed(self._loop.time(), link)
