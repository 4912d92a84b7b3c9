"""The carrier role: a store-carry-forward protocol without its replication rule, which subclasses provide."""

from random import Random
from typing import ClassVar

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts.carrier_buffer import LEASE, CarrierBuffer, CarrierSettings
from carrycast.core.parts.copies import CopyRule
from carrycast.core.parts.exchange import SILENT, CopyExchange
from carrycast.core.parts.exchange_messages import MESSAGES
from carrycast.core.parts.log import capacity_of
from carrycast.core.parts.requests import REQUESTS
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    AnswersRequests,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    RetentionLog,
    TimerKey,
    Token,
    Usage,
)
from carrycast.core.wire import Message


class CarrierProtocol(Protocol, AnswersRequests, KeepsEvents):
    """Transfers events to neighbors that subscribe to them, and copies to neighbors that its rule chooses."""

    settings_type = CarrierSettings
    messages: ClassVar[tuple[type[Message], ...]] = MESSAGES
    copies = 1
    """The initial number of copies of an event."""

    def __init__(
        self, node: NodeId, settings: CarrierSettings, port: Port, host: Host, rng: Random, rule: CopyRule
    ) -> None:
        super().__init__(node, settings, port, host, rng)
        store = host.store if settings.durable else None
        self._most = settings.buffer
        self.buffer = CarrierBuffer(port, settings, store, rule)
        self.exchange = CopyExchange(port, self.buffer, settings, rule, store)

    @property
    def log(self) -> RetentionLog | None:
        return self.buffer.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._most, self.buffer.log)

    def on_start(self, now: float) -> None:
        self.exchange.start(now)

    def on_stop(self, now: float) -> None:
        self.buffer.stop()
        self.exchange.stop()

    def on_publish(self, now: float, event: Event) -> None:
        self.exchange.publish(now, event, self.copies)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.buffer.subscribe(now, subscription)
        self.exchange.update_subscriptions()

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self.buffer.local.remove(subscription)
        self.exchange.update_subscriptions()

    def on_request(self, now: float, request: Request) -> None:
        self.buffer.request(now, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self.buffer.requests.cancel(request)

    def on_link_up(self, now: float, link: Link) -> None:
        self.buffer.requests.link_up(now, link)
        self.exchange.link_up(now, link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.buffer.requests.link_down(link)
        self.exchange.link_down(now, link)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        self.exchange.on_message(now, sender, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.exchange.on_sent(now, token, failure)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == LEASE:
            self.exchange.forget(self.buffer.on_lease(now))
        elif key == SILENT:
            self.exchange.on_silent()
        elif key == REQUESTS:
            self.buffer.requests.on_timer(now)
        else:
            self.exchange.on_again(now)


class ReplicatingCarrierProtocol(CarrierProtocol, AcknowledgesReplicas):
    """A carrier protocol that replicates: a neighbor holds a replica once it has acknowledged the copy."""

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        self.exchange.count(event, copies)
