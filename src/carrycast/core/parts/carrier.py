"""A protocol of carriers, but for its rule: the handlers of all that differ only in who is to carry copies."""

from random import Random
from typing import ClassVar

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts.carried import LEASE, CarriedEvents, CarrySettings
from carrycast.core.parts.handing import SILENT, Handing
from carrycast.core.parts.handing_messages import MESSAGES
from carrycast.core.parts.log import room_of
from carrycast.core.parts.requests import REQUESTS
from carrycast.core.parts.share import Rule
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    AnswersRequests,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    TimerKey,
    Token,
)
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message


class Carrier(Protocol, AnswersRequests, KeepsEvents):
    """Gives what it carries to neighbors that want it, and copies to those whom its rule chooses."""

    settings_type = CarrySettings
    messages: ClassVar[tuple[type[Message], ...]] = MESSAGES
    copies = 1
    """With how many copies an event begins."""

    def __init__(self, node: NodeId, settings: CarrySettings, port: Port, host: Host, rng: Random, rule: Rule) -> None:
        super().__init__(node, settings, port, host, rng)
        store = host.store if settings.durable else None
        self._most = settings.buffer
        self.carried = CarriedEvents(port, settings, store)
        self.handing = Handing(port, self.carried, settings, rule, store)

    @property
    def log(self) -> RetentionLog | None:
        return self.carried.log

    @property
    def room(self) -> Usage:
        return room_of(self._most, self.carried.log)

    def on_start(self, now: float) -> None:
        self.handing.start(now)

    def on_stop(self, now: float) -> None:
        self.carried.stop()
        self.handing.stop()

    def on_publish(self, now: float, event: Event) -> None:
        self.handing.publish(now, event, self.copies)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.carried.subscribe(now, subscription)
        self.handing.subscribed()

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self.carried.local.remove(subscription)
        self.handing.subscribed()

    def on_request(self, now: float, request: Request) -> None:
        self.carried.request(now, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self.carried.requests.cancel(request)

    def on_link_up(self, now: float, link: Link) -> None:
        self.carried.requests.link_up(now, link)
        self.handing.link_up(now, link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.carried.requests.link_down(link)
        self.handing.link_down(now, link)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        self.handing.on_message(now, sender, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.handing.on_sent(now, token, failure)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == LEASE:
            self.handing.forget(self.carried.on_lease(now))
        elif key == SILENT:
            self.handing.on_silent()
        elif key == REQUESTS:
            self.carried.requests.on_timer(now)
        else:
            self.handing.on_again(now)


class CountingCarrier(Carrier, AcknowledgesReplicas):
    """One whose rule gives copies to neighbors, which carry them from when they have acknowledged them."""

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        self.handing.count(event, copies)
