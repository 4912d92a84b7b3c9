"""Events that are broadcast onward by those who first meet them: what flooding and its relatives do alike."""

from random import Random

from carrycast.core.model import FOREVER_S, Event
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.relay import FLOOD_OVER, Relay, RelaySettings
from carrycast.core.protocol import Fact, Port, TimerKey
from carrycast.core.wire import EventMessage


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
