"""Events that are broadcast onward by those who first meet them: what flooding and its relatives do alike."""

from random import Random

from driftcast.model import Event
from driftcast.parts.local import LocalSubscriptions
from driftcast.parts.relay import Relay, RelaySettings
from driftcast.protocol import Port, TimerKey
from driftcast.wire import EventMessage


class Flood:
    """One node's part in the flood of events, carried by messages of one type. Whether it passes on what it has met is
    the protocol's to say."""

    __slots__ = ("_carried", "_relay", "local", "seen_ids")

    def __init__(self, port: Port, rng: Random, settings: RelaySettings, carried: type[EventMessage]) -> None:
        self._relay = Relay(port, rng, settings)
        self._carried = carried
        self.local = LocalSubscriptions(port)
        self.seen_ids = self._relay.seen.ids
        """The events met so far, for a quick look: most receptions are repetitions."""

    def publish(self, now: float, event: Event) -> None:
        """A local event: the source itself always speaks."""
        if self._meet(now, event, 0):
            self._relay.pass_on(now, self._carried(event, 1, event.lease_s))

    def meet(self, now: float, message: EventMessage) -> bool:
        """A message: delivered here if its event is met for the first time."""
        return self._meet(now, message.event, message.hops)

    def pass_on(self, now: float, message: EventMessage) -> None:
        """Broadcast onward what has been met."""
        self._relay.pass_on(now, self._carried(message.event, message.hops + 1, message.remaining_s))

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
