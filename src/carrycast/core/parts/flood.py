"""Events that are broadcast onward by those who first meet them: what flooding and its relatives do alike."""

from random import Random
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import FOREVER_S, Event, EventId
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Fact, Port, Settings, TimerKey
from carrycast.core.wire import LEASE_EXPIRED, EventMessage


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
        aged = message.age_by(now - since)
        if aged is None:
            self._port.note(Fact("drop", event=event, reason=LEASE_EXPIRED))
        else:
            self._port.broadcast(aged)

    def stop(self) -> None:
        """Disarm every wait."""
        for event in self._waiting:
            self._port.cancel_timer(("relay", event))
        self._waiting.clear()


class Flood:
    """One node's part in the flood of events, carried by messages of one type. Whether it passes on what it has met is
    the protocol's to say."""

    __slots__ = ("_carried", "_flood_s", "_port", "_relay", "local", "seen_ids")

    def __init__(self, port: Port, rng: Random, settings: RelaySettings, carried: type[EventMessage]) -> None:
        self._relay = Relay(port, rng, settings)
        self._carried = carried
        self._flood_s = settings.flood_s
        self._port = port
        self.local = LocalSubscriptions(port)
        self.seen_ids = self._relay.seen.ids
        """The events met so far, for a quick look: most receptions are repetitions."""

    def publish(self, now: float, event: Event) -> None:
        """A local event: the source itself always speaks."""
        if self._meet(now, event, 0):
            self._relay.pass_on(now, self._carried(event, 1, self._bounded_s(event, event.lease_s)))

    def meet(self, now: float, message: EventMessage) -> bool:
        """A message: delivered here if its event is met for the first time, and others may still remember it."""
        event = message.event
        if event.lease_s < FOREVER_S and event.lease_s - message.remaining_s >= self._flood_s:
            # Those who met it first may have forgotten it, and would take it for new.
            self._port.note(Fact("drop", event=event.id, reason=FLOOD_OVER))
            return False
        return self._meet(now, event, message.hops)

    def pass_on(self, now: float, message: EventMessage) -> None:
        """Broadcast onward what has been met."""
        remaining_s = self._bounded_s(message.event, message.remaining_s)
        self._relay.pass_on(now, self._carried(message.event, message.hops + 1, remaining_s))

    def _bounded_s(self, event: Event, remaining_s: float) -> float:
        """How old an event is follows from what is left of its lease. Of one that lives for ever it does not: it says
        how long it is passed on instead."""
        return remaining_s if event.lease_s < FOREVER_S else min(remaining_s, self._flood_s)

    def on_timer(self, now: float, key: TimerKey) -> None:
        """The wait of a rebroadcast is over."""
        self._relay.on_timer(now, key)

    def stop(self) -> None:
        """Disarm every wait."""
        self._relay.stop()

    def _meet(self, now: float, event: Event, hops: int) -> bool:
        first = self._relay.meet(now, event.id)
        if first:
            self.local.deliver(event, hops)
        return first
