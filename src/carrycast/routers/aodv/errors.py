"""Telling those who rely on a route that it is lost [RFC 6.11]."""

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import MAX_LOST, RouteError
from carrycast.routers.aodv.rules import RateLimit
from carrycast.routers.aodv.station import Station
from carrycast.routers.aodv.table import Route


class Errors:
    """The route errors of one node."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._limit = RateLimit(station.settings.error_rate)

    def tell(self, now: float, lost: list[Route], repaired: bool = False) -> list[NodeId]:
        """Tell the precursors of some routes, of which those that are lost have none afterward; who they were."""
        relied_on = [route for route in lost if route.precursors]
        told = list(dict.fromkeys(neighbor for route in relied_on for neighbor in route.precursors))
        self._send(now, told, [(route.target, route.sequence) for route in relied_on], repaired)
        if not repaired:
            for route in relied_on:
                route.precursors.clear()
        return told

    # [RFC 6.11 (ii)] A packet came for a destination without a valid route.
    def tell_sender(self, now: float, sender: NodeId, target: NodeId) -> None:
        """Deviation: who sent the packet is told, precursor or not; without a number if none is known (any more)."""
        route = self._station.table.known(now, target)
        told = dict.fromkeys([sender]) if route is None else dict.fromkeys([sender, *route.precursors])
        self._send(now, list(told), [(target, 0 if route is None else route.sequence)], repaired=False)

    # [RFC 6.11 (iii)]
    def receive(self, now: float, sender: NodeId, message: RouteError) -> None:
        """A next hop has lost destinations: whoever routes over it has too."""
        table = self._station.table
        affected = []
        for target, sequence in message.lost:
            route = table.valid(now, target)
            if route is None or route.next_hop != sender:
                continue
            if message.repaired:
                affected.append(route)
            elif 0 < sequence <= route.sequence:
                # The own route is newer than the loss: it was made after it.
                self._station.drop("error_stale", sender)
            else:
                forged = sequence > 0 and self._station.is_forged(now, target, sequence)
                if forged:
                    self._station.drop("sequence_forged", sender)
                # That the next hop does not carry on is its word, whatever the number.
                table.end(now, route, 0 if forged else sequence)
                affected.append(route)
        self.tell(now, affected, message.repaired)

    def _send(self, now: float, told: list[NodeId], lost: list[tuple[NodeId, int]], repaired: bool) -> None:
        station = self._station
        for start in range(0, len(lost) if told else 0, MAX_LOST):
            if not self._limit.take(now):
                # [RFC 6.11] RERR_RATELIMIT
                station.drop("error_rate")
                return
            error = RouteError(tuple(lost[start : start + MAX_LOST]), repaired)
            # [RFC 6.11] Unicast if there is one precursor, else broadcast.
            if len(told) == 1:
                station.port.send(told[0], error)
            else:
                station.broadcast(now, error)
