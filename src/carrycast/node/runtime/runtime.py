"""Runs a stack on an event loop: inputs go to handlers, effects go out when a handler has returned.

A handler that raises does nothing by halves, and the node goes on: its layer's effects and its writes to the store are
dropped, together with what it told the other layers. What it sends waits until its writes are committed.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from carrycast.core.model import Failure, NodeId, Request, Subscription, SubscriptionId
from carrycast.core.protocol import BufferedPort, Host, Interface, Link, Stack, StackPlan, TimerKey, Token
from carrycast.core.protocol.effects import (
    AcknowledgeReplica,
    AnswerRequest,
    Broadcast,
    CancelTimer,
    CloseHistory,
    CloseRequest,
    Deliver,
    Effect,
    Note,
    Process,
    Send,
    SendRouted,
    SendRoutedEach,
    SetTimer,
)
from carrycast.core.wire import LEASE_OVER, Layer, Message
from carrycast.errors import WorkError
from carrycast.node.link.adapter import Transport
from carrycast.node.link.config import InterfaceConfig
from carrycast.node.link.frame import MAX_BODY_BYTES
from carrycast.node.link.interface import LiveInterface, Unicast
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime.application_layer import ApplicationLayer
from carrycast.node.runtime.batching import MessageBatching
from carrycast.node.runtime.load import LoadMeter
from carrycast.node.storage.group_commit import GroupCommit
from carrycast.trace import Kind

_replace = msgspec.structs.replace
NO_WAIT_S = 0.001
"""What waits for less has not waited, as everywhere on the way of a message."""


class Runtime(Stack):
    """The stack of one node, its timers and its interfaces. Everything happens in the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        plan: StackPlan,
        interfaces: Iterable[tuple[InterfaceConfig, Transport]],
        recorder: NodeRecorder,
        host: Callable[[Layer], Host],
        group_commit: GroupCommit,
        applications: ApplicationLayer,
        work: LoadMeter,
    ) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._recorder = recorder
        self._group_commit = group_commit
        self._applications = applications
        self._ports = {layer: BufferedPort() for layer in Layer}
        self._timers: dict[tuple[Layer, TimerKey], asyncio.TimerHandle] = {}
        self._running = False
        self._joining = MessageBatching(self._loop, self._put)
        self.interfaces = {
            config.name: LiveInterface(node, config, transport, plan.codecs, recorder, self, self._when_kept)
            for config, transport in interfaces
        }
        self._all = list(self.interfaces.values())
        self._carried_out: dict[type[Effect], Callable[[Layer, Any], None]] = {
            Send: self._leave,
            Broadcast: self._leave,
            SetTimer: lambda layer, effect: self._arm(layer, effect.key, effect.delay_s),
            CancelTimer: lambda layer, effect: self._disarm(layer, effect.key),
            Deliver: lambda layer, effect: applications.deliver(effect.subscription, effect.event, effect.hops),
            Note: lambda layer, effect: recorder.note(layer, effect.fact),
            AcknowledgeReplica: lambda layer, effect: applications.acknowledge_replica(effect.event, effect.neighbor),
            Process: lambda layer, effect: applications.process(effect),
            SendRouted: lambda layer, effect: self._route(effect),
            SendRoutedEach: lambda layer, effect: self._route(effect),
            AnswerRequest: self._close,
            CloseRequest: self._close,
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
        """The node's own clock, as handlers have it: it runs on over its starts, as the ends of stored leases do."""
        return self._recorder.time_s()

    def start(self) -> None:
        """Start to hear and to run; nothing stays open if an interface cannot be opened."""
        try:
            for interface in self.interfaces.values():
                interface.open()
        except BaseException:
            self._close_interfaces()
            raise
        self._running = True
        self._recorder.mark(Kind.START)
        self.on_start(self.now)
        if self._recorder.drops["handler_raised"]:  # It would go on without what it held before, and write over it.
            self.crash()
            raise WorkError("the protocol could not start, perhaps for what is in the store; the log has the reason")

    def stop(self) -> None:
        """Stop cleanly; no handler runs afterwards."""
        self.on_stop(self.now)
        self._group_commit.commit()
        self._joining.flush()
        self._running = False
        for (layer, _), timer in self._timers.items():
            timer.cancel()
            self._recorder.drop(layer, "timer_left")
        self._timers.clear()
        self._close_interfaces()
        self._recorder.mark(Kind.STOP)

    def crash(self) -> None:
        """End as a killed process does: no handler runs, now or afterwards."""
        self._running = False
        self._joining.forget()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._close_interfaces()
        self._recorder.mark(Kind.CRASH)

    def _close_interfaces(self) -> None:
        for interface in self.interfaces.values():
            interface.close()

    def run_handler(self, now: float, layer: Layer, handler: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """A handler, then its effects; or neither its effects nor its writes, if it raises."""
        if not self._work.in_turn:
            self._work.begin_turn(self._loop)
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
            self._carried_out[type(effect)](layer, effect)
        # What was delivered is written, and belongs to what the handler wrote.
        if group_commit.store.has_savepoint:
            group_commit.release_savepoint()
        return True

    @property
    def is_busy(self) -> bool:
        """Whether so much waits on an interface that nothing new should be added."""
        if len(self._all) == 1:  # As most nodes have; asked for each event.
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
        """Discovery has found or lost a link; the layers above are told next."""
        self._recorder.link(link, lost)
        self.interfaces[link.interface].linked(link.neighbor, lost is None)

    # Effects.

    def _leave(self, layer: Layer, effect: Send | Broadcast) -> None:
        if self._group_commit.is_pending:
            since_s = self._loop.time()
            self._group_commit.when_committed(lambda lost: self._transmit_later(layer, effect, lost, since_s))
        else:
            self._joining.send(layer, effect)

    def _close(self, layer: Layer, effect: AnswerRequest | CloseRequest) -> None:
        if isinstance(effect, AnswerRequest):
            wanted = self._applications.answer(effect.request, effect.event, effect.hops)
        else:
            wanted = self._applications.close_request(effect.request, effect.complete)
        if not wanted:
            self._recorder.drop(layer, "no_such_request")

    def _when_kept(self, then: Callable[[], None]) -> None:
        if self._group_commit.is_pending:
            self._group_commit.when_committed(lambda lost: then() if lost is None and self._running else None)
        else:
            then()

    def _transmit_later(self, layer: Layer, effect: Send | Broadcast, lost: WorkError | None, since_s: float) -> None:
        """What waited for a commit is so much older."""
        waited_s = self._loop.time() - since_s
        aged = effect.message.aged(waited_s) if waited_s >= NO_WAIT_S else effect.message
        if aged is not None:
            self._transmit(layer, effect if aged is effect.message else _replace(effect, message=aged), lost)
            return
        self._recorder.drop(layer, LEASE_OVER, None, effect.message)
        if isinstance(effect, Send) and effect.token is not None:
            self._loop.call_soon(self._refuse, layer, effect.token, Failure.QUEUE_FULL)

    def _transmit(self, layer: Layer, effect: Send | Broadcast, lost: WorkError | None) -> None:
        if lost is not None:
            # It may tell of something that this node does not hold.
            self._recorder.drop(layer, "store_failed", None, effect.message)
            if isinstance(effect, Send) and effect.token is not None:
                self._loop.call_soon(self._refuse, layer, effect.token, Failure.QUEUE_FULL)
        else:
            self._joining.send(layer, effect)

    def _put(self, layer: Layer, effect: Send | Broadcast, tokens: tuple[Token, ...]) -> None:
        if isinstance(effect, Send):
            self._send(layer, effect, tokens)
        else:
            self._broadcast(layer, effect)

    def _send(self, layer: Layer, effect: Send, tokens: tuple[Token, ...]) -> None:
        body = self._encoded(layer, effect.message)
        refusal: Failure | None
        if isinstance(body, Failure):
            refusal = body
        else:
            interface = self._chosen(effect.target, effect.via)
            unicast = Unicast(layer, effect.message, effect.target, len(body), tokens)
            refusal = Failure.OUT_OF_REACH if interface is None else interface.send(unicast, body)
        if refusal is not None:
            self._recorder.drop(layer, refusal, effect.target, effect.message)
            failure = Failure.UNREACHABLE if refusal is Failure.OUT_OF_REACH else refusal
            for token in tokens:
                # Told from the loop: one that answers each refusal by sending again does not stop the node.
                self._loop.call_soon(self._refuse, layer, token, failure)

    def _refuse(self, layer: Layer, token: Token, failure: Failure) -> None:
        if self._running:
            self.on_sent(self.now, layer, token, failure)

    def _chosen(self, target: NodeId, via: Interface | None) -> LiveInterface | None:
        """A named interface; else the cheapest with a link to a neighbor, or over which the node was ever heard."""
        if via is not None:
            return self.interfaces.get(via)
        leading = [one for one in self._all if target in one.neighbors]
        leading = leading or [one for one in self._all if one.leads_to(target)]
        if len(leading) == 1:
            return leading[0]
        return min(leading, key=lambda interface: interface.cost_s(target), default=None)

    def _broadcast(self, layer: Layer, effect: Broadcast) -> None:
        body = self._encoded(layer, effect.message)
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

    def _encoded(self, layer: Layer, message: Message) -> bytes | Failure:
        """The wire frame, or why there is none."""
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
    """What `certified` makes of the subscriptions and requests of this node is what others are told."""

    def __init__(self, certified: Callable[[Any], Any], *arguments: Any) -> None:
        """The others as those of `Runtime`."""
        self._certified = certified
        self._standing: dict[SubscriptionId, Subscription] = {}
        super().__init__(*arguments)

    def on_subscribe(self, now: float, subscription: Subscription) -> bool:
        stands = super().on_subscribe(now, self._certified(subscription))
        if stands:
            self._standing[subscription.id] = subscription
        return stands

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._standing.pop(subscription, None)
        super().on_unsubscribe(now, subscription)

    def on_request(self, now: float, request: Request) -> None:
        super().on_request(now, self._certified(request))

    def certify_again(self) -> None:
        """The node has another certificate. Subscriptions that went out with the one before end with that one, so they
        go out again; their history has come already."""
        for subscription in list(self._standing.values()):
            again = _replace(subscription, history=False)
            super().on_subscribe(self.now, self._certified(again))
