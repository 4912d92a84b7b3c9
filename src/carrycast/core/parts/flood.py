"""Flooding: each node rebroadcasts an event the first time it receives it, at once or after a random delay."""

from collections.abc import Callable
from random import Random
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import FOREVER_S, Event, EventId
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Fact, Port, Settings, TimerKey
from carrycast.core.wire import LEASE_EXPIRED, EventMessage


class FloodSettings(Settings, frozen=True):
    """The settings of every protocol that floods: how long, and over how many hops."""

    seen_s: Annotated[
        float, Meta(ge=0.001, description="how long an event is remembered; it is forwarded for at most half of that")
    ] = 60.0
    max_hops: Annotated[int, Meta(ge=1, le=65535, description="hop limit: such an event is not forwarded")] = 255

    @property
    def flood_s(self) -> float:
        """The time for which an event is forwarded. Nodes remember it for twice as long, which tolerates clock skew."""
        return self.seen_s / 2

    def draw_delay_s(self, rng: Random) -> float | None:
        """A random delay of a rebroadcast; None for a rebroadcast at once."""
        return None


class RelaySettings(FloodSettings, frozen=True):
    """The settings of protocols that rebroadcast at once, or after a short random delay."""

    jitter_s: Annotated[
        float,
        Meta(ge=0, le=3600, description="the longest random delay before a rebroadcast, against collisions"),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.seen_s < 2 * self.jitter_s:
            raise ValueError("seen_s must be at least twice jitter_s: an event is passed on for half of seen_s")

    def draw_delay_s(self, rng: Random) -> float | None:
        return self.jitter_s * rng.random() if self.jitter_s else None


UNCOUNTED_S = 0.002
"""The time of a hop that environments do not count as waiting."""
FLOOD_OVER = "flood_over"


class Relay:
    """The duplicate cache and the delayed rebroadcasts of one node."""

    __slots__ = ("_delayed", "_max_hops", "_port", "_remembered_s", "_rng", "_settings", "seen")

    def __init__(self, port: Port, rng: Random, settings: FloodSettings) -> None:
        self._port = port
        self._rng = rng
        self._settings = settings
        self._remembered_s = settings.seen_s + settings.max_hops * UNCOUNTED_S
        self._max_hops = settings.max_hops
        self.seen = SeenCache()
        self._delayed: dict[EventId, tuple[EventMessage, float]] = {}

    def receive(self, now: float, event: EventId) -> bool:
        """Remember an event; False if it is a duplicate."""
        return self.seen.add(now, event, now + self._remembered_s)

    def forward(self, now: float, message: EventMessage, delay_s: float | None = None) -> None:
        """Broadcast, unless the hop limit is exceeded. The message's hops already count this transmission. Without a
        delay, the settings choose one."""
        if message.hops > self._max_hops:
            self._port.note(Fact("drop", event=message.event.id, reason="too_many_hops"))
            return
        delay_s = self._settings.draw_delay_s(self._rng) if delay_s is None else delay_s
        if delay_s is None:
            self._port.broadcast(message)
        else:
            self._delayed[message.event.id] = (message, now)
            self._port.set_timer(("relay", message.event.id), delay_s)

    def cancel(self, event: EventId) -> bool:
        """Cancel a delayed rebroadcast; False if none is pending."""
        if self._delayed.pop(event, None) is None:
            return False
        self._port.cancel_timer(("relay", event))
        return True

    def on_timer(self, now: float, key: TimerKey) -> EventMessage | None:
        """The delay has ended: broadcast, with the delay subtracted from the lease. Returns what was sent."""
        event = key[1]
        assert isinstance(event, EventId)
        message, since = self._delayed.pop(event)
        aged = message.age_by(now - since)
        if aged is None:
            self._port.note(Fact("drop", event=event, reason=LEASE_EXPIRED))
        else:
            self._port.broadcast(aged)
        return aged

    def stop(self) -> None:
        """Cancel all delayed rebroadcasts."""
        for event in self._delayed:
            self._port.cancel_timer(("relay", event))
        self._delayed.clear()


class Flood:
    """Flooding at one node, with messages of one type. The protocol decides whether to forward an event."""

    __slots__ = ("_flood_s", "_make_message", "_port", "_relay", "local", "seen_ids")

    def __init__(
        self,
        port: Port,
        rng: Random,
        settings: FloodSettings,
        make_message: Callable[[Event, int, float], EventMessage],
    ) -> None:
        """`make_message`, usually a message type, makes the message of an event, its hops and its remaining lease."""
        self._relay = Relay(port, rng, settings)
        self._make_message = make_message
        self._flood_s = settings.flood_s
        self._port = port
        self.local = LocalSubscriptions(port)
        self.seen_ids = self._relay.seen.ids
        """The ids of received events, for a quick test: most receptions are duplicates."""

    def publish(self, now: float, event: Event, delay_s: float | None = None) -> None:
        """Publish a local event: the source always broadcasts."""
        if self.accept(now, event, 0):
            message = self._make_message(event, 1, self.bound_lease_s(event, event.lease_s))
            self._relay.forward(now, message, delay_s)

    def receive(self, now: float, message: EventMessage) -> bool:
        """Deliver the event of a message; False if it is a duplicate, or so old that others may have forgotten it."""
        event = message.event
        if self.is_over(message):
            self._port.note(Fact("drop", event=event.id, reason=FLOOD_OVER))
            return False
        return self.accept(now, event, message.hops)

    def is_over(self, message: EventMessage) -> bool:
        """Whether an event is so old that other nodes may have forgotten it, and would take it for new."""
        event = message.event
        return event.lease_s < FOREVER_S and event.lease_s - message.remaining_s >= self._flood_s

    def forward(self, now: float, message: EventMessage, delay_s: float | None = None) -> None:
        """Forward a received event; without a delay, the settings choose one."""
        remaining_s = self.bound_lease_s(message.event, message.remaining_s)
        self._relay.forward(now, self._make_message(message.event, message.hops + 1, remaining_s), delay_s)

    def cancel(self, event: EventId) -> bool:
        """Cancel a delayed rebroadcast; False if none is pending."""
        return self._relay.cancel(event)

    def bound_lease_s(self, event: Event, remaining_s: float) -> float:
        """Return the remaining lease, or the remaining flooding time of an event without a lease. Receivers compute the
        age of the event from it."""
        return remaining_s if event.lease_s < FOREVER_S else min(remaining_s, self._flood_s)

    def on_timer(self, now: float, key: TimerKey) -> EventMessage | None:
        """The delay of a rebroadcast has ended; returns what was sent."""
        return self._relay.on_timer(now, key)

    def stop(self) -> None:
        """Cancel all delayed rebroadcasts."""
        self._relay.stop()

    def accept(self, now: float, event: Event, hops: int) -> bool:
        """Remember an event and deliver it; False if it is a duplicate."""
        first = self._relay.receive(now, event.id)
        if first:
            self.local.deliver(event, hops)
        return first
