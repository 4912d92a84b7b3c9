"""Epidemic routing (Vahdat and Becker 2000): after an anti-entropy session both nodes hold what either held.

An anti-entropy session (Demers et al., PODC 1987) begins with a summary vector of the events that a node holds
(`SummaryVector`). The neighbor requests those that it is missing (`TransferRequest`) and gets them (`Transfer`). The
same three messages serve a new contact, where the summary vector has all events, and a new event, where it has only
that one. Anti-entropy repeats lost summary vectors every `tell_again_s`, and requests events that do not arrive again.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, Subscription, SubscriptionId
from carrycast.core.parts import (
    REQUESTS,
    AnswersFromBuffer,
    BufferedEvent,
    DurableLog,
    KnownReplicas,
    LeaseTimer,
    LocalSubscriptions,
    Neighbors,
    OpenRequests,
    capacity_of,
    make_memory,
    restore_buffer,
)
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    Fact,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    RetentionLog,
    Settings,
    TimerKey,
    Token,
    Usage,
)
from carrycast.core.wire import LEASE_EXPIRED, Message, hops_after
from carrycast.protocols.epidemic.messages import HolderQuery, SummaryVector, Transfer, TransferRequest, split_ids
from carrycast.protocols.epidemic.settings import EpidemicSettings
from carrycast.protocols.epidemic.transfers import TransferQueue, TransferRequests

LEASE = "lease"
RETRY = "retry"
REPEAT = "repeat"


class Epidemic(Protocol, AnswersFromBuffer, AcknowledgesReplicas, KeepsEvents):
    """Delivers every event that the contacts allow, at the price of a copy on every node."""

    name = "epidemic"
    summary = "every node stores, carries and exchanges every event"
    settings_type = EpidemicSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "ask_again_s": (2.0, 60.0),
        "tell_again_s": (10.0, 300.0),
    }
    messages = (SummaryVector, TransferRequest, Transfer, HolderQuery)
    retunable = frozenset(EpidemicSettings.__struct_fields__) - {"durable"}

    def __init__(self, node: NodeId, settings: EpidemicSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._requests = OpenRequests(port)
        store = host.store if settings.durable else None
        self._log = (
            None if store is None else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s")
        )
        self._buffer, self._seen = make_memory(settings.buffer, self._log, store)
        self._leases = LeaseTimer(port, self._buffer, LEASE)
        self._buffered = self._buffer.events
        self._neighbors = Neighbors()
        self._uninformed: set[NodeId] = set()
        """Neighbors to which no complete summary vector was delivered yet."""
        self._missing: dict[EventId, dict[NodeId, None]] = {}
        """For each buffered event, the other neighbors that are neither known to hold it nor to have its id."""
        self._summaries: dict[Token, tuple[NodeId, tuple[EventId, ...], bool]] = {}
        """Summary vectors in transit to one neighbor, and whether each is complete."""
        self._tokens = 0
        self._transfer_requests = TransferRequests(settings.buffer, settings.window)
        self._transfer_queue = TransferQueue()
        self._replicas = KnownReplicas()
        self._counted: dict[Token, tuple[NodeId, EventId]] = {}
        """Transfers in transit of events whose replicas are counted."""
        self._retry_armed = False
        self._repeat_armed = False

    @property
    def log(self) -> RetentionLog | None:
        return self._log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._log)

    def on_start(self, now: float) -> None:
        """A durable node continues with the events of its store; the next contact brings them to neighbors."""
        longest_s, grace_s = self._settings.max_lease_s, self._settings.seen_grace_s
        self._seen.load(now + longest_s + grace_s)
        for stored in restore_buffer(self.port, now, self._buffer, longest_s):
            self._seen.add(now, stored.id, stored.until + grace_s)
        self._leases.watch(now)

    def on_retune(self, now: float, settings: Settings) -> None:
        """Events that are buffered keep the end of their lease, whatever `max_lease_s` is now."""
        assert isinstance(settings, EpidemicSettings)
        self._settings = settings
        self._transfer_requests.retune(settings.buffer, settings.window)
        if self._log is not None:
            self._log.resize(settings.log_bytes, settings.max_lease_s)
        for evicted in self._buffer.resize(settings.buffer):
            self._forget(now, evicted, "buffer_full")

    def on_stop(self, now: float) -> None:
        for key in (RETRY, REPEAT, LEASE):
            self.port.cancel_timer(key)
        self._requests.stop()

    def on_publish(self, now: float, event: Event) -> None:
        if self._is_new(event.id):
            self._accept(now, event, 0, event.lease_s)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        known = subscription.id in self._local
        self._local.add(subscription)
        if subscription.history and not known:
            # Buffered events are duplicates, and so are not delivered again when another copy arrives.
            for stored in self._buffer.find_matching(now, subscription.filter, subscription.attributes):
                self.port.deliver(subscription.id, stored.event, stored.hops)
            self.port.close_history(subscription.id, complete=False)

    def on_request(self, now: float, request: Request) -> None:
        """Answers come from the local buffer only; other nodes may hold more, so they are never complete."""
        self._requests.open(now, request, self._buffer.find_matching(now, request.filter, request.attributes))

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._requests.link_up(now, link)
        if self._neighbors.add(link):
            self._transfer_requests.on_link_up(link.neighbor)
            self._start_session(link.neighbor)
            if not self._repeat_armed:
                self._repeat_armed = True
                self.port.set_timer(REPEAT, self._settings.tell_again_s)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._requests.link_down(link)
        if self._neighbors.remove(link):
            gone = link.neighbor
            self._uninformed.discard(gone)
            self._transfer_queue.cancel(gone)
            for id in [id for id, neighbors in self._missing.items() if gone in neighbors]:
                self._mark_informed(gone, id)
            self._retry(now, self._transfer_requests.on_link_down(gone))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, SummaryVector):
            self._on_summary_vector(now, sender, message.ids)
        elif isinstance(message, Transfer):
            self._on_transfer(now, sender, message)
        elif isinstance(message, TransferRequest):
            self._on_transfer_request(now, sender, message.ids)
        elif isinstance(message, HolderQuery):
            held = tuple(id for id in message.ids if id in self._buffered)
            if held:
                self.port.send(sender, SummaryVector(held))

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == LEASE:
            self._expire(now)
        elif key == REQUESTS:
            self._requests.on_timer(now)
        elif key == RETRY:
            self._retry_armed = False
            self._retry(now, self._transfer_requests.find_overdue(now))
            for neighbor in self._transfer_requests.deferring_neighbors:
                self._request_deferred(now, neighbor)
        else:
            self._repeat_summaries()

    def _on_summary_vector(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        if self._missing:
            for id in ids:
                self._mark_informed(sender, id)
        if self._replicas:
            for id in ids:
                if self._replicas.add(id, sender):
                    self.port.acknowledge_replica(id, sender)
        # Most summary vectors have one event, and most of those one that is buffered here.
        buffered = self._buffered
        if len(ids) == 1 and ids[0] in buffered:
            return
        new = [id for id in ids if id not in buffered and id not in self._seen.ids]
        if not new:
            return
        requested, rejected = self._transfer_requests.on_advertised(sender, new, sender in self._neighbors)
        if rejected:
            self.port.note(Fact("drop", peer=sender, reason="offers_full", value=rejected))
        if requested:
            self._request(now, sender, requested)

    def _mark_informed(self, neighbor: NodeId, id: EventId) -> None:
        """A neighbor is now known to hold a buffered event, or to have its id and to request it."""
        missing = self._missing.get(id)
        if missing is not None:
            missing.pop(neighbor, None)
            if not missing:
                del self._missing[id]

    def _on_transfer_request(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        if not ids:  # The sender could not remember all ids of the last summary vector.
            self._start_session(sender)
        held = [id for id in ids if id in self._buffered]
        if self._missing:
            for id in held:
                self._mark_informed(sender, id)
        self._send_batch(now, sender, *self._transfer_queue.add(sender, held))

    def _send_batch(self, now: float, neighbor: NodeId, ids: list[EventId], more: bool) -> None:
        """Send requested events; if more follow, they are sent when the last of these is acknowledged."""
        batch = [stored for id in ids if (stored := self._buffer.get(id)) is not None and stored.until > now]
        if more and not batch:
            # All were removed since they were requested, so no acknowledgement will start the next batch. The
            # neighbor requests the others again.
            self._transfer_queue.cancel(neighbor)
        for stored in batch:
            token = None
            if stored.id in self._replicas or (more and stored is batch[-1]):
                self._tokens += 1
                token = self._tokens
            if token is not None and stored.id in self._replicas:
                self._counted[token] = (neighbor, stored.id)
            if token is not None and more and stored is batch[-1]:
                self._transfer_queue.start_batch(neighbor, token)
            self.port.send(neighbor, Transfer(stored.event, hops_after(stored.hops), stored.until - now), token=token)

    def _on_transfer(self, now: float, sender: NodeId, message: Transfer) -> None:
        id = message.event.id
        self._transfer_requests.on_arrived(id)
        if self._is_new(id):
            if sender in self._neighbors:
                self._transfer_requests.add_holder(sender, id)
            self._accept(now, message.event, message.hops, message.remaining_s)
        self._request_deferred(now, sender)

    def _accept(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """Deliver and buffer an event, and advertise it at once to every neighbor that is not known to hold it."""
        id = event.id
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        self._local.deliver(event, hops)
        for evicted in self._buffer.add(BufferedEvent(until, id, event, hops)):
            self._forget(now, evicted, "buffer_full")
        self.port.note(Fact("store", id))
        self._requests.answer_with(event, hops)
        self._leases.watch(now)
        self._advertise(id)

    def _advertise(self, id: EventId) -> None:
        holders = self._transfer_requests.pop_holders(id)
        others = [neighbor for neighbor in self._neighbors if neighbor not in holders]
        if not others:
            return
        missing = dict.fromkeys(neighbor for neighbor in others if neighbor not in self._uninformed)
        if missing:
            self._missing[id] = missing
        if len(others) == 1:
            self._send_summary(others[0], (id,))
        else:
            self.port.broadcast(SummaryVector((id,)))

    def _start_session(self, neighbor: NodeId) -> None:
        """Begin an anti-entropy session: send a neighbor the complete summary vector."""
        ids = tuple(self._buffer)
        if ids:
            self._uninformed.add(neighbor)
            self._send_summary(neighbor, ids, complete=True)

    def _send_summary(self, neighbor: NodeId, ids: tuple[EventId, ...], complete: bool = False) -> None:
        for part in split_ids(ids):
            self._tokens += 1
            self._summaries[self._tokens] = (neighbor, part, complete and len(part) == len(ids))
            self.port.send(neighbor, SummaryVector(part), token=self._tokens)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """A neighbor that has received a summary vector requests what it is missing, so the vector is not repeated."""
        if token not in self._summaries:
            self._on_transfer_sent(now, token, failure)
            return
        neighbor, ids, complete = self._summaries.pop(token)
        if failure or neighbor not in self._neighbors:
            return
        if complete and neighbor in self._uninformed:
            self._uninformed.discard(neighbor)
            if len(ids) != len(self._buffer):
                for id in self._buffer.find_others(ids):
                    self._missing.setdefault(id, {})[neighbor] = None
        elif self._missing:
            for id in ids:
                self._mark_informed(neighbor, id)

    def _on_transfer_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        counted = self._counted.pop(token, None)
        if counted is not None and failure is None:
            neighbor, id = counted
            self.port.send(neighbor, HolderQuery((id,)))
        batch = self._transfer_queue.next_batch(token)
        if batch is not None and failure is None:
            self._send_batch(now, *batch)
        elif batch is not None:
            self._transfer_queue.cancel(batch[0])

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        """Neighbors that get the event are asked whether they hold it; without an answer, again every
        `tell_again_s`."""
        if event in self._buffered:
            self._replicas.count(event, copies)

    def _repeat_summaries(self) -> None:
        """Repeat the ids that neighbors are not known to have: repairs summary vectors that were lost."""
        self._repeat_armed = bool(self._neighbors)
        if self._repeat_armed:
            self.port.set_timer(REPEAT, self._settings.tell_again_s)
        for neighbor in self._neighbors:
            for part in split_ids(self._replicas.find_unconfirmed(neighbor)):
                self.port.send(neighbor, HolderQuery(part))
            if neighbor in self._uninformed:
                self._start_session(neighbor)
            elif self._missing:
                ids = tuple(id for id, missing in self._missing.items() if neighbor in missing)
                self._send_summary(neighbor, ids)

    def _request(self, now: float, neighbor: NodeId, ids: list[EventId], times: int = 1) -> None:
        due, linked = now + self._settings.ask_again_s, neighbor in self._neighbors
        self._transfer_requests.on_requested(neighbor, ids, due, linked, times)
        self.port.send(neighbor, TransferRequest(tuple(ids)))
        self._arm_retry()

    def _arm_retry(self) -> None:
        if self._transfer_requests.is_pending and not self._retry_armed:
            self._retry_armed = True
            self.port.set_timer(RETRY, self._settings.ask_again_s)

    def _retry(self, now: float, ids: list[EventId]) -> None:
        """Request events again, from another neighbor that holds them or from the same."""
        groups, given_up = self._transfer_requests.retry(ids, self._settings.asks)
        for id, last_neighbor in given_up:
            self.port.note(Fact("drop", id, last_neighbor, "asks_exhausted"))
        for (neighbor, times), group in groups.items():
            for part in split_ids(group):
                self._request(now, neighbor, list(part), times)
        self._arm_retry()

    def _request_deferred(self, now: float, neighbor: NodeId) -> None:
        ids = [id for id in self._transfer_requests.take_deferred(neighbor) if self._is_new(id)]
        if ids:
            self._request(now, neighbor, ids)
        elif self._transfer_requests.take_overflowed(neighbor):
            self.port.send(neighbor, TransferRequest(()))

    def _expire(self, now: float) -> None:
        for stored in self._buffer.expire(now):
            self._forget(now, stored, LEASE_EXPIRED)
        self._leases.watch(now, again=True)

    def _forget(self, now: float, stored: BufferedEvent, reason: str) -> None:
        """An event was removed from the buffer. Its id is remembered for longer, because copies on other nodes may
        expire a little later."""
        self._seen.add(now, stored.id, stored.until + self._settings.seen_grace_s)
        self.port.note(Fact("evict", stored.id, reason=reason))
        self._missing.pop(stored.id, None)
        self._replicas.forget(stored.id)

    def _is_new(self, id: EventId) -> bool:
        return id not in self._buffered and id not in self._seen.ids
