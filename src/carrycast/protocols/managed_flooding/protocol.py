"""Managed flooding, as in LoRa meshes (Meshtastic): of the nodes that received an event, the farthest rebroadcasts
first, and those that hear it cancel their own rebroadcasts.

[fw] is Meshtastic's firmware, release 2.7, [docs] its page "Mesh Broadcast Algorithm"; `rules.py` has the formulas.
"""

from collections import deque
from collections.abc import Mapping
from math import hypot
from random import Random
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import Flood, FloodSettings, Neighbors
from carrycast.core.protocol import Capability, Fact, Host, Interface, Link, Port, Protocol, TimerKey
from carrycast.core.wire import LEASE_EXPIRED, EventMessage, Message
from carrycast.protocols.managed_flooding.rules import (
    UNKNOWN_SNR_DB,
    draw_publish_slots,
    draw_relay_slots,
    estimate_snr_db,
    resend_slots,
)

ROUTER = "router"
RESEND = "resend"
COST_BYTES = 500
"""The cost of a link is the time for a packet of this size."""
# Meshtastic's default preset LongFast: 500 bytes at 1,066 b/s.
UNKNOWN_COST_S = 3.75
"""The cost of a link before a node has had one."""
HEARD = 64
"""The receptions from which a node estimates the range of its radio. So a sender that lies about its position changes
the estimate of its neighbors for that many receptions at most."""

Meters = Annotated[int, Meta(ge=-(10**9), le=10**9)]


class ManagedFloodingSettings(FloodSettings, frozen=True):
    """The hop limit, the slots of the backoff, and how often a publisher sends."""

    # [fw Default.h] HOP_RELIABLE is 3: three rebroadcasts after the publisher's transmission.
    max_hops: Annotated[
        int, Meta(ge=1, le=65535, description="hop limit: an event with so many transmissions is not forwarded")
    ] = 4
    # LongFast: a slot of 28 ms, and 3.75 s for 500 bytes.
    slot_share: Annotated[
        float,
        Meta(gt=0, le=1, description="length of a slot, as a share of the time that the packet takes on the air"),
    ] = 0.0075
    # [fw ReliableRouter.h] NUM_RELIABLE_RETX.
    attempts: Annotated[
        int, Meta(ge=1, le=100, description="transmissions of a publisher that hears no rebroadcast of its event")
    ] = 3


class MeshPacket(EventMessage, frozen=True, gc=False, tag=1):
    """An event, and the position of the sender if it knows one, in meters."""

    sent_from: tuple[Meters, Meters] | None = None


class _AwaitedRebroadcast(NamedTuple):
    """A packet of this node of which no rebroadcast was heard yet: when it was made, and the attempts left."""

    message: MeshPacket
    since: float
    attempts: int


class ManagedFlooding(Protocol):
    """One transmission of each event by the nodes at the edge of the range; nodes between them are silent."""

    name = "managed_flooding"
    summary = "farther receivers rebroadcast first, and nodes that hear it cancel (Meshtastic)"
    settings_type = ManagedFloodingSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "max_hops": (6, 8),
        "slot_share": (0.03,),
        "attempts": (1,),
    }
    messages = (MeshPacket,)

    def __init__(self, node: NodeId, settings: ManagedFloodingSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._flood = Flood(port, rng, settings, self._make_packet)
        self._neighbors = Neighbors()
        self._cost_s: float | None = None
        """The highest cost of a link to a neighbor, or the last one."""
        self._knows_position = Capability.POSITION in host.offers
        self._heard_m: deque[float] = deque(maxlen=HEARD)
        self._awaited: dict[EventId, _AwaitedRebroadcast] = {}
        self._now = 0.0

    def on_stop(self, now: float) -> None:
        self._flood.stop()
        for event in self._awaited:
            self.port.cancel_timer((RESEND, event))
        self._awaited.clear()

    def on_link_up(self, now: float, link: Link) -> None:
        self._neighbors.add(link)
        self._update_cost()

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.add(link)
        self._update_cost()

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._neighbors.remove(link)
        self._update_cost()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._flood.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._flood.local.remove(subscription)

    def on_publish(self, now: float, event: Event) -> None:
        self._now = now
        if event.id in self._flood.seen_ids:
            return
        delay_s = draw_publish_slots(self.rng) * self._slot_s(event)
        self._flood.publish(now, event, delay_s)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, MeshPacket)
        self._now = now
        snr_db = self._estimate_snr_db(now, message)
        id = message.event.id
        if id in self._flood.seen_ids:
            self._on_duplicate(id)
        elif self._flood.receive(now, message):
            slots = draw_relay_slots(snr_db, ROUTER in self.host.roles, self.rng)
            self._flood.forward(now, message, slots * self._slot_s(message.event))

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._now = now
        if key[0] == RESEND:
            event = key[1]
            assert isinstance(event, EventId)
            self._resend(now, event)
            return
        sent = self._flood.on_timer(now, key)
        if isinstance(sent, MeshPacket) and sent.event.source == self.node and sent.hops == 1:
            self._await_rebroadcast(now, sent, self._settings.attempts - 1)

    def _on_duplicate(self, id: EventId) -> None:
        """[fw FloodingRouter::shouldFilterReceived] Another node has rebroadcast an event: a node that is not a router
        cancels its own rebroadcast. [docs, layer 2] For the publisher it is an implicit acknowledgement."""
        if self._awaited.pop(id, None) is not None:
            self.port.cancel_timer((RESEND, id))
        if ROUTER not in self.host.roles and id.source != self.node:
            self._flood.cancel(id)

    def _await_rebroadcast(self, now: float, message: MeshPacket, attempts: int) -> None:
        """[docs, layer 2] A publisher that hears no rebroadcast sends again, up to three times in all."""
        if attempts > 0:
            event = message.event
            self._awaited[event.id] = _AwaitedRebroadcast(message, now, attempts)
            wait_s = 2 * self._airtime_s(event) + resend_slots() * self._slot_s(event)
            self.port.set_timer((RESEND, event.id), wait_s)

    def _resend(self, now: float, id: EventId) -> None:
        awaited = self._awaited.pop(id)
        aged = awaited.message.age_by(now - awaited.since)
        if aged is None:
            self.port.note(Fact("drop", event=id, reason=LEASE_EXPIRED))
        elif awaited.message.event.lease_s - aged.remaining_s < self._settings.flood_s:
            # Later, other nodes may have forgotten the event.
            self.port.broadcast(aged)
            self._await_rebroadcast(now, aged, awaited.attempts - 1)

    def _make_packet(self, event: Event, hops: int, remaining_s: float) -> MeshPacket:
        here = self.host.position(self._now) if self._knows_position else None
        return MeshPacket(event, hops, remaining_s, None if here is None else (round(here.x_m), round(here.y_m)))

    def _estimate_snr_db(self, now: float, message: MeshPacket) -> float:
        """Deviation: environments report no signal strength, so it is estimated by the distance of the sender. The
        range is the farthest distance of the last receptions."""
        here = self.host.position(now) if self._knows_position else None
        if here is None or message.sent_from is None:
            return UNKNOWN_SNR_DB
        distance_m = hypot(here.x_m - message.sent_from[0], here.y_m - message.sent_from[1])
        self._heard_m.append(distance_m)
        return estimate_snr_db(distance_m, max(self._heard_m))

    def _update_cost(self) -> None:
        if self._neighbors:
            self._cost_s = max(self._neighbors.cost_s(neighbor) for neighbor in self._neighbors)

    def _airtime_s(self, event: Event) -> float:
        """The time of an event on the slowest link. Deviation: Meshtastic's packets have at most 237 bytes, so its
        slots do not depend on the size."""
        cost_s = UNKNOWN_COST_S if self._cost_s is None else self._cost_s
        return cost_s * max(1.0, len(event.payload) / COST_BYTES)

    def _slot_s(self, event: Event) -> float:
        return self._settings.slot_share * self._airtime_s(event)
