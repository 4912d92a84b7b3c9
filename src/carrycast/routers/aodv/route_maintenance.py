"""Route maintenance: RERRs to precursors of broken routes [RFC 6.11], and HELLOs to detect broken links [RFC 6.9]."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.routers.aodv.messages import MAX_UNREACHABLE, Hello, RouteError
from carrycast.routers.aodv.route_table import RouteEntry
from carrycast.routers.aodv.rules import MessageRateLimit
from carrycast.routers.aodv.state import AodvState


class RouteErrors:
    """Sends and processes RERRs."""

    def __init__(self, state: AodvState) -> None:
        self._state = state
        self._limit = MessageRateLimit(state.settings.error_rate)

    def notify_precursors(self, now: float, routes: list[RouteEntry], no_delete: bool = False) -> list[NodeId]:
        """Send a RERR about some routes to their precursors, and return these.

        Afterward the precursor lists are empty, unless flag N (`no_delete`) is set: then the routes are still in use.
        """
        used = [route for route in routes if route.precursors]
        receivers = list(dict.fromkeys(neighbor for route in used for neighbor in route.precursors))
        self._send(now, receivers, [(route.destination, route.sequence) for route in used], no_delete)
        if not no_delete:
            for route in used:
                route.precursors.clear()
        return receivers

    # [RFC 6.11 (ii)] A packet came for a destination without a valid route.
    def notify_sender(self, now: float, sender: NodeId, destination: NodeId) -> None:
        """Send a RERR to the neighbor that sent a packet, and to the precursors of the destination.

        Deviation: the sender gets it even if it is no precursor. The sequence number is 0 if none is known.
        """
        entry = self._state.table.find(now, destination)
        receivers = dict.fromkeys([sender] if entry is None else [sender, *entry.precursors])
        unreachable = [(destination, 0 if entry is None else entry.sequence)]
        self._send(now, list(receivers), unreachable, no_delete=False)

    # [RFC 6.11 (iii)]
    def on_error(self, now: float, sender: NodeId, message: RouteError) -> None:
        """Invalidate the routes whose next hop can no longer reach the destination, and notify their precursors."""
        table = self._state.table
        affected = []
        for destination, sequence in message.unreachable:
            route = table.find_valid(now, destination)
            if route is None or route.next_hop != sender:
                continue
            if message.no_delete:
                affected.append(route)
            elif 0 < sequence <= route.sequence:
                # The own route was made after the break.
                self._state.drop("error_stale", sender)
            else:
                forged = sequence > 0 and self._state.is_forged(now, destination, sequence)
                if forged:
                    self._state.drop("sequence_forged", sender)
                # Whatever the number, the next hop says that it does not forward packets to the destination.
                table.invalidate(now, route, 0 if forged else sequence)
                affected.append(route)
        self.notify_precursors(now, affected, message.no_delete)

    def _send(
        self, now: float, receivers: list[NodeId], unreachable: list[tuple[NodeId, int]], no_delete: bool
    ) -> None:
        state = self._state
        for start in range(0, len(unreachable) if receivers else 0, MAX_UNREACHABLE):
            if not self._limit.take(now):
                # [RFC 6.11] RERR_RATELIMIT
                state.drop("error_rate")
                return
            error = RouteError(tuple(unreachable[start : start + MAX_UNREACHABLE]), no_delete)
            # [RFC 6.11] Unicast to a single precursor, else broadcast.
            if len(receivers) == 1:
                state.port.send(receivers[0], error)
            else:
                state.broadcast(now, error)


class HelloMessages:
    """HELLOs [RFC 6.9], for link layers that do not report broken links.

    The timer "hello" sends them. The timer ("neighbor", id) expires when a neighbor that sends HELLOs has not been
    heard for ALLOWED_HELLO_LOSS intervals.
    """

    def __init__(self, state: AodvState, rng: Random) -> None:
        self._state = state
        self._rng = rng
        self._monitored: dict[NodeId, None] = {}

    def start(self) -> None:
        """Set the timer to a random moment of the first interval: nodes started together must not stay synchronized."""
        settings = self._state.settings
        if settings.detection == "hello":
            self._state.port.set_timer("hello", settings.hello_interval_s * self._rng.random())

    def stop(self) -> None:
        """Cancel all timers."""
        self._state.port.cancel_timer("hello")
        for neighbor in self._monitored:
            self._state.port.cancel_timer(("neighbor", neighbor))
        self._monitored.clear()

    def send_hello(self, now: float) -> None:
        """[RFC 6.9] Send a HELLO if the node has active routes and has broadcast nothing else within the interval."""
        state, settings = self._state, self._state.settings
        has_broadcast = state.last_broadcast_s > now - settings.hello_interval_s and state.last_broadcast_s > 0
        if not has_broadcast and state.table.has_active_route(now):
            state.broadcast(now, Hello(state.sequence))
        jitter = settings.hello_jitter
        factor = 1.0 if jitter == 0 else self._rng.uniform(1 - jitter, 1 + jitter)
        state.port.set_timer("hello", settings.hello_interval_s * factor)

    def on_hello(self, now: float, sender: NodeId, message: Hello) -> None:
        """Create or update the route to the neighbor, and monitor its link."""
        state = self._state
        expires_at = now + self._allowed_silence_s()
        if state.is_forged(now, sender, message.sequence):
            state.drop("sequence_forged", sender)
        elif state.table.update(now, sender, message.sequence, 1, sender, expires_at) is None:
            state.drop("table_full", sender)
        elif state.settings.detection == "hello":
            self._monitored[sender] = None
            self.restart_timer(sender)

    def restart_timer(self, sender: NodeId) -> None:
        """[RFC 6.9] Any message of a monitored neighbor shows that the link works."""
        if sender in self._monitored:
            self._state.port.set_timer(("neighbor", sender), self._allowed_silence_s())

    def forget(self, neighbor: NodeId) -> None:
        """Stop monitoring a neighbor whose link is broken."""
        if neighbor in self._monitored:
            del self._monitored[neighbor]
            self._state.port.cancel_timer(("neighbor", neighbor))

    def _allowed_silence_s(self) -> float:
        # ALLOWED_HELLO_LOSS HELLO_INTERVAL; with jitter the HELLO after the lost ones may come late.
        settings = self._state.settings
        return settings.hello_interval_s * (settings.hello_loss + settings.hello_jitter)
