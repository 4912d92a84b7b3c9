"""The buffer of a carrier: events kept until their leases expire, delivered once, with duplicates recognized."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Request, Subscription
from carrycast.core.parts.buffer import BufferedEvent, LeaseTimer, make_memory, restore_buffer
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import LOG_BYTES, DurableLog, LogBytes, LogRecord
from carrycast.core.parts.requests import OpenRequests
from carrycast.core.protocol import (
    Capability,
    DurableStore,
    Fact,
    Port,
    Settings,
)
from carrycast.core.protocol.retention_accounting import CUSTODY

LEASE = "lease"


class CarrierSettings(Settings, frozen=True):
    """How much is carried for how long, and when a node tries again."""

    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="events carried beside stored ones; the oldest arrival makes room",
        ),
    ] = 10_000
    max_lease_s: Annotated[
        float,
        Meta(gt=0, description="no event is carried for longer; at level stored a longer lease is refused"),
    ] = 3600.0
    seen_grace_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="how long past its lease an event is remembered: other copies may end a little later",
        ),
    ] = 60.0
    again_s: Annotated[
        float,
        Meta(ge=0.001, le=86_400, description="what failed, or was asked for and did not come, is tried again then"),
    ] = 10.0
    durable: Annotated[bool, Meta(description="what is carried and what was met is in the node's durable store")] = (
        False
    )
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()


class CarrierBuffer:
    """The buffer of one node, what it remembers beyond it, and its applications."""

    def __init__(self, port: Port, settings: CarrierSettings, store: DurableStore | None) -> None:
        self._port = port
        self._settings = settings
        self.local = LocalSubscriptions(port)
        self.requests = OpenRequests(port)
        # Besides what is carried, what was met and is not.
        self.log = None if store is None else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s")
        self._buffer, self._gone = make_memory(settings.buffer, self.log, store)
        self.events = self._buffer.events
        """What is carried, oldest arrival first; to be read only."""
        self._leases = LeaseTimer(port, self._buffer, LEASE)

    def load(self, now: float) -> list[EventId]:
        """Go on with what was carried and met when the node last ran; what of it is over, or no longer fits."""
        settings = self._settings
        self._gone.load(now + settings.max_lease_s + settings.seen_grace_s)
        over = restore_buffer(self._port, now, self._buffer, settings.max_lease_s)
        for stored in over:
            self._gone.add(now, stored.id, stored.until + settings.seen_grace_s)
        self._leases.watch(now)
        return [stored.id for stored in over]

    def is_new(self, id: EventId) -> bool:
        """Whether an event was not met before, as far as is remembered."""
        return id not in self.events and id not in self._gone.ids

    def meet(
        self, now: float, event: Event, hops: int, remaining_s: float, carry: bool, entrusted: bool = False
    ) -> list[EventId]:
        """Deliver a new event and carry it, in custody if it is entrusted to this node and there is room, or just
        remember it; what had to make room for it."""
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        self.local.deliver(event, hops)
        if not carry:
            self._gone.add(now, event.id, until + self._settings.seen_grace_s)
            self.requests.meet(event, hops)
            return []
        custody = entrusted and self.log is not None and self.log.can_take(event, remaining_s)
        gone = self._buffer.add(BufferedEvent(until, event.id, event, hops), custody)
        self._port.note(Fact("store", event.id))
        self.requests.meet(event, hops)
        for evicted in gone:
            self._forget(now, evicted, "buffer_full")
        self._leases.watch(now)
        return [evicted.id for evicted in gone]

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes; with `history` it begins with what is carried here."""
        known = subscription.id in self.local
        self.local.add(subscription)
        if subscription.history and not known:
            # What is carried has been met, and so is not delivered again when another copy comes.
            for stored in self._buffer.serving(now, subscription.filter, subscription.attributes):
                self._port.deliver(subscription.id, stored.event, stored.hops)
            self._port.close_history(subscription.id, complete=False)

    def request(self, now: float, request: Request) -> None:
        """What is carried here; what others carry nobody knows, so that is never all."""
        self.requests.ask(now, request, self._buffer.serving(now, request.filter, request.attributes))

    def is_guaranteed(self, id: EventId) -> bool:
        """Whether this node may let go of an event only when another has confirmed its custody."""
        return self._buffer.is_guaranteed(id)

    def take_custody(self, sender: NodeId, event: Event, remaining_s: float) -> bool:
        """Keep an event that is carried here on the terms of its sender, who lets go of it; False if that cannot be."""
        stored = self._buffer.get(event.id)
        if self.log is None or stored is None:
            return False
        if not self.log.is_guaranteed(event.id) and not self.log.can_take(event, remaining_s):
            self._port.note(Fact("drop", event.id, sender, "custody_refused"))
            return False
        # Written in any case, so that what confirms it waits for a commit.
        self.log.put(LogRecord(stored.until, event, stored.hops), custody=True)
        self._port.note(Fact(CUSTODY, event.id, sender))
        return True

    def hand_on(self, now: float, id: EventId, reason: str = "handed_on") -> None:
        """The copy is with somebody else now."""
        stored = self._buffer.get(id)
        if stored is not None:
            self._buffer.discard(id)
            self._forget(now, stored, reason)

    def on_lease(self, now: float) -> list[EventId]:
        """The timer `LEASE`: what is over goes."""
        gone = self._buffer.expire(now)
        for stored in gone:
            self._forget(now, stored, "lease_over")
        self._leases.watch(now, again=True)
        return [stored.id for stored in gone]

    def stop(self) -> None:
        """Disarm the timers."""
        self._leases.stop()
        self.requests.stop()

    def _forget(self, now: float, stored: BufferedEvent, reason: str) -> None:
        self._gone.add(now, stored.id, stored.until + self._settings.seen_grace_s)
        self._port.note(Fact("evict", stored.id, reason=reason))
