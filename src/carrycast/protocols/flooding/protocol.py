"""Flooding: each node rebroadcasts an event once, when it first receives it. Its only state is the ids of recent
events."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import Flood, RelaySettings
from carrycast.core.protocol import Host, Interface, Port, Protocol, TimerKey
from carrycast.core.wire import EventMessage, Message


class FloodingSettings(RelaySettings, frozen=True):
    """Flooding has only the settings of relaying."""


class FloodedEvent(EventMessage, frozen=True, gc=False, tag=1):
    """An event that every node rebroadcasts."""


class Flooding(Protocol):
    """One transmission per node and event."""

    name = "flooding"
    summary = "every node rebroadcasts each event once"
    settings_type = FloodingSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"jitter_s": (0.01, 0.5)}
    messages = (FloodedEvent,)

    def __init__(self, node: NodeId, settings: FloodingSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._flood = Flood(port, rng, settings, FloodedEvent)
        self._seen_ids = self._flood.seen_ids

    def on_stop(self, now: float) -> None:
        self._flood.stop()

    def on_publish(self, now: float, event: Event) -> None:
        self._flood.publish(now, event)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._flood.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._flood.local.remove(subscription)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, FloodedEvent)
        # Most receptions are duplicates, so this line decides how fast a flood runs.
        if message.event.id not in self._seen_ids and self._flood.receive(now, message):
            self._flood.forward(now, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._flood.on_timer(now, key)
