"""MaxProp [Burgess et al., INFOCOM 2006]: every contact may be short, so the order of transmissions decides, and in the
opposite order events are dropped from a full buffer.

In place of a packet's destination, an event has as destinations the nodes whose subscriptions match it. [ONE] is the
implementation in the simulator ONE.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import (
    MAX_FILTERS,
    MESSAGES,
    BufferedEvent,
    CopyRule,
    CopyShare,
    ProfileVersion,
    ReplicatingCarrierProtocol,
    canonical_filters,
)
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, TimerKey
from carrycast.core.wire import EventMessage, Message
from carrycast.protocols.maxprop.messages import (
    MAX_ENTRIES,
    DeliveryAck,
    DeliveryAcks,
    NodeRecord,
    RecordRequest,
    RecordVersion,
    RecordVersions,
)
from carrycast.protocols.maxprop.rules import count_prioritized, find_threshold, rank
from carrycast.protocols.maxprop.settings import MaxPropSettings
from carrycast.protocols.maxprop.table import KnownDeliveries, MeetingTable

EXCHANGE = "exchange"
CONTACTS = 10
"""[ONE] The contacts over which the transferred events are averaged (BYTES_TRANSFERRED_AVG_SAMPLES)."""


class PriorityRule(CopyRule):
    """Replicates every event to every neighbor, the most likely to be delivered first."""

    def __init__(self, node: NodeId, settings: MaxPropSettings, table: MeetingTable, known: KnownDeliveries) -> None:
        self._node = node
        self._capacity = settings.buffer
        self._table = table
        self._known = known
        self._transferred: dict[NodeId, int] = {}
        """Events transferred in each current contact."""
        self._contacts: deque[int] = deque(maxlen=CONTACTS)
        self.events: dict[EventId, BufferedEvent] = {}
        """The carried events; set by the protocol."""

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """Every neighbor gets a copy, unless all known destinations have the event."""
        if wanted:
            return CopyShare(1, copies)
        return CopyShare(0 if self._is_done(stored) else 1, copies)

    def order(self, now: float, events: list[BufferedEvent], neighbor: NodeId) -> list[BufferedEvent]:
        """First the events for the neighbor itself, then the others in order of priority. [ONE] Costs are those of
        paths from the neighbor."""
        threshold = self._find_threshold()

        def place(stored: BufferedEvent) -> tuple[bool, tuple[int, float, int]]:
            destinations = self._table.destinations(stored.event)
            cost = self._table.cost(neighbor, self._known.find_open(stored.id, destinations))
            return neighbor not in destinations, rank(stored.hops, cost, threshold)

        return sorted(events, key=place)

    def choose_eviction(self, now: float, events: Iterable[EventId]) -> EventId:
        """First events that all known destinations have, then those of the lowest priority."""
        threshold = self._find_threshold()

        def place(id: EventId) -> tuple[bool, tuple[int, float, int]]:
            stored = self.events[id]
            left = self._known.find_open(id, self._table.destinations(stored.event))
            return self._is_done(stored), rank(stored.hops, self._table.cost(self._node, left), threshold)

        return max(events, key=place)

    def on_transferred(self, now: float, id: EventId, neighbor: NodeId) -> None:
        self._transferred[neighbor] = self._transferred.get(neighbor, 0) + 1
        stored = self.events.get(id)
        if stored is not None and neighbor in self._table.destinations(stored.event):
            self._known.add(id, stored.until, (neighbor,))

    def on_forgotten(self, id: EventId) -> None:
        self._table.forget(id)

    def end_contact(self, neighbor: NodeId) -> None:
        """[ONE] The average is that of contacts in which anything was transferred."""
        transferred = self._transferred.pop(neighbor, 0)
        if transferred:
            self._contacts.append(transferred)

    def _find_threshold(self) -> int:
        average = sum(self._contacts) / len(self._contacts) if self._contacts else 0.0
        prioritized = count_prioritized(average, self._capacity)
        return find_threshold([stored.hops for stored in self.events.values()], prioritized) if prioritized else 0

    def _is_done(self, stored: BufferedEvent) -> bool:
        destinations = self._table.destinations(stored.event)
        return bool(destinations) and not self._known.find_open(stored.id, destinations)


class MaxProp(ReplicatingCarrierProtocol):
    """Epidemic replication in order of priority, for short contacts and small buffers."""

    name = "maxprop"
    summary = "events most likely to be delivered go first, and are dropped last (MaxProp)"
    settings_type = MaxPropSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "alpha": (0.3,),
        "acks": (False,),
        "exchange_s": (600.0,),
    }
    messages = (*MESSAGES, RecordVersions, RecordRequest, NodeRecord, DeliveryAcks)

    def __init__(self, node: NodeId, settings: MaxPropSettings, port: Port, host: Host, rng: Random) -> None:
        self._table = MeetingTable(node, settings.alpha, settings.nodes)
        self._known = KnownDeliveries()
        self._rule = PriorityRule(node, settings, self._table, self._known)
        super().__init__(node, settings, port, host, rng, self._rule)
        self._rule.events = self.buffer.events
        self._settings = settings
        self._changes = 0
        self._exchange_armed = False

    def on_stop(self, now: float) -> None:
        super().on_stop(now)
        self.port.cancel_timer(EXCHANGE)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        super().on_subscribe(now, subscription)
        self._changes += 1

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        super().on_unsubscribe(now, subscription)
        self._changes += 1

    def on_link_up(self, now: float, link: Link) -> None:
        new = link.neighbor not in self.exchange.neighbors
        if new:
            self._table.meet(link.neighbor)
            self._changes += 1
        super().on_link_up(now, link)
        if new:
            self._send_state(now, link.neighbor)
            if not self._exchange_armed:
                self._exchange_armed = True
                self.port.set_timer(EXCHANGE, self._settings.exchange_s)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        super().on_link_down(now, link, cause)
        if link.neighbor not in self.exchange.neighbors:
            self._rule.end_contact(link.neighbor)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key != EXCHANGE:
            super().on_timer(now, key)
            return
        self._exchange_armed = len(self.exchange.neighbors) > 0
        if self._exchange_armed:
            self.port.set_timer(EXCHANGE, self._settings.exchange_s)
        for neighbor in self.exchange.neighbors:
            self._send_state(now, neighbor)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, RecordVersions):
            self._on_record_versions(sender, message.known)
        elif isinstance(message, RecordRequest):
            self._on_record_request(sender, message.nodes)
        elif isinstance(message, NodeRecord):
            self._on_record(now, sender, message)
        elif isinstance(message, DeliveryAcks):
            self._on_acks(now, sender, message.acks)
        else:
            new = isinstance(message, EventMessage) and self.buffer.is_new(message.event.id)
            super().on_message(now, sender, message, via)
            if new and isinstance(message, EventMessage) and self.buffer.local.wants(message.event):
                self._acknowledge(now, message)

    # Records.

    def _send_state(self, now: float, neighbor: NodeId) -> None:
        """At a contact, nodes exchange their meeting likelihoods and the acknowledgements that they know."""
        known = [RecordVersion(self.node, self._own_version())]
        for node in self._table.nodes():
            version = self._table.version(node)
            if version is not None and node != neighbor:
                known.append(RecordVersion(node, version))
        for first in range(0, len(known), MAX_ENTRIES):
            self.port.send(neighbor, RecordVersions(tuple(known[first : first + MAX_ENTRIES])))
        acks = self._known.acks(now) if self._settings.acks else []
        for first in range(0, len(acks), MAX_ENTRIES):
            self.port.send(neighbor, DeliveryAcks(tuple(acks[first : first + MAX_ENTRIES])))

    def _own_version(self) -> ProfileVersion:
        return ProfileVersion(self.host.incarnation, self._changes)

    def _on_record_versions(self, sender: NodeId, known: tuple[RecordVersion, ...]) -> None:
        wanted = []
        for node, version in known:
            mine = self._table.version(node)
            if node != self.node and (mine is None or mine < version):
                wanted.append(node)
        if wanted:
            self.port.send(sender, RecordRequest(tuple(wanted)))

    def _on_record_request(self, sender: NodeId, nodes: tuple[NodeId, ...]) -> None:
        for node in dict.fromkeys(nodes):
            version, filters = self._table.version(node), self._table.filters(node)
            if node == self.node:
                version, filters = self._own_version(), self.exchange.subscriptions.own()
            if version is not None:
                self.port.send(sender, self._table.record(node, version, filters[:MAX_FILTERS]))

    def _on_record(self, now: float, sender: NodeId, record: NodeRecord) -> None:
        filters = canonical_filters(record.filters)
        if filters is None or not self._table.add(record, filters):
            self.port.note(Fact("drop", peer=sender, reason="profile_unreadable"))

    # Acknowledgements.

    def _acknowledge(self, now: float, message: EventMessage) -> None:
        """This node is a destination of the event, and acknowledges it to the nodes that it meets."""
        if self._settings.acks:
            lease_s = min(message.remaining_s, message.event.lease_s, self._settings.max_lease_s)
            self._add_ack(now, message.event.id, lease_s, (self.node,))

    def _on_acks(self, now: float, sender: NodeId, acks: tuple[DeliveryAck, ...]) -> None:
        for event, remaining_s, destinations in acks:
            self._add_ack(now, event, min(remaining_s, self._settings.max_lease_s), destinations, sender)

    def _add_ack(
        self, now: float, event: EventId, lease_s: float, destinations: tuple[NodeId, ...], sender: NodeId | None = None
    ) -> None:
        self._known.expire(now)
        if not self._known.add(event, now + lease_s, destinations):
            self.port.note(Fact("drop", event, sender, "acknowledgements_full"))
