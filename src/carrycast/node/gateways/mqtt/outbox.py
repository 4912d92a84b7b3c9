"""What a client still has to get: messages on their way with their packet ids, and those that wait for a free place.

QoS 1 ends with PUBACK. QoS 2 is the client's with PUBREC; then its id stays taken until PUBCOMP, over connections.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from msgspec import Struct

from carrycast.core.model import SubscriptionId
from carrycast.node.gateways.mqtt import properties as kinds
from carrycast.node.gateways.mqtt.packets import Ack, Message
from carrycast.node.gateways.mqtt.reasons import Reason

MAX_FLIGHTS = 64
"""Messages of one client on their way, however many more it would take: few enough to be sent again at once."""
MAX_ID = 65_535


class Origin(Struct, frozen=True):
    """Where a message waits until it is acknowledged: a named subscription of the node, and its position there. By its
    id: another one that has the same name later counts its positions anew."""

    subscription: SubscriptionId
    position: int


class Parcel(Struct):
    """A message for one client."""

    message: Message
    until_s: float
    """When nobody wants it any more."""
    origin: Origin | None = None
    again: bool = False
    group: str | None = None
    """Of which somebody else may have it instead."""


class Flight(Struct):
    """A message on its way, under its packet id."""

    packet_id: int
    qos: int
    origin: Origin | None = None
    parcel: Parcel | None = None
    """None if the subscription will bring it once more."""
    released: bool = False
    """Whether the client has it, and only the id is still to be freed."""
    live: bool = True
    """Whether it was sent over the present connection."""


class Line(Protocol):
    """The way to a client that is connected."""

    @property
    def room(self) -> int:
        """How many messages it takes at a time; 0 while it does not read."""

    def message(self, message: Message, until_s: float, packet_id: int, again: bool) -> bool:
        """Send a message; False if the client does not take any so long."""

    def ack(self, kind: int, packet_id: int, reason: int = 0) -> None: ...


class Keeper(Protocol):
    """What the rest of the gateway does for an outbox."""

    def stands(self, origin: Origin) -> bool:
        """Whether the subscription that a message came from is still there."""

    def settle(self, origin: Origin, saved: Callable[[], None] | None) -> None:
        """A message has arrived for good; `saved` is called when that is kept."""

    def keep_flight(self, flight: Flight, kept: Callable[[], None] | None) -> None:
        """Remember a flight of QoS 2 over restarts; `kept` is called when that is written."""

    def forget_flight(self, flight: Flight) -> None: ...

    def drop(self, reason: str) -> None: ...

    def now_s(self) -> float: ...


class Outbox:
    """Of one client, over its connections."""

    def __init__(self, keeper: Keeper, most_waiting: int) -> None:
        self._keeper = keeper
        self._most_waiting = most_waiting
        self._line: Line | None = None
        self._waiting: deque[Parcel] = deque()
        self._later: dict[str, Iterator[Parcel]] = {}
        self._flights: dict[int, Flight] = {}
        self._by_origin: dict[Origin, Flight] = {}
        self._due: deque[Flight] = deque()
        """Flights to be sent again, when there is room."""
        self._brought: dict[SubscriptionId, int] = {}
        """Of each subscription, the last position that it has brought over this connection."""
        self._stale = 0
        """Flights that were not sent over this connection yet."""
        self._next = 1

    @property
    def flights(self) -> Iterable[int]:
        """The packet ids that are taken."""
        return self._flights

    @property
    def origins(self) -> Iterable[Origin]:
        """Where what is on its way came from."""
        return self._by_origin

    @property
    def free(self) -> bool:
        """Whether something that is offered now would be sent now."""
        line = self._line
        return line is not None and not self._due and not self._waiting and self._live < min(line.room, MAX_FLIGHTS)

    @property
    def _live(self) -> int:
        """How many were sent over this connection, which are those that its limit counts [MQTT 5, 4.9]."""
        return len(self._flights) - self._stale

    @property
    def connected(self) -> bool:
        return self._line is not None

    def holds(self, origin: Origin) -> bool:
        """Whether a message is on its way to this client, or was when it left."""
        return origin in self._by_origin

    def restore(self, flight: Flight) -> None:
        """A flight of QoS 2 from before a restart."""
        flight.live = False
        self._enter(flight)
        self._stale += 1

    def connect(self, line: Line) -> None:
        """The client is there: what was on its way comes again [MQTT-4.4.0-1]."""
        self._line = line
        self._stale = sum(not flight.live for flight in self._flights.values())
        for flight in list(self._flights.values()):
            if flight.released:
                line.ack(kinds.PUBREL, flight.packet_id)
            elif flight.parcel is not None:
                self._due.append(flight)
        self.pump()

    def disconnect(self) -> list[Parcel]:
        """The client has gone; what others of its groups may have instead."""
        self._line = None
        self._due.clear()
        handed_back = [parcel for parcel in self._waiting if parcel.group is not None]
        # What waits in the store is brought again by its subscription.
        self._waiting = deque(parcel for parcel in self._waiting if parcel.origin is None and parcel.group is None)
        for flight in list(self._flights.values()):
            parcel = flight.parcel
            if flight.released:
                flight.live = False
                continue
            if parcel is not None and parcel.group is not None and flight.qos == 1:
                self._end(flight)
                handed_back.append(parcel)
            elif not flight.live and parcel is None and not self._will_come(flight):
                self._end(flight)
            else:
                flight.live = False
                if (parcel is None or parcel.group is None) and self._will_come(flight):
                    flight.parcel = None
        self._brought.clear()
        return handed_back

    def _will_come(self, flight: Flight) -> bool:
        """Whether its subscription will bring it once more. One that has ended does not, nor one that has brought what
        came after it already: it was dropped there."""
        origin = flight.origin
        if origin is None or not self._keeper.stands(origin):
            return False
        return flight.live or self._brought.get(origin.subscription, 0) <= origin.position

    def offer(self, parcel: Parcel) -> None:
        """Send a message, or let it wait; if too many do, it is dropped."""
        line = self._line
        if parcel.origin is not None:
            self._brought[parcel.origin.subscription] = parcel.origin.position
        if parcel.message.qos == 0:
            if line is None or line.room == 0:
                self._keeper.drop("client_slow")
            else:
                self._send_once(line, parcel)
            return
        flight = None if parcel.origin is None else self._by_origin.get(parcel.origin)
        if flight is not None:
            if flight.released:
                # The client has had it; what failed is only the word of that to the subscription.
                self._settle(flight.origin)
            elif line is None:
                flight.parcel = parcel
            elif not flight.live:
                flight.parcel = parcel
                self._due.append(flight)
                self.pump()
            return
        if parcel.origin is None and len(self._waiting) >= self._most_waiting:
            self._keeper.drop("client_slow")
            return
        self._waiting.append(parcel)
        self.pump()

    def offer_later(self, subscription: str, parcels: Iterator[Parcel]) -> None:
        """What comes as the client takes it, however much there is, from the next `pump` on. Who asks again for one
        subscription gets it from the start."""
        self._later[subscription] = parcels

    def cancel_later(self, subscription: str) -> None:
        """Nothing more of that."""
        self._later.pop(subscription, None)

    def pump(self) -> None:
        """Send what waits, as far as the client takes it."""
        line = self._line
        while line is not None and (self._due or self._waiting or self._fetch()) and (room := line.room):
            full = self._live >= min(room, MAX_FLIGHTS)
            if self._due:
                if full:
                    break
                self._send_again(self._due.popleft())
                continue
            parcel = self._waiting[0]
            qos = parcel.message.qos
            if qos and full:
                break
            self._waiting.popleft()
            if parcel.until_s <= self._keeper.now_s():
                self._keeper.drop("lease_over")
                self._settle(parcel.origin)
            elif qos == 0:
                self._send_once(line, parcel)
            else:
                flight = Flight(self._free_id(), qos, parcel.origin, parcel)
                self._enter(flight)
                if qos == 2:
                    # Not before the id is kept: a node that forgot it would give it to another message, which the
                    # client would take for this one.
                    self._keeper.keep_flight(flight, partial(self._send_kept, line, flight, parcel))
                else:
                    self._send(flight, parcel, parcel.again)

    def _fetch(self) -> bool:
        """Let the next wait of what comes later; False if there is none."""
        while self._later:
            subscription = next(iter(self._later))
            parcel = next(self._later[subscription], None)
            if parcel is not None:
                self._waiting.append(parcel)
                return True
            del self._later[subscription]
        return False

    def on_ack(self, ack: Ack) -> None:
        """A client has answered. What was never sent is no mistake: it may be from before a restart."""
        flight = self._flights.get(ack.packet_id)
        if ack.kind == kinds.PUBACK:
            if flight is not None and flight.qos == 1:
                self._end(flight)
                self._settle(flight.origin)
        elif ack.kind == kinds.PUBREC:
            self._on_received(flight, ack)
        elif flight is not None and flight.released:
            self._end(flight)
        self.pump()

    def _on_received(self, flight: Flight | None, ack: Ack) -> None:
        line = self._line
        assert line is not None
        if flight is None or flight.qos != 2:
            line.ack(kinds.PUBREL, ack.packet_id, Reason.PACKET_ID_NOT_FOUND)
            return
        if ack.reason >= 0x80:
            # The client wants none of it: nothing follows [MQTT-4.3.3-4].
            self._end(flight)
            self._settle(flight.origin)
            return
        first, flight.released, flight.parcel = not flight.released, True, None

        def release() -> None:
            # Over the connection that there is then.
            if self._line is not None:
                self._line.ack(kinds.PUBREL, flight.packet_id)

        if flight.origin is None or not first:
            release()
        else:
            self._keeper.keep_flight(flight, None)
            self._keeper.settle(flight.origin, release)

    def _send_once(self, line: Line, parcel: Parcel) -> None:
        """With QoS 0."""
        if not line.message(parcel.message, parcel.until_s, 0, False):
            self._keeper.drop("mqtt_too_large")

    def _send_again(self, flight: Flight) -> None:
        # It may have been answered for, or brought twice, since it was due.
        if flight.parcel is not None and not flight.live and self._flights.get(flight.packet_id) is flight:
            self._send(flight, flight.parcel, again=True)

    def _send_kept(self, line: Line, flight: Flight, parcel: Parcel) -> None:
        if self._line is line and self._flights.get(flight.packet_id) is flight:
            self._send(flight, parcel, parcel.again)

    def _send(self, flight: Flight, parcel: Parcel, again: bool) -> None:
        assert self._line is not None
        self._stale -= not flight.live
        flight.parcel, flight.live = parcel, True
        if not self._line.message(parcel.message, parcel.until_s, flight.packet_id, again):
            self._keeper.drop("mqtt_too_large")
            self._end(flight)
            self._settle(flight.origin)

    def _settle(self, origin: Origin | None) -> None:
        if origin is not None:
            self._keeper.settle(origin, None)

    def _enter(self, flight: Flight) -> None:
        self._flights[flight.packet_id] = flight
        if flight.origin is not None:
            self._by_origin[flight.origin] = flight

    def _end(self, flight: Flight) -> None:
        del self._flights[flight.packet_id]
        self._stale -= not flight.live
        if flight.origin is not None:
            del self._by_origin[flight.origin]
        if flight.qos == 2:
            self._keeper.forget_flight(flight)

    def _free_id(self) -> int:
        while self._next in self._flights:
            self._next = self._next % MAX_ID + 1
        found = self._next
        self._next = found % MAX_ID + 1
        return found
