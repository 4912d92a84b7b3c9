"""Route advertisements [DSDV94, Route Advertisements]: full dumps, and incremental updates in between."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.protocol import Port
from carrycast.routers.dsdv.messages import MAX_ENTRIES, MAX_SEQUENCE, AdvertisedRoute, RouteUpdate
from carrycast.routers.dsdv.route_table import Change, DistanceEntry, DistanceTable
from carrycast.routers.dsdv.settings import DsdvSettings


class UpdateSender:
    """Sends the updates of one node. The timer "trigger" is for incremental ones."""

    def __init__(
        self, node: NodeId, sequence: int, settings: DsdvSettings, table: DistanceTable, port: Port, rng: Random
    ) -> None:
        self._node = node
        self._settings = settings
        self._table = table
        self._port = port
        self._rng = rng
        self._sequence = sequence
        self._has_dumped = False
        self._due = float("inf")
        """When the timer fires."""
        self._last_trigger = float("-inf")

    @property
    def sequence(self) -> int:
        """The own sequence number."""
        return self._sequence

    def exceed(self, sequence: int) -> None:
        """Others have a greater number of this node: its next one is above that."""
        if self._sequence < sequence < MAX_SEQUENCE - 2:
            self._sequence = sequence + sequence % 2

    def trigger(self, now: float, at: float | None = None) -> None:
        """Send an incremental update soon, or at a time; at most one in `min_trigger_s`."""
        settings = self._settings
        earliest = max(now, self._last_trigger + settings.min_trigger_s)
        due = max(earliest, at or now) + settings.trigger_jitter_s * self._rng.random()
        if due < self._due:
            self._due = due
            self._port.set_timer("trigger", due - now)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._due < float("inf"):
            self._port.cancel_timer("trigger")
            self._due = float("inf")

    # [DSDV94, Route Advertisements] "One will carry all the available routing information, called a 'full dump'."
    def send_full_dump(self, now: float, only_own: bool = False) -> None:
        """Send all routes, with a new own sequence number."""
        # Own numbers are even, since the node itself can be reached.
        # An incremental update before the first full dump has the same number.
        if self._has_dumped:
            self._sequence += 2
        self._has_dumped = True
        routes = [AdvertisedRoute(self._node, 0, self._sequence)]
        if not only_own:
            routes.extend(
                self._advertise(now, destination, entry)
                for destination, entry in self._table
                if entry.advertised_sequence or entry.advertise_at <= now
            )
        self.stop()
        self._send(routes)
        self._schedule_settling(now)

    # [DSDV94, Route Advertisements] "The other type will carry only information changed since the last full dump,
    # called an 'incremental'." It should fit in one packet; with more changes a full dump is sent.
    def send_incremental(self, now: float, only_own: bool = False) -> None:
        """Send the routes that have changed. Significant changes come first."""
        self._due = float("inf")
        self._last_trigger = now
        if only_own:
            return
        changed = [
            (destination, entry)
            for destination, entry in self._table
            if entry.change is not Change.NONE and entry.advertise_at <= now
        ]
        changed.sort(key=lambda one: -one[1].change)
        significant = sum(entry.change is Change.METRIC for _, entry in changed)
        if significant >= MAX_ENTRIES:
            self.send_full_dump(now)
            return
        if changed and (significant or self._settings.trigger_on == "sequence"):
            own = AdvertisedRoute(self._node, 0, self._sequence)
            # New sequence numbers alone may wait for the next full dump.
            fitting = changed[: MAX_ENTRIES - 1]
            self._send([own, *(self._advertise(now, destination, entry) for destination, entry in fitting)])
        self._schedule_settling(now)

    def _advertise(self, now: float, destination: NodeId, entry: DistanceEntry) -> AdvertisedRoute:
        """What others are told of a route: as long as it settles, the previous metric and number."""
        if entry.advertise_at <= now:
            entry.advertised_metric, entry.advertised_sequence = entry.metric, entry.sequence
            entry.change = Change.NONE
        return AdvertisedRoute(destination, entry.advertised_metric, entry.advertised_sequence)

    def _schedule_settling(self, now: float) -> None:
        """Trigger the next update when the first route has settled."""
        settling = [entry.advertise_at for _, entry in self._table if entry.change is Change.METRIC]
        if settling:
            self.trigger(now, max(min(settling), now))

    def _send(self, routes: list[AdvertisedRoute]) -> None:
        for start in range(0, len(routes), MAX_ENTRIES):
            self._port.broadcast(RouteUpdate(tuple(routes[start : start + MAX_ENTRIES])))
