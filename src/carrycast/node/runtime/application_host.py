"""The application host of a live node: runs its applications on its stack, its event loop and its store."""

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from carrycast.core.model import Advertisement, Event, NodeId, Request, RequestId, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol import (
    Application,
    ApplicationHost,
    ApplicationKey,
    ApplicationPort,
    Fact,
    Host,
    HostedApplications,
    Settings,
    Tuner,
)
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime.actions import ActionRunner, AllowedActions
from carrycast.node.runtime.publisher import PublicationRequest
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.storage import GroupCommit, SequenceNumbers

MAX_COMMANDS = 64
"""The most commands to which applications have not replied yet."""

OnReply = Callable[[bytes], None]
"""Called with the reply of an application."""
Cancel = Callable[[], None]
"""Cancels a request, a command or an advertisement."""


@dataclass(frozen=True, slots=True)
class ApplicationConfig:
    """An application of a node, and its settings."""

    kind: type[Application]
    settings: Settings


class LiveApplicationHost(ApplicationHost):
    """The applications of one start of a node."""

    def __init__(
        self,
        node: NodeId,
        configs: Sequence[ApplicationConfig],
        runtime: Runtime,
        recorder: NodeRecorder,
        group_commit: GroupCommit,
        host: Callable[[str], Host],
        numbers: SequenceNumbers,
        publish: Callable[[PublicationRequest], object],
        allowed: AllowedActions,
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._group_commit = group_commit
        self._numbers = numbers
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._timers: dict[ApplicationKey, asyncio.TimerHandle] = {}
        self._replies: dict[int, OnReply] = {}
        self._commands = 0
        tuner = Tuner(
            runtime.plan, runtime.machine, lambda layer, settings: runtime.on_retune(runtime.now, layer, settings)
        )
        self.tune = tuner.set
        """Changes a setting of the stack; returns the error, or an empty text."""
        self._actions = ActionRunner(allowed, tuner)

        def make_factory(config: ApplicationConfig) -> Callable[[ApplicationPort], Application]:
            kind = config.kind
            return lambda port: kind(node, config.settings, port, host(kind.name), Random(secrets.randbits(128)))

        self.hosted = HostedApplications(node, self, [(config.kind.name, make_factory(config)) for config in configs])

    def stop(self, crashed: bool) -> None:
        """Stop all applications, without calling their handlers if the node crashed."""
        if crashed:
            self.hosted.crash()
        else:
            self.hosted.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def stop_actions(self) -> None:
        """Kill the commands that still run."""
        await self._actions.stop()

    def command(self, name: str, verb: str, body: bytes, on_reply: OnReply) -> Cancel:
        """Send a command to an application; `on_reply` is called once, unless it is canceled before."""
        if name not in self.hosted:
            raise UserError(f"this node does not run {name}; name it in [[applications]] of its configuration")
        if len(self._replies) >= MAX_COMMANDS:
            raise WorkError(f"{MAX_COMMANDS} commands wait for a reply already; try again")
        self._commands += 1
        command = self._commands
        self._replies[command] = on_reply
        self.hosted.on_command(name, command, verb, body)

        def cancel() -> None:
            self._replies.pop(command, None)

        return cancel

    # Inputs from the stack.

    def on_event(self, id: SubscriptionId, event: Event, hops: int) -> bool:
        """An event of a subscription; False if the subscription is not one of an application."""
        mine = self.hosted.on_event(id, event, hops)
        if mine:
            self._recorder.deliver(id, event, hops)
        return mine

    def on_answer(self, id: RequestId, event: Event, hops: int) -> bool:
        """A stored event of a request; False if the request is not one of an application."""
        return self.hosted.on_answer(id, event, hops)

    def on_closed(self, id: RequestId, complete: bool) -> bool:
        """The end of a request; False if the request is not one of an application."""
        return self.hosted.on_closed(id, complete)

    # Effects of the applications.

    def call_soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def now(self) -> float:
        return self._runtime.now

    def next_number(self) -> int:
        return self._numbers.take()

    def run_handler(self, handler: Callable[[], None]) -> bool:
        """As with a protocol: if a handler raises, its writes and effects are dropped, and the node continues."""
        self._group_commit.release_savepoint()
        try:
            handler()
            self._group_commit.release_savepoint()
        except Exception as error:
            self._group_commit.rollback_savepoint()
            LOG.error("an application raised", exc_info=error)
            self._recorder.drop(Layer.DISSEMINATION, "application_raised")
            return False
        return True

    def publish(self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, access: str | None) -> None:
        try:
            self._publish(PublicationRequest(attributes, payload, lease_s, access))
        except (UserError, WorkError) as error:
            LOG.error("an application's event was rejected: %s", error)
            self._recorder.drop(Layer.DISSEMINATION, "application_event_refused")

    def subscribe(self, subscription: Subscription) -> None:
        self._recorder.subscribe(subscription)
        self._runtime.on_subscribe(self.now(), subscription)

    def unsubscribe(self, id: SubscriptionId) -> None:
        self._recorder.unsubscribe(id)
        self._runtime.on_unsubscribe(self.now(), id)

    def advertise(self, advertisement: Advertisement) -> None:
        self._runtime.on_advertise(self.now(), advertisement)

    def unadvertise(self, advertisement: Advertisement) -> None:
        self._runtime.on_unadvertise(self.now(), advertisement)

    def request(self, request: Request) -> None:
        self._runtime.on_request(self.now(), request)

    def cancel_request(self, id: RequestId) -> None:
        self._runtime.on_request_canceled(self.now(), id)

    def set_timer(self, key: ApplicationKey, delay_s: float) -> None:
        self.cancel_timer(key)
        if delay_s != math.inf:
            self._timers[key] = self._loop.call_later(max(0.0, delay_s), self._on_timer, key)

    def cancel_timer(self, key: ApplicationKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _on_timer(self, key: ApplicationKey) -> None:
        del self._timers[key]
        self.hosted.on_timer(key)

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        self._actions.perform(verb, name, values, done)

    def reply(self, command: int, body: bytes) -> None:
        on_reply = self._replies.pop(command, None)
        if on_reply is not None:
            on_reply(body)

    def note(self, fact: Fact) -> None:
        self._recorder.note(Layer.DISSEMINATION, fact)
