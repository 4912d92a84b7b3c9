"""State vector sync [SVS: "State Vector Sync Protocol Specification", named-data.net, 2021]: nodes exchange vectors
with the latest sequence number of each publisher, and fetch the events that they are missing.

In the specification a sync group is one multicast domain of Named Data Networking. Here a broadcast reaches the
neighbors only, so a node whose vector has changed tells its own neighbors.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts import REQUESTS, BufferedEvent, CarrierBuffer, Neighbors, SeenCache, capacity_of
from carrycast.core.protocol import (
    AnswersRequests,
    Fact,
    Host,
    Interface,
    Link,
    Port,
    Protocol,
    RetentionLog,
    TimerKey,
    Token,
    Usage,
)
from carrycast.core.wire import Message, hops_after
from carrycast.protocols.state_vector_sync.messages import (
    MAX_ENTRIES,
    DataInterest,
    DataNack,
    SequenceRange,
    SyncData,
    SyncInterest,
)
from carrycast.protocols.state_vector_sync.neighbor_states import NeighborState, without_open
from carrycast.protocols.state_vector_sync.settings import StateVectorSyncSettings
from carrycast.protocols.state_vector_sync.vector import StateVector, remove_numbers

SYNC = "sync"
ASK = "ask"
JITTER = 0.1
"""[SVS §4.1] The sync timer varies by +-10 %."""
SUPPRESSION_JITTER = 0.5
"""[SVS §4.4] The suppression timer varies by +-50 %."""
COST_BYTES = 500
"""The cost of a link is the time for a packet of this size."""


class StateVectorSync(Protocol, AnswersRequests):
    """Every node carries every event; a node in contact with others learns of all events by one short message."""

    name = "state_vector_sync"
    summary = "neighbors compare the latest number of each publisher, and fetch what is missing (SVS)"
    settings_type = StateVectorSyncSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "sync_s": (120.0,),
        "suppression_hops": (3.0, 30.0),
        "broadcast_bytes": (0,),
    }
    messages = (SyncInterest, DataInterest, SyncData, DataNack)

    def __init__(self, node: NodeId, settings: StateVectorSyncSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self.buffer = CarrierBuffer(port, settings, host.store if settings.durable else None)
        self._vector = StateVector(settings.sources)
        self._numbers: dict[NodeId, dict[int, None]] = {}
        """The sequence numbers of the carried events by publisher."""
        self._evicted = SeenCache()
        """Events that had no room: other nodes may carry them."""
        self._neighbors = Neighbors()
        self._states: dict[NodeId, NeighborState] = {}
        self._suppressed = False
        """[SVS §4.4] Whether the node is in suppression state; else it is in steady state."""
        self._ask_at: float | None = None
        self._broadcast_until: dict[EventId, float] = {}
        """Until when requests for an event are taken for older than its broadcast."""
        self._sent: dict[Token, tuple[NodeId, EventId | None]] = {}
        """The receiver of each message in transit, and the event that it carries."""
        self._on_way: set[tuple[NodeId, EventId]] = set()
        """Events in transit to one neighbor."""
        self._tokens = 0

    @property
    def log(self) -> RetentionLog | None:
        return self.buffer.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self.buffer.log)

    def on_start(self, now: float) -> None:
        """A durable node continues with the vector of the events that it remembers."""
        self.buffer.load(now)
        for id in sorted(self.buffer.received_ids()):
            self._vector.add(id)
        for id in self.buffer.events:
            self._numbers.setdefault(id.source, {})[id.sequence] = None
        self._arm_sync()

    def on_stop(self, now: float) -> None:
        self.buffer.stop()
        self.port.cancel_timer(SYNC)
        self.port.cancel_timer(ASK)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.buffer.subscribe(now, subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self.buffer.local.remove(subscription)

    def on_request(self, now: float, request: Request) -> None:
        self.buffer.request(now, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self.buffer.requests.cancel(request)

    def on_link_up(self, now: float, link: Link) -> None:
        """Deviation: the specification has no contacts. A new neighbor is told the vector after a suppression
        interval, not at the next of the periodic interests."""
        self.buffer.requests.link_up(now, link)
        if self._neighbors.add(link):
            self._states[link.neighbor] = NeighborState()
            self._suppress()

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.buffer.requests.link_down(link)
        if self._neighbors.remove(link):
            del self._states[link.neighbor]
            self._ask_soon(now)

    def on_publish(self, now: float, event: Event) -> None:
        """[SVS §4.2] A new publication: a sync interest at once, and the sync timer starts again."""
        if self.buffer.is_new(event.id):
            self._vector.add(event.id)
            self._accept(now, event, 0, event.lease_s)
            self._send_interest()
            self._suppressed = False
            self._arm_sync()

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, SyncData):
            self._on_data(now, sender, message)
        elif sender not in self._states:
            # Its discovery was faster than this node's; vectors are compared again when the link is up.
            self.port.note(Fact("drop", peer=sender, reason="not_a_neighbor"))
        elif isinstance(message, SyncInterest):
            self._on_interest(now, self._states[sender], message)
        elif isinstance(message, DataInterest):
            self._on_data_interest(now, sender, message.ranges)
        elif isinstance(message, DataNack):
            self._on_nack(now, self._states[sender], message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == SYNC:
            self._on_sync_timer()
        elif key == ASK:
            self._ask_at = None
            self._ask(now)
        elif key == REQUESTS:
            self.buffer.requests.on_timer(now)
        else:
            self._forget(self.buffer.on_lease(now))

    # State sync [SVS §4].

    def _on_interest(self, now: float, state: NeighborState, message: SyncInterest) -> None:
        """[SVS §4.4] Handling incoming sync interests."""
        state.learn_all(message.vector, self._settings.sources)
        changed = False
        for source, sequence in message.vector:
            changed = self._vector.learn(source, sequence) or changed
        if message.complete:
            outdated = self._vector.is_newer(dict(message.vector))
        else:
            outdated = self._vector.is_newer_in(message.vector)
        if changed or outdated:
            # Deviation: a node whose vector has changed tells its other neighbors; the sender does not reach them.
            self._suppress()
        elif not self._suppressed:
            self._arm_sync()
        self._ask_soon(now)

    def _on_sync_timer(self) -> None:
        """[SVS §4.4] In suppression state the interest is only sent if a neighbor is not known to be up to date.
        Deviation: the vectors of neighbors are kept apart, and not aggregated, because neighbors of one node need not
        hear each other."""
        if not self._suppressed or any(self._needs_interest(state) for state in self._states.values()):
            self._send_interest()
        self._suppressed = False
        self._arm_sync()

    def _needs_interest(self, state: NeighborState) -> bool:
        return not state.has_sent_vector or self._vector.is_newer(state.latest)

    def _suppress(self) -> None:
        if not self._suppressed:
            self._suppressed = True
            varied = 1.0 + SUPPRESSION_JITTER * (2.0 * self.rng.random() - 1.0)
            self.port.set_timer(SYNC, self._suppression_s() * varied)

    def _arm_sync(self) -> None:
        self.port.set_timer(SYNC, self._settings.sync_s * (1.0 + JITTER * (2.0 * self.rng.random() - 1.0)))

    def _send_interest(self) -> None:
        if not self._states:
            return
        entries = self._vector.entries(self._settings.entries)
        message = SyncInterest(entries, len(entries) == len(self._vector.latest))
        if len(self._states) == 1:
            self.port.send(next(iter(self._states)), message)
        else:
            self.port.broadcast(message)

    def _suppression_s(self) -> float:
        return self._settings.suppression_hops * self._hop_s()

    def _hop_s(self) -> float:
        return max((self._neighbors.cost_s(neighbor) for neighbor in self._neighbors), default=0.0)

    # Retrieval.

    def _ask_soon(self, now: float) -> None:
        """Request missing events after a random part of half a suppression interval: by then a neighbor may have
        requested them, and the answer may be a broadcast."""
        if self._states and self._vector.has_missing:
            self._arm_ask(now, 0.5 * self._suppression_s() * self.rng.random())

    def _arm_ask(self, now: float, delay_s: float) -> None:
        if self._ask_at is None or now + delay_s < self._ask_at:
            self._ask_at = now + delay_s
            self.port.set_timer(ASK, delay_s)

    def _ask(self, now: float) -> None:
        """Request each missing event from one neighbor that knows of it, first from those that answered last."""
        waiting = [state for state in self._states.values() if state.due > now]
        left = [part for missing in self._vector.missing() for part in without_open(missing, waiting)]
        due = min((state.due for state in waiting), default=None)
        for neighbor, state in sorted(self._states.items(), key=lambda one: one[1].attempts):
            ranges = [part for missing in left for part in state.may_have(missing)][:MAX_ENTRIES]
            if not ranges:
                continue
            state.start_request(now, ranges, self._settings.again_s)
            due = state.due if due is None else min(due, state.due)
            self._send(neighbor, DataInterest(tuple(ranges)), None)
            left = [part for missing in left for part in without_open(missing, [state])]
        if due is not None:
            self._arm_ask(now, max(0.0, due - now))

    def _send(self, neighbor: NodeId, message: Message, event: EventId | None) -> None:
        self._tokens += 1
        self._sent[self._tokens] = (neighbor, event)
        self.port.send(neighbor, message, token=self._tokens)

    def _on_data_interest(self, now: float, sender: NodeId, ranges: tuple[SequenceRange, ...]) -> None:
        state = self._states[sender]
        gone: list[SequenceRange] = []
        absent: list[SequenceRange] = []
        for requested in ranges:
            source, low, high = requested
            state.learn(source, high, self._settings.sources)
            held = sorted(number for number in self._numbers.get(source, ()) if low <= number <= high)
            for number in held:
                self._answer(now, sender, EventId(source, number))
            left = remove_numbers(requested, held)
            # As with the pending interests of Named Data Networking, an event that this node is missing too is sent
            # when it arrives.
            state.add_pending(self._vector.find_missing(left))
            rest = self._vector.without_missing(left)
            evicted = [id.sequence for id in self._evicted.ids if id.source == source and low <= id.sequence <= high]
            absent += [SequenceRange(source, number, number) for number in evicted]
            gone += [part for one in rest for part in remove_numbers(one, sorted(evicted))]
        if gone or absent:
            self.port.send(sender, DataNack(tuple(gone[:MAX_ENTRIES]), tuple(absent[:MAX_ENTRIES])))

    def _answer(self, now: float, neighbor: NodeId, id: EventId) -> None:
        """Send a requested event: by one broadcast if several neighbors do not know of it yet. A request is ignored
        while the event is on its way to the neighbor, and soon after it was broadcast."""
        stored = self.buffer.events[id]
        if stored.until <= now or (neighbor, id) in self._on_way or now < self._broadcast_until.get(id, now):
            return
        others: list[NodeId] = []
        if len(stored.event.payload) <= self._settings.broadcast_bytes:
            others = [node for node, state in self._states.items() if state.latest.get(id.source, -1) < id.sequence]
        self._send_data(now, [neighbor, *(node for node in others if node != neighbor)], stored)

    def _send_to_waiting(self, now: float, waiting: list[NodeId], stored: BufferedEvent) -> None:
        """Send an event that has arrived to the neighbors that have requested it."""
        if len(stored.event.payload) <= self._settings.broadcast_bytes and waiting:
            self._send_data(now, waiting, stored)
            return
        for neighbor in waiting:
            self._send_data(now, [neighbor], stored)

    def _send_data(self, now: float, neighbors: list[NodeId], stored: BufferedEvent) -> None:
        message = SyncData(stored.event, hops_after(stored.hops), stored.until - now)
        if len(neighbors) == 1:
            self._on_way.add((neighbors[0], stored.id))
            self._send(neighbors[0], message, stored.id)
            return
        self._broadcast_until = {id: until for id, until in self._broadcast_until.items() if until > now}
        airtime_s = self._hop_s() * max(1.0, len(stored.event.payload) / COST_BYTES)
        self._broadcast_until[stored.id] = now + self._suppression_s() + 2 * airtime_s
        self.port.broadcast(message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """A neighbor that did not get an event requests it again. A request that failed goes to another neighbor."""
        neighbor, event = self._sent.pop(token)
        if event is not None:
            self._on_way.discard((neighbor, event))
        elif failure is not None and neighbor in self._states:
            self._states[neighbor].end_requests(now)
            self._ask_soon(now)

    def _on_data(self, now: float, sender: NodeId, message: SyncData) -> None:
        id = message.event.id
        state = self._states.get(sender)
        if state is not None:
            state.on_answer(now, self._settings.again_s)
            state.learn(id.source, id.sequence, self._settings.sources)
        if self._vector.add(id):
            self._suppress()
        if self.buffer.is_new(id):
            self._accept(now, message.event, message.hops, message.remaining_s)
            waiting = [node for node, other in self._states.items() if other.take_pending(id)]
            stored = self.buffer.events.get(id)
            if stored is not None and stored.until > now:
                self._send_to_waiting(now, waiting, stored)
        self._ask_soon(now)

    def _on_nack(self, now: float, state: NeighborState, message: DataNack) -> None:
        """Events that a neighbor had and that have expired are given up; those that it evicted may be elsewhere."""
        for source, low, high in message.expired:
            self._vector.give_up(source, low, high)
        state.on_answer(now, self._settings.again_s)
        state.add_absent(message.absent)
        self._ask_soon(now)

    def _accept(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        evicted = self.buffer.receive(now, event, hops, remaining_s, carry=True)
        self._numbers.setdefault(event.source, {})[event.id.sequence] = None
        for id in evicted:
            self._evicted.add(now, id, now + self._settings.max_lease_s)
        self._forget(evicted)

    def _forget(self, ids: list[EventId]) -> None:
        for id in ids:
            numbers = self._numbers.get(id.source, {})
            numbers.pop(id.sequence, None)
            if not numbers:
                self._numbers.pop(id.source, None)
