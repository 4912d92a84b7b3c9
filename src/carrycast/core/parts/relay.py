"""Meeting an event once and broadcasting it onward, at once or after a random wait."""

from random import Random
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Fact, Port, Settings, TimerKey
from carrycast.core.wire import LEASE_OVER, EventMessage


class RelaySettings(Settings, frozen=True):
    """What every protocol that rebroadcasts can be told."""

    seen_s: Annotated[
        float, Meta(ge=0.001, description="how long an event is remembered; it is passed on for half of that at most")
    ] = 60.0
    max_hops: Annotated[int, Meta(ge=1, le=65535, description="an event with that many hops is not passed on")] = 255
    jitter_s: Annotated[
        float,
        Meta(ge=0, le=3600, description="the longest random wait before a rebroadcast; keeps neighbors from colliding"),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.seen_s < 2 * self.jitter_s:
            raise ValueError("seen_s must be at least twice jitter_s: an event is passed on for half of seen_s")

    @property
    def flood_s(self) -> float:
        """How long an event is passed on. Whoever has met it remembers it until no copy can come any more: for the
        other half there is room for clocks that are off."""
        return self.seen_s / 2


UNCOUNTED_S = 0.002
"""What a hop may take without being counted as a wait; see the worlds' own limits."""
FLOOD_OVER = "flood_over"


class Relay:
    """The seen-cache and the waiting rebroadcasts of one node."""

    __slots__ = ("_jitter_s", "_max_hops", "_port", "_remembered_s", "_rng", "_waiting", "seen")

    def __init__(self, port: Port, rng: Random, settings: RelaySettings) -> None:
        self._port = port
        self._rng = rng
        self._remembered_s = settings.seen_s + settings.max_hops * UNCOUNTED_S
        self._max_hops = settings.max_hops
        self._jitter_s = settings.jitter_s
        self.seen = SeenCache()
        self._waiting: dict[EventId, tuple[EventMessage, float]] = {}

    def meet(self, now: float, event: EventId) -> bool:
        """Whether this is the first time that the event is met."""
        return self.seen.add(now, event, now + self._remembered_s)

    def pass_on(self, now: float, message: EventMessage) -> None:
        """Broadcast, unless the event has come too far. The message's hops already count this transmission."""
        if message.hops > self._max_hops:
            self._port.note(Fact("drop", event=message.event.id, reason="too_many_hops"))
        elif self._jitter_s == 0.0:
            self._port.broadcast(message)
        else:
            self._waiting[message.event.id] = (message, now)
            self._port.set_timer(("relay", message.event.id), self._jitter_s * self._rng.random())

    def on_timer(self, now: float, key: TimerKey) -> None:
        """A wait is over; what is left of the lease is less by it."""
        event = key[1]
        assert isinstance(event, EventId)
        message, since = self._waiting.pop(event)
        aged = message.aged(now - since)
        if aged is None:
            self._port.note(Fact("drop", event=event, reason=LEASE_OVER))
        else:
            self._port.broadcast(aged)

    def stop(self) -> None:
        """Disarm every wait."""
        for event in self._waiting:
            self._port.cancel_timer(("relay", event))
        self._waiting.clear()
