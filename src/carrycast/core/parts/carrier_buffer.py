"""The buffer of a carrier: events kept until their leases expire, delivered once, with duplicates recognized."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId, Request, Subscription
from carrycast.core.parts.buffer import BufferedEvent, LeaseTimer, make_memory, restore_buffer
from carrycast.core.parts.copies import CopyRule
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import LOG_BYTES, DurableLog, LogBytes, LogRecord
from carrycast.core.parts.requests import OpenRequests
from carrycast.core.protocol import (
    CUSTODY,
    Capability,
    DurableStore,
    Fact,
    Port,
    Settings,
)

LEASE = "lease"


class CarrierSettings(Settings, frozen=True):
    """The size of the buffer, the longest lease, and the retry interval."""

    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="events carried besides stored ones; when it is full, the oldest arrival is evicted",
        ),
    ] = 10_000
    max_lease_s: Annotated[
        float,
        Meta(gt=0, description="the longest time that an event is carried; at level stored a longer lease is refused"),
    ] = 3600.0
    seen_grace_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="how long past its lease an event is remembered, to recognize copies that expire later",
        ),
    ] = 60.0
    again_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="retry interval, after failures and for missing events",
        ),
    ] = 10.0
    durable: Annotated[bool, Meta(description="whether events and received ids are in the durable store")] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()


class CarrierBuffer:
    """The carried events of one node, the ids of others that it received, and its local applications."""

    def __init__(
        self, port: Port, settings: CarrierSettings, store: DurableStore | None, rule: CopyRule | None = None
    ) -> None:
        """`rule` chooses which event a full buffer evicts; without one, the oldest arrival."""
        self._rule = rule
        self._port = port
        self._settings = settings
        self.local = LocalSubscriptions(port)
        self.requests = OpenRequests(port)
        # `_gone` recognizes duplicates of events that were received and are not carried.
        self.log = None if store is None else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s")
        self._buffer, self._gone = make_memory(settings.buffer, self.log, store)
        self.events = self._buffer.events
        """The carried events, oldest arrival first; read-only."""
        self._leases = LeaseTimer(port, self._buffer, LEASE)

    def load(self, now: float) -> list[EventId]:
        """Restore the previous run; returns the events that expired or no longer fit."""
        settings = self._settings
        self._gone.load(now + settings.max_lease_s + settings.seen_grace_s)
        over = restore_buffer(self._port, now, self._buffer, settings.max_lease_s)
        for stored in over:
            self._gone.add(now, stored.id, stored.until + settings.seen_grace_s)
        self._leases.watch(now)
        return [stored.id for stored in over]

    def received_ids(self) -> Iterator[EventId]:
        """The ids of all events that this node remembers, carried or not."""
        yield from self.events
        yield from self._gone.ids

    def is_new(self, id: EventId) -> bool:
        """Whether an event is not a duplicate."""
        return id not in self.events and id not in self._gone.ids

    def receive(
        self, now: float, event: Event, hops: int, remaining_s: float, carry: bool, transferred: bool = False
    ) -> list[EventId]:
        """Deliver a new event, and carry it (in custody, if it is a custody transfer and there is room) or only
        remember its id. Returns the evicted events."""
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        self.local.deliver(event, hops)
        if not carry:
            self._gone.add(now, event.id, until + self._settings.seen_grace_s)
            self.requests.answer_with(event, hops)
            return []
        custody = transferred and self.log is not None and self.log.can_take(event, remaining_s)
        stored = BufferedEvent(until, event.id, event, hops)
        rule = self._rule
        choose = None if rule is None else (lambda ids: rule.choose_eviction(now, ids))
        gone = self._buffer.add(stored, custody, choose)
        self._port.note(Fact("store", event.id))
        self.requests.answer_with(event, hops)
        for evicted in gone:
            self._forget(now, evicted, "buffer_full")
        self._leases.watch(now)
        return [evicted.id for evicted in gone]

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes; with `history`, the carried events are delivered first."""
        known = subscription.id in self.local
        self.local.add(subscription)
        if subscription.history and not known:
            # Later copies of the carried events are duplicates, and are not delivered again.
            for stored in self._buffer.find_matching(now, subscription.filter, subscription.attributes):
                self._port.deliver(subscription.id, stored.event, stored.hops)
            self._port.close_history(subscription.id, complete=False)

    def request(self, now: float, request: Request) -> None:
        """Answer a request from the carried events. Other nodes may have more, so the answer is never complete."""
        self.requests.open(now, request, self._buffer.find_matching(now, request.filter, request.attributes))

    def is_guaranteed(self, id: EventId) -> bool:
        """Whether this node may delete an event only after another node has accepted custody."""
        return self._buffer.is_guaranteed(id)

    def take_custody(self, sender: NodeId, event: Event, remaining_s: float) -> bool:
        """Accept custody of a carried event, with the guarantee of its sender; False if that is not possible."""
        stored = self._buffer.get(event.id)
        if self.log is None or stored is None:
            return False
        if not self.log.is_guaranteed(event.id) and not self.log.can_take(event, remaining_s):
            self._port.note(Fact("drop", event.id, sender, "custody_refused"))
            return False
        # Written even if unchanged, so that the custody signal waits for a commit.
        self.log.put(LogRecord(stored.until, event, stored.hops), custody=True)
        self._port.note(Fact(CUSTODY, event.id, sender))
        return True

    def transfer(self, now: float, id: EventId, reason: str = "handed_on") -> None:
        """The event was transferred to another node."""
        stored = self._buffer.get(id)
        if stored is not None:
            self._buffer.discard(id)
            self._forget(now, stored, reason)

    def on_lease(self, now: float) -> list[EventId]:
        """The timer `LEASE`: remove the expired events."""
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
