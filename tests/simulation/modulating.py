"""A small protocol that serves subscriptions with processors: subscribers run theirs themselves."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from carrycast.core.matching.eligibility import serves
from carrycast.core.model import Event, NodeId, Processor, Subscription, SubscriptionId
from carrycast.core.parts.processing import ProcessorCalls
from carrycast.core.protocol import Host, Interface, Port, Protocol, RunsProcessors, Settings, Token
from carrycast.core.wire import EventMessage, Message


class Carry(EventMessage, frozen=True, gc=False, tag=1):
    """An event for whoever hears it."""


class Job(NamedTuple):
    subscription: SubscriptionId
    hops: int


class Modulating(Protocol, RunsProcessors):
    """Broadcasts events to neighbors, who put them through the processors of their subscriptions."""

    name = "modulating"
    messages = (Carry,)
    serves_subscriptions = True

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.calls: ProcessorCalls[Job] = ProcessorCalls(port)
        self.local: dict[SubscriptionId, Subscription] = {}
        self.heard: list[Event] = []

    def on_publish(self, now: float, event: Event) -> None:
        self.port.broadcast(Carry(event, 1, event.lease_s))

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.local[subscription.id] = subscription
        if subscription.processor is not None:
            self.calls.open(subscription.id, subscription.processor, subscription.state)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        del self.local[subscription]
        self.calls.close(subscription)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Carry)
        self.heard.append(message.event)
        for subscription in self.local.values():
            if not serves(message.event, subscription):
                continue
            if subscription.processor is None:
                self.port.deliver(subscription.id, message.event, message.hops)
            else:
                self.calls.submit(subscription.id, [message.event], Job(subscription.id, message.hops))

    def on_processor(self, now: float, processor: Processor) -> None:
        pass

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        job = self.calls.finish(token, state, error)
        if job is None:
            return
        for event in events:
            self.port.deliver(job.subscription, event, job.hops)
