"""Runs a stack on an event loop: inputs go to handlers, effects go out when a handler has returned."""

import asyncio
import enum
import math
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

from driftcast.live.address import Address
from driftcast.live.exchange import Exchange, ExchangeUser, LinkSettings
from driftcast.live.frame import MAX_BODY_BYTES, MAX_SENDERS
from driftcast.live.guard import GuardedStack, StackWorld
from driftcast.live.record import LOG, Record
from driftcast.live.store import NodeStore
from driftcast.live.transport import Transport
from driftcast.model import Event, NodeId, SubscriptionId
from driftcast.protocol import BufferedPort, Host, Interface, Link, Protocol, StackPlan, TimerKey, Token
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
from driftcast.wire import DecodeError, Flaw, Layer, Message, layer_of

INTERFACE: Interface = "udp"
"""This host has one interface."""

UNREACHABLE = "unreachable"
"""What a sender is told when a neighbor did not acknowledge or is not known at all."""


class Refusal(enum.StrEnum):
    """Why a message was not sent. These are the reasons of drops in the trace."""

    TOO_LONG = "message_too_long"
    NOT_ENCODABLE = "message_not_encodable"
    OUT_OF_REACH = "out_of_reach"
    QUEUE_FULL = "queue_full"


@dataclass(frozen=True, slots=True)
class Unicast:
    """A unicast on its way."""

    layer: Layer
    message: Message
    target: NodeId
    size_bytes: int
    token: Token | None


class Understood(NamedTuple):
    """A message that has arrived."""

    layer: Layer
    message: Message
    size_bytes: int


class Applications(ABC):
    """What stands above the stack."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event for a local application."""

    @abstractmethod
    def process(self, job: Process) -> None:
        """User code is to be run."""


class Runtime(StackWorld, ExchangeUser[Unicast, Understood]):
    """The stack of one node, its timers and its link layer. Everything happens in the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        plan: StackPlan,
        transport: Transport,
        settings: LinkSettings,
        record: Record,
        host: Callable[[Layer], Host],
        store: NodeStore | None,
        applications: Applications,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._transport = transport
        self._record = record
        self._store = store
        self._applications = applications
        self._exchange: Exchange[Unicast, Understood] = Exchange(node, transport, settings, self)
        self._ports = {layer: BufferedPort() for layer in Layer}
        self._timers: dict[tuple[Layer, TimerKey], asyncio.TimerHandle] = {}
        self._addresses: OrderedDict[NodeId, Address] = OrderedDict()
        self._apart: set[NodeId] = set()
        """Neighbors whose beacons come to this node itself: a datagram to the group may not reach them."""
        self._running = False
        self.peers: dict[Address, None] = {}
        self.neighbors: dict[NodeId, Link] = {}
        self._stack = GuardedStack(
            plan,
            node,
            self._ports.__getitem__,
            host,
            lambda layer: Random(secrets.randbits(128)),
            (INTERFACE,),
            lambda neighbor, interface: settings.cost_s,
            self,
        )

    @property
    def protocol(self) -> Protocol:
        """The protocol at the top of the stack."""
        return self._stack.protocol

    def start(self) -> None:
        """Start to hear and to run."""
        self._exchange.open()
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
        self._exchange.close()

    def run(self, handler: Callable[[float], None]) -> bool:
        """One handler of the protocol; False if it raised."""
        now = self._loop.time()
        return self._stack.run(now, Layer.DISSEMINATION, partial(handler, now))

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
        if up:
            self.neighbors[link.neighbor] = link
        else:
            self.neighbors.pop(link.neighbor, None)
            self._apart.discard(link.neighbor)

    # Effects.

    def _carry_out(self, layer: Layer, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(layer, effect)
        elif isinstance(effect, Broadcast):
            self._broadcast(layer, effect.message)
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
        address = self._addresses.get(effect.target) if effect.via in (None, INTERFACE) else None
        if isinstance(body, Refusal):
            failure = self._dropped(layer, body, effect)
        elif address is None:
            failure = self._dropped(layer, Refusal.OUT_OF_REACH, effect)
        else:
            unicast = Unicast(layer, effect.message, effect.target, len(body), effect.token)
            if self._exchange.send(effect.target, address, body, unicast):
                return
            failure = self._dropped(layer, Refusal.QUEUE_FULL, effect)
        if effect.token is not None:
            # Told from the loop, never from inside the handler that is still sending.
            self._loop.call_soon(self._tell_outcome, layer, effect.token, failure)

    def _dropped(self, layer: Layer, reason: Refusal, effect: Send) -> str:
        """Record the drop; what the sender is told."""
        self._record.drop(layer, reason, effect.target, effect.message)
        return UNREACHABLE if reason is Refusal.OUT_OF_REACH else str(reason)

    def _broadcast(self, layer: Layer, message: Message) -> None:
        body = self._encoded(layer, message)
        if isinstance(body, Refusal):
            self._record.drop(layer, body, None, message)
        else:
            self._record.send(layer, message, None, INTERFACE, len(body))
            self._exchange.broadcast(self._everybody(), body)

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

    def _everybody(self) -> list[Address]:
        """Where a broadcast goes: to the group if there is one, to the given peers, to each neighbor apart from it."""
        group = self._transport.group
        everybody = dict(self.peers) if group is None else {group: None, **self.peers}
        for neighbor in self.neighbors:
            address = self._addresses.get(neighbor)
            if address is not None and neighbor in self._apart:
                everybody[address] = None
        return list(everybody)

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

    # What the link layer tells.

    def understand(self, sender: NodeId, body: bytes) -> Understood | None:
        try:
            layer = layer_of(body)
            if layer not in self._plan.codecs:
                raise DecodeError(Flaw.LAYER)
            return Understood(Layer(layer), self._plan.codecs[Layer(layer)].decode(body), len(body))
        except DecodeError as error:
            self._record.bad_datagram(str(error.flaw), sender)
            return None

    def heard(self, sender: NodeId, address: Address, to_group: bool, meaning: Understood) -> None:
        self._addresses[sender] = address
        self._addresses.move_to_end(sender)
        if len(self._addresses) > MAX_SENDERS:
            self._addresses.popitem(last=False)
        if meaning.layer is Layer.DISCOVERY and to_group:
            self._apart.discard(sender)
        elif meaning.layer is Layer.DISCOVERY and len(self._apart) < MAX_SENDERS:
            self._apart.add(sender)
        self._record.receive(meaning.layer, meaning.message, sender, INTERFACE, meaning.size_bytes)
        self._stack.on_message(self._loop.time(), meaning.layer, sender, meaning.message, INTERFACE)

    def transmitted(self, unicast: Unicast, attempt: int) -> None:
        self._record.send(unicast.layer, unicast.message, unicast.target, INTERFACE, unicast.size_bytes, attempt)

    def finished(self, unicast: Unicast, ok: bool) -> None:
        if not ok:
            self._record.drop(unicast.layer, "unacknowledged", unicast.target, unicast.message)
        if unicast.token is not None:
            self._tell_outcome(unicast.layer, unicast.token, "" if ok else UNREACHABLE)

    def dropped(self, reason: str, peer: NodeId | None) -> None:
        self._record.bad_datagram(reason, peer)
