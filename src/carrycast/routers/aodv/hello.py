"""HELLOs [RFC 6.9]: links that are watched by listening, where the link layer does not tell of broken ones."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import Hello
from carrycast.routers.aodv.station import Station


class Hellos:
    """Says HELLO with the timer "hello", and watches each neighbor that does with the timer ("silent", neighbor)."""

    def __init__(self, station: Station, rng: Random) -> None:
        self._station = station
        self._rng = rng
        self._watched: dict[NodeId, None] = {}

    def start(self) -> None:
        """At a random moment of the first interval, so that nodes started together do not speak together for ever."""
        settings = self._station.settings
        if settings.detection == "hello":
            self._station.port.set_timer("hello", settings.hello_interval_s * self._rng.random())

    def stop(self) -> None:
        """Leave no timer armed."""
        self._station.port.cancel_timer("hello")
        for neighbor in self._watched:
            self._station.port.cancel_timer(("silent", neighbor))
        self._watched.clear()

    def say(self, now: float) -> None:
        """[RFC 6.9] If the node has active routes, and has not broadcast anything else within the interval."""
        station, settings = self._station, self._station.settings
        spoke = station.last_broadcast_s > now - settings.hello_interval_s and station.last_broadcast_s > 0
        if not spoke and station.table.is_active(now):
            station.broadcast(now, Hello(station.sequence))
        jitter = settings.hello_jitter
        factor = 1.0 if jitter == 0 else self._rng.uniform(1 - jitter, 1 + jitter)
        station.port.set_timer("hello", settings.hello_interval_s * factor)

    def receive(self, now: float, sender: NodeId, message: Hello) -> None:
        """The sender is a neighbor, with its own sequence number."""
        station = self._station
        until = now + self._silence_s()
        if station.is_forged(now, sender, message.sequence):
            station.drop("sequence_forged", sender)
        elif station.table.offer(now, sender, message.sequence, 1, sender, until) is None:
            station.drop("table_full", sender)
        elif station.settings.detection == "hello":
            self._watched[sender] = None
            self.hear(sender)

    def hear(self, sender: NodeId) -> None:
        """[RFC 6.9] Whatever a neighbor says shows that it is there."""
        if sender in self._watched:
            self._station.port.set_timer(("silent", sender), self._silence_s())

    def forget(self, neighbor: NodeId) -> None:
        """Its link is broken."""
        if neighbor in self._watched:
            del self._watched[neighbor]
            self._station.port.cancel_timer(("silent", neighbor))

    def _silence_s(self) -> float:
        # With jitter the last of the forgiven ones may come late.
        settings = self._station.settings
        return settings.hello_interval_s * (settings.hello_loss + settings.hello_jitter)
