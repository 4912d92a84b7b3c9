"""The applications of a simulated node, whose calls take effect in simulated time."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from carrycast.core.model import (
    AccessPolicy,
    Advertisement,
    Event,
    EventId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import (
    Application,
    ApplicationHost,
    ApplicationKey,
    ApplicationPort,
    Fact,
    Host,
    HostedApplications,
    Tuner,
)
from carrycast.core.streams import stream
from carrycast.core.wire import Layer
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.kernel import Timer
from carrycast.sim.scenario import PlacedApplication

if TYPE_CHECKING:
    from carrycast.sim.engine.node import SimNode

FIRST_NUMBER = 1 << 40
"""The first number of applications' subscriptions; subscriptions of a workload are numbered from 0."""


class SimApplications(ApplicationHost):
    """The applications of one start of a node."""

    def __init__(self, node: "SimNode", context: RunContext, hosts: Callable[[str], Host], boot: int) -> None:
        self._node = node
        self._context = context
        self._kernel = context.kernel
        self._timers: dict[ApplicationKey, Timer] = {}
        self.variables: dict[str, Scalar] = {}
        """Variables set by policies that are not settings of the stack."""
        self.replies: dict[int, bytes] = {}

        def make_factory(placed: PlacedApplication) -> Callable[[ApplicationPort], Application]:
            name = placed.kind.name
            purpose = f"application {name}" if boot == 0 else f"application {name} boot {boot}"
            rng = stream(context.seed, purpose, node.id)
            return lambda port: placed.kind(node.id, placed.settings, port, hosts(name), rng)

        factories = [(placed.kind.name, make_factory(placed)) for placed in context.applications.get(node.id, ())]
        self.hosted = HostedApplications(node.id, self, factories)
        stack = node.stack
        self._tuner = Tuner(
            stack.plan, stack.machine, lambda layer, settings: stack.on_retune(node.now(), layer, settings)
        )

    def crash(self) -> None:
        """Remove the applications with their subscriptions and advertisements."""
        self.hosted.crash()
        self._cancel_all()
        for id in self.hosted.subscriptions:
            self._node.unsubscribe(id)
        for advertisement in self.hosted.advertisements:
            self._node.unadvertise(advertisement)

    def stop(self) -> None:
        """Stop the applications cleanly."""
        self.hosted.stop()
        self._cancel_all()

    def command(self, name: str, verb: str, body: bytes) -> int:
        """Send a command to an application; returns the number of its reply."""
        number = self.next_number()
        if name in self.hosted:
            self.hosted.on_command(name, number, verb, body)
        return number

    # The interface that applications call.

    def call_soon(self, action: Callable[[], None]) -> None:
        self._kernel.at(self._kernel.now_us, lambda _: action(), None)

    def now(self) -> float:
        return self._node.now()

    def next_number(self) -> int:
        self._node.application_numbers += 1
        return FIRST_NUMBER + self._node.application_numbers

    def run_handler(self, handler: Callable[[], None]) -> bool:
        handler()
        return True

    def publish(self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, access: str | None) -> None:
        id = EventId(self._node.id, self._context.next_sequence(self._node.id))
        policy = None if access is None else AccessPolicy(access)
        self._node.publish(Event(id, dict(attributes), payload, self.now(), lease_s, policy))

    def subscribe(self, subscription: Subscription) -> None:
        self._node.subscribe(subscription)

    def unsubscribe(self, id: SubscriptionId) -> None:
        self._node.unsubscribe(id)

    def advertise(self, advertisement: Advertisement) -> None:
        self._node.advertise(advertisement)

    def unadvertise(self, advertisement: Advertisement) -> None:
        self._node.unadvertise(advertisement)

    def request(self, request: Request) -> None:
        self._node.request(request)

    def cancel_request(self, id: RequestId) -> None:
        self._node.cancel_request(id)

    def set_timer(self, key: ApplicationKey, delay_s: float) -> None:
        self.cancel_timer(key)
        if delay_s != math.inf:
            drift = 0.0 if self._node.clock is None else self._node.clock.drift
            self._timers[key] = self._kernel.timer(max(0.0, delay_s) / (1 + drift), self._on_timer, key)

    def cancel_timer(self, key: ApplicationKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._kernel.cancel(timer)

    def _on_timer(self, key: object) -> None:
        assert isinstance(key, tuple)
        del self._timers[key]
        self.hosted.on_timer(key)

    def _cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel_timer(key)

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        """Set or reset a setting of the stack or a variable. Commands (`run`) are recorded but not executed."""
        error = ""
        if verb == "run":
            self.note(Fact("ran", reason=" ".join([name, *map(str, values)])))
        elif self._tuner.knows(name):
            error = self._tuner.set(name, *values) if verb == "set" else self._tuner.reset(name)
        elif verb == "set":
            [self.variables[name]] = values
        else:
            self.variables.pop(name, None)
        done(error)

    def reply(self, command: int, body: bytes) -> None:
        self.replies[command] = body
        self.note(Fact("reply"))

    def note(self, fact: Fact) -> None:
        self._node.recorder.on_fact(self._node.id, Layer.DISSEMINATION, fact)
