"""The runtime of a node: runs its stack on an event loop. A handler's effects are carried out when it has returned.

If a handler raises, the node continues: the handler's effects, its writes to the store and its calls of other layers
are dropped. Messages wait until the writes of their handler are committed.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from carrycast.core.model import Failure, NodeId, Request, Subscription, SubscriptionId
from carrycast.core.protocol import (
    AcknowledgeReplica,
    AnswerRequest,
    Broadcast,
    BufferedPort,
    CancelTimer,
    CloseHistory,
    CloseRequest,
    Deliver,
    Effect,
    Host,
    Interface,
    Link,
    Note,
    Process,
    Send,
    SendRouted,
    SendRoutedEach,
    SetTimer,
    Stack,
    StackPlan,
    TimerKey,
    Token,
)
from carrycast.core.wire import LEASE_EXPIRED, Layer, Message
from carrycast.errors import WorkError
from carrycast.node.link import MAX_BODY_BYTES, FrameChannel, InterfaceConfig, LiveInterface, Unicast
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime.application_layer import ApplicationLayer
from carrycast.node.runtime.batching import MessageBatching
from carrycast.node.runtime.load import LoadMeter
from carrycast.node.storage import GroupCommit
from carrycast.trace import Kind

_replace = msgspec.structs.replace
MIN_WAIT_S = 0.001
"""Shorter waits do not shorten leases: waiting times are counted in milliseconds everywhere."""


class Runtime(Stack):
    """The stack of one node, its timers and its interfaces. Everything happens in the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        plan: StackPlan,
        interfaces: Iterable[tuple[InterfaceConfig, FrameChannel]],
        recorder: NodeRecorder,
        host: Callable[[Layer], Host],
        group_commit: GroupCommit,
        applications: ApplicationLayer,
        load_meter: LoadMeter,
    ) -> None:
        self._load_meter = load_meter
        self._loop = asyncio.get_running_loop()
        self._recorder = recorder
        self._group_commit = group_commit
        self._applications = applications
        self._ports = {layer: BufferedPort() for layer in Layer}
        self._timers: dict[tuple[Layer, TimerKey], asyncio.TimerHandle] = {}
        self._running = False
        self._batching = MessageBatching(self._loop, self._transmit)
        self.interfaces = {
            config.name: LiveInterface(node, config, channel, plan.codecs, recorder, self, group_commit.if_committed)
            for config, channel in interfaces
        }
        self._all = list(self.interfaces.values())
        self._effect_handlers: dict[type[Effect], Callable[[Layer, Any], None]] = {
            Send: self._send_when_committed,
            Broadcast: self._send_when_committed,
            SetTimer: lambda layer, effect: self._arm(layer, effect.key, effect.delay_s),
            CancelTimer: lambda layer, effect: self._disarm(layer, effect.key),
            Deliver: lambda layer, effect: applications.deliver(effect.subscription, effect.event, effect.hops),
            Note: lambda layer, effect: recorder.note(layer, effect.fact),
            AcknowledgeReplica: lambda layer, effect: applications.acknowledge_replica(effect.event, effect.neighbor),
            Process: lambda layer, effect: applications.process(effect),
            SendRouted: lambda layer, effect: self._route(effect),
            SendRoutedEach: lambda layer, effect: self._route(effect),
            AnswerRequest: self._answer_or_close,
            CloseRequest: self._answer_or_close,
            CloseHistory: lambda layer, effect: applications.close_history(effect.subscription, effect.complete),
        }
        super().__init__(
            plan,
            node,
            self._ports.__getitem__,
            host,
            lambda layer: Random(secrets.randbits(128)),
            tuple(self.interfaces),
            lambda neighbor, interface: self.interfaces[interface].cost_s(neighbor),
            self._on_link,
        )

    @property
    def now(self) -> float:
        """The node's clock, as handlers see it. It continues over restarts, as stored leases need."""
        return self._recorder.time_s()

    def start(self) -> None:
        """Open the interfaces and start the stack; if an interface cannot be opened, none stays open."""
        try:
            for interface in self.interfaces.values():
                interface.open()
        except BaseException:
            self._close_interfaces()
            raise
        self._running = True
        self._recorder.mark(Kind.START)
        self.on_start(self.now)
        if self._recorder.drops["handler_raised"]:  # The protocol would lose its stored events.
            self.crash()
            raise WorkError("the protocol could not start, perhaps for what is in the store; the log has the reason")

    def stop(self) -> None:
        """Stop cleanly; no handler runs afterwards."""
        self.on_stop(self.now)
        self._group_commit.commit()
        self._batching.flush()
        self._running = False
        for (layer, _), timer in self._timers.items():
            timer.cancel()
            self._recorder.drop(layer, "timer_left")
        self._timers.clear()
        self._close_interfaces()
        self._recorder.mark(Kind.STOP)

    def crash(self) -> None:
        """End as a killed process would: no handler runs, now or afterwards."""
        self._running = False
        self._batching.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._close_interfaces()
        self._recorder.mark(Kind.CRASH)

    def _close_interfaces(self) -> None:
        for interface in self.interfaces.values():
            interface.close()

    def run_handler(self, now: float, layer: Layer, handler: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """Run a handler, then its effects; if it raises, drop its effects and undo its writes."""
        if not self._load_meter.in_turn:
            self._load_meter.begin_turn(self._loop)
        queued_calls, group_commit = self.queued_calls, self._group_commit
        if group_commit.store.has_savepoint:
            group_commit.release_savepoint()
        try:
            handler(now, *arguments)
        except Exception as error:
            self.discard_calls_after(queued_calls)
            self._ports[layer].take()
            group_commit.rollback_savepoint()
            LOG.error("a handler of the %s layer raised", layer.name.lower(), exc_info=error)
            self._recorder.drop(layer, "handler_raised")
            return False
        if group_commit.store.has_savepoint:
            group_commit.release_savepoint()
        for effect in self._ports[layer].take():
            self._effect_handlers[type(effect)](layer, effect)
        # Deliveries to durable subscriptions are written too, and belong to the handler's writes.
        if group_commit.store.has_savepoint:
            group_commit.release_savepoint()
        return True

    @property
    def is_busy(self) -> bool:
        """Whether the send queue of an interface is so long that publishers should wait."""
        if len(self._all) == 1:  # The common case; this is called for each event.
            return self._all[0].busy
        return any(interface.busy for interface in self._all)

    @property
    def links(self) -> list[Link]:
        """Every link that discovery knows, in the order of the interfaces."""
        return [
            Link(neighbor, interface.name, interface.cost_s(neighbor))
            for interface in self.interfaces.values()
            for neighbor in interface.neighbors
        ]

    def _on_link(self, link: Link, lost: Failure | None) -> None:
        """Discovery has found or lost a link. The layers above are called afterwards."""
        self._recorder.change_link(link, lost)
        self.interfaces[link.interface].on_link(link.neighbor, lost is None)

    # Effects.

    def _send_when_committed(self, layer: Layer, effect: Send | Broadcast) -> None:
        if self._group_commit.is_pending:
            since_s = self._loop.time()
            self._group_commit.when_committed(lambda error: self._send_committed(layer, effect, error, since_s))
        else:
            self._batching.send(layer, effect)

    def _answer_or_close(self, layer: Layer, effect: AnswerRequest | CloseRequest) -> None:
        if isinstance(effect, AnswerRequest):
            wanted = self._applications.answer(effect.request, effect.event, effect.hops)
        else:
            wanted = self._applications.close_request(effect.request, effect.complete)
        if not wanted:
            self._recorder.drop(layer, "no_such_request")

    def _send_committed(self, layer: Layer, effect: Send | Broadcast, error: WorkError | None, since_s: float) -> None:
        """Send a message whose leases are shorter by the time that it waited for the commit."""
        waited_s = self._loop.time() - since_s
        aged = effect.message.age_by(waited_s) if waited_s >= MIN_WAIT_S else effect.message
        if aged is not None:
            self._send_or_drop(layer, effect if aged is effect.message else _replace(effect, message=aged), error)
            return
        self._recorder.drop(layer, LEASE_EXPIRED, None, effect.message)
        if isinstance(effect, Send) and effect.token is not None:
            self._loop.call_soon(self._report_failure, layer, effect.token, Failure.QUEUE_FULL)

    def _send_or_drop(self, layer: Layer, effect: Send | Broadcast, error: WorkError | None) -> None:
        if error is not None:
            # The message may announce an event that this node does not have.
            self._recorder.drop(layer, "store_failed", None, effect.message)
            if isinstance(effect, Send) and effect.token is not None:
                self._loop.call_soon(self._report_failure, layer, effect.token, Failure.QUEUE_FULL)
        else:
            self._batching.send(layer, effect)

    def _transmit(self, layer: Layer, effect: Send | Broadcast, tokens: tuple[Token, ...]) -> None:
        if isinstance(effect, Send):
            self._send(layer, effect, tokens)
        else:
            self._broadcast(layer, effect)

    def _send(self, layer: Layer, effect: Send, tokens: tuple[Token, ...]) -> None:
        body = self._encode(layer, effect.message)
        refusal: Failure | None
        if isinstance(body, Failure):
            refusal = body
        else:
            interface = self._choose_interface(effect.target, effect.via)
            unicast = Unicast(layer, effect.message, effect.target, len(body), tokens)
            refusal = Failure.OUT_OF_REACH if interface is None else interface.send(unicast, body)
        if refusal is not None:
            self._recorder.drop(layer, refusal, effect.target, effect.message)
            failure = Failure.UNREACHABLE if refusal is Failure.OUT_OF_REACH else refusal
            for token in tokens:
                # In a later turn of the event loop: a handler that sends again at once must not block the node.
                self._loop.call_soon(self._report_failure, layer, token, failure)

    def _report_failure(self, layer: Layer, token: Token, failure: Failure) -> None:
        if self._running:
            self.on_sent(self.now, layer, token, failure)

    def _choose_interface(self, target: NodeId, via: Interface | None) -> LiveInterface | None:
        """Return the named interface; else the cheapest with a link to the target, or over which it was heard
        before."""
        if via is not None:
            return self.interfaces.get(via)
        leading = [one for one in self._all if target in one.neighbors]
        leading = leading or [one for one in self._all if one.leads_to(target)]
        if len(leading) == 1:
            return leading[0]
        return min(leading, key=lambda interface: interface.cost_s(target), default=None)

    def _broadcast(self, layer: Layer, effect: Broadcast) -> None:
        body = self._encode(layer, effect.message)
        interfaces = self._all if effect.on is None else [one for one in self._all if one.name == effect.on]
        if isinstance(body, Failure):
            self._recorder.drop(layer, body, None, effect.message)
        elif not interfaces:
            self._recorder.drop(layer, Failure.OUT_OF_REACH, None, effect.message)
        else:
            for interface in interfaces:
                interface.broadcast(layer, effect.message, body)

    def _route(self, effect: SendRouted | SendRoutedEach) -> None:
        try:
            if isinstance(effect, SendRouted):
                self.route(effect.target, effect.message)
            else:
                self.route_each(effect.targets, effect.message)
        except Exception as error:
            LOG.error("a message could not be routed", exc_info=error)
            self._recorder.drop(Layer.DISSEMINATION, "not_routed", None, effect.message)

    def _encode(self, layer: Layer, message: Message) -> bytes | Failure:
        """Encode a message; the failure if that is not possible."""
        try:
            body = self.plan.codecs[layer].encode(message)
        except Exception as error:
            LOG.error("a message of the %s layer cannot be encoded", layer.name.lower(), exc_info=error)
            return Failure.NOT_ENCODABLE
        return Failure.TOO_LONG if len(body) > MAX_BODY_BYTES else body

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
        self.on_timer(self.now, layer, key)


class CertifyingRuntime(Runtime):
    """The runtime of a node with a certificate: its subscriptions and requests carry the certificate (`certify`)."""

    def __init__(self, certify: Callable[[Any], Any], *arguments: Any) -> None:
        """The other arguments are those of `Runtime`."""
        self._certify = certify
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        super().__init__(*arguments)

    def on_subscribe(self, now: float, subscription: Subscription) -> bool:
        is_active = super().on_subscribe(now, self._certify(subscription))
        if is_active:
            self._subscriptions[subscription.id] = subscription
        return is_active

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._subscriptions.pop(subscription, None)
        super().on_unsubscribe(now, subscription)

    def on_request(self, now: float, request: Request) -> None:
        super().on_request(now, self._certify(request))

    def certify_again(self) -> None:
        """Send all subscriptions again with a new certificate, because they expire with the certificate that they
        carry. Their history is not requested again."""
        for subscription in list(self._subscriptions.values()):
            again = _replace(subscription, history=False)
            super().on_subscribe(self.now, self._certify(again))
