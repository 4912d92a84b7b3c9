"""Flooding: each node rebroadcasts an event once, when it first meets it. No state but the ids of recent events."""

from random import Random

from driftcast.model import Event, NodeId, Subscription, SubscriptionId
from driftcast.parts.local import LocalSubscriptions
from driftcast.parts.relay import Relay, RelaySettings
from driftcast.protocol import Host, Interface, Port, Protocol, TimerKey
from driftcast.wire import EventMessage, Message


class FloodingSettings(RelaySettings, frozen=True):
    """Flooding has no knobs but those of relaying."""


class FloodedEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event on its way to everybody."""


class Flooding(Protocol):
    """One transmission per node and event."""

    name = "flooding"
    summary = "every node rebroadcasts each event once"
    settings_type = FloodingSettings
    messages = (FloodedEvent,)

    def __init__(self, node: NodeId, settings: FloodingSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._local = LocalSubscriptions(port)
        self._relay = Relay(port, rng, settings)
        self._seen_ids = self._relay.seen.ids

    def on_stop(self, now: float) -> None:
        self._relay.stop()

    def on_publish(self, now: float, event: Event) -> None:
        if self._relay.meet(now, event.id):
            self._local.deliver(event, 0)
            self._relay.pass_on(now, FloodedEvent(event, 1, event.lease_s))

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, FloodedEvent)
        event = message.event
        # Most receptions are repetitions, so this line decides how fast a flood runs.
        if event.id in self._seen_ids:
            return
        self._relay.meet(now, event.id)
        self._local.deliver(event, message.hops)
        self._relay.pass_on(now, FloodedEvent(event, message.hops + 1, message.remaining_s))

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._relay.on_timer(now, key)
