"""A protocol of carriers, but for its rule: the handlers of all that differ only in who is to carry copies."""

from random import Random
from typing import ClassVar

from driftcast.model import Event, Failure, NodeId, Subscription, SubscriptionId
from driftcast.parts.carried import LEASE, CarriedEvents, CarrySettings
from driftcast.parts.handing import MESSAGES, Handing, Rule
from driftcast.protocol import Host, Interface, Link, Port, Protocol, TimerKey, Token
from driftcast.wire import Message


class Carrier(Protocol):
    """Gives what it carries to neighbors that want it, and copies to those whom its rule chooses."""

    settings_type = CarrySettings
    messages: ClassVar[tuple[type[Message], ...]] = MESSAGES
    copies = 1
    """With how many copies an event begins."""

    def __init__(self, node: NodeId, settings: CarrySettings, port: Port, host: Host, rng: Random, rule: Rule) -> None:
        super().__init__(node, settings, port, host, rng)
        self.carried = CarriedEvents(port, settings)
        self.handing = Handing(port, self.carried, settings, rule)

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

    def on_link_up(self, now: float, link: Link) -> None:
        self.handing.link_up(now, link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.handing.link_down(now, link)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        self.handing.on_message(now, sender, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.handing.on_sent(now, token, failure)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == LEASE:
            self.handing.forget(self.carried.on_lease(now))
        else:
            self.handing.on_again(now)
