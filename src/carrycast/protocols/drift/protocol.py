"""Drift: events spread by self-pruning broadcast, and neighbors reconcile the sets of events they know.

Each mechanism has its own module: the neighbor table (`neighbor_table`), the known events and their buffer
(`known_events`, `eviction`), self-pruning broadcast (`broadcast`), reconciliation (`reconciliation`), pull (`pull`),
the handlers of hashes, digests, offers and requests (`exchange`), multicast trees (`multicast_trees`) and processors
(`processing`). This module connects them.
"""

from collections.abc import Callable, Sequence
from random import Random

from carrycast.core.model import (
    Event,
    EventId,
    Failure,
    NodeId,
    Processor,
    ProcessorId,
    Request,
    Subscription,
    SubscriptionId,
)
from carrycast.core.parts import (
    REQUESTS,
    AnswersFromBuffer,
    BufferedEvent,
    LocalSubscriptions,
    OpenRequests,
    capacity_of,
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
    RunsProcessors,
    Settings,
    TimerKey,
    Token,
    Usage,
)
from carrycast.core.wire import Message
from carrycast.protocols.drift.audit import AUDIT
from carrycast.protocols.drift.broadcast import REBROADCAST, WINDOW, SelfPruningBroadcast
from carrycast.protocols.drift.eviction import RendezvousEviction
from carrycast.protocols.drift.exchange import REPLICAS, EventExchange
from carrycast.protocols.drift.known_events import LEASE, KnownEvents
from carrycast.protocols.drift.messages import (
    Audit,
    Data,
    Digest,
    Echo,
    Explorer,
    Hash,
    HolderQuery,
    Offer,
    PullRequest,
    TreeData,
    TreeEnd,
)
from carrycast.protocols.drift.multicast_trees import EXPLORE, MulticastForwarding
from carrycast.protocols.drift.neighbor_table import PROVISIONAL, DriftNeighborTable
from carrycast.protocols.drift.processing import FAILOVER, DriftProcessing
from carrycast.protocols.drift.pull import PROXIED_PULL, PULL, ProxiedPull
from carrycast.protocols.drift.reconciliation import REPLY, TRICKLE
from carrycast.protocols.drift.rules import short_address
from carrycast.protocols.drift.runs import BadRunsError
from carrycast.protocols.drift.settings import DriftSettings


class Drift(Protocol, AnswersFromBuffer, AcknowledgesReplicas, KeepsEvents, RunsProcessors):
    """Delivers every event that the contacts allow, with few bytes."""

    name = "drift"
    summary = "self-pruning broadcast, and reconciliation of neighbors by hashes of the events they know"
    settings_type = DriftSettings
    messages = (Data, Offer, Hash, Digest, PullRequest, Explorer, Echo, TreeData, TreeEnd, Audit, HolderQuery)
    retunable = frozenset(DriftSettings.__struct_fields__) - {"durable"}

    def __init__(self, node: NodeId, settings: DriftSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._requests = OpenRequests(port)
        self._neighbors = DriftNeighborTable(port)
        self._links = self._neighbors.links
        self._proxied_pull = ProxiedPull(node, port, rng, settings, self._neighbors)
        self._eviction = RendezvousEviction(node, self._neighbors, self._proxied_pull)
        store = host.store if settings.durable else None
        self._known_events = KnownEvents(port, settings, self._eviction, store)
        self._known_ids = self._known_events.ids
        self._broadcast = SelfPruningBroadcast(port, rng, settings, self._neighbors, self._known_events)
        self._pending = self._broadcast.pending
        self._exchange = EventExchange(node, port, rng, settings, self._neighbors, self._known_events, self._broadcast)
        self._reconciliation, self._pull = self._exchange.reconciliation, self._exchange.pull
        self._trees = MulticastForwarding(
            node, port, rng, settings, self._neighbors, self._local_filters, host.incarnation
        )
        self._processing = DriftProcessing(node, port, settings, self._known_events.is_duplicate)
        self._on_named_timer: dict[str, Callable[[float], None]] = {
            TRICKLE: self._reconciliation.on_trickle_timer,
            LEASE: self._on_lease_timer,
            REPLY: self._reconciliation.on_reply_timer,
            PULL: self._pull.on_timer,
            PROXIED_PULL: self._proxied_pull.on_timer,
            AUDIT: self._trees.on_audit_timer,
            REPLICAS: self._exchange.replicas.on_timer,
            PROVISIONAL: self._on_provisional_timer,
            WINDOW: self._broadcast.on_window_timer,
            REQUESTS: self._requests.on_timer,
        }

    @property
    def log(self) -> RetentionLog | None:
        return self._known_events.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._known_events.log)

    def on_start(self, now: float) -> None:
        """A durable node continues with the events of its store; reconciliation brings them to its neighbors."""
        self._known_events.load(now)
        self._known_events.arm_lease_timer(now)

    def on_retune(self, now: float, settings: Settings) -> None:
        """Events that are buffered keep the end of their lease, whatever `max_lease_s` is now."""
        assert isinstance(settings, DriftSettings)
        self._settings = settings
        self._broadcast.settings = self._proxied_pull.settings = self._processing.settings = settings
        self._exchange.retune(settings)
        self._trees.retune(settings)
        self._known_events.resize(settings)

    def on_stop(self, now: float) -> None:
        self._neighbors.stop()
        self._broadcast.stop()
        self._exchange.stop()
        self._trees.stop()
        self._proxied_pull.stop()
        self._processing.stop()
        self._requests.stop()
        self._known_events.stop()

    def on_publish(self, now: float, event: Event) -> None:
        if not self._known_events.is_duplicate(event.id):
            self._publish(now, event, 0, event.lease_s)

    def _publish(
        self, now: float, event: Event, hops: int, remaining_s: float, maker: ProcessorId | None = None
    ) -> None:
        """Publish an event of a local application or processor."""
        by_tree = self._trees.is_used_for(now, event)
        stored = self._accept(now, event, hops, remaining_s, unlisted=by_tree)
        if by_tree:
            self._trees.forward(now, stored)
        elif self._links:
            self._broadcast.publish(now, stored)
            self._trees.on_published(now)
        if self._processing:
            self._processing.on_event(stored, maker)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        known = subscription.id in self._local
        self._local.add(subscription)
        if subscription.history and not known:
            # Earlier events went down trees that do not include this node, so the trees end.
            self._on_links_changed(now)
        else:
            self._trees.on_filters_changed(now)
        if subscription.history and not known:
            for stored in self._known_events.find_matching(now, subscription.filter, subscription.attributes):
                self.port.deliver(subscription.id, stored.event, stored.hops)
            self.port.close_history(subscription.id, complete=False)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)
        self._trees.on_filters_changed(now)

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        self._exchange.replicas.count(now, event, copies)

    def on_processor(self, now: float, processor: Processor) -> None:
        self._processing.add(processor)
        self._trees.on_filters_changed(now)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        for result, maker in self._processing.finish(now, token, state, events, error):
            self._publish(now, result.event, result.hops, result.until - now, maker)

    def on_request(self, now: float, request: Request) -> None:
        """Answers come from the local buffer only; other nodes may hold more, so they are never complete."""
        self._requests.open(now, request, self._known_events.find_matching(now, request.filter, request.attributes))

    def on_link_up(self, now: float, link: Link) -> None:
        self._requests.link_up(now, link)
        if self._neighbors.add(link):
            self._on_contact(now, link.neighbor)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._requests.link_down(link)
        if self._neighbors.remove(link):
            self._on_departure(now, link.neighbor)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if sender not in self._links:
            if self._neighbors.add_provisional(now, sender, via):
                self._on_contact(now, sender)
            elif not isinstance(message, Data):
                self.port.note(Fact("drop", peer=sender, reason="too_many_strangers"))
                return
        kind = type(message)
        if kind is Data:
            self._on_data(now, sender, message)  # type: ignore[arg-type]
        elif kind is Hash:
            self._exchange.on_hash(now, sender, message)  # type: ignore[arg-type]
        else:
            self._on_rare_message(now, sender, message)

    def _on_rare_message(self, now: float, sender: NodeId, message: Message) -> None:
        """Messages other than data and hashes, which are by far the most."""
        try:
            if isinstance(message, Offer):
                self._exchange.on_offer(now, sender, message)
            elif isinstance(message, PullRequest):
                self._exchange.on_pull_request(now, sender, message)
            elif isinstance(message, Digest):
                self._exchange.on_digest(now, sender, message)
            elif isinstance(message, TreeData):
                self._on_tree_data(now, sender, message)
            elif isinstance(message, Explorer | Echo | TreeEnd | Audit):
                self._list_events(now, self._trees.on_message(now, sender, message))
        except BadRunsError:
            self.port.note(Fact("drop", peer=sender, reason="runs_malformed"))

    def on_timer(self, now: float, key: TimerKey) -> None:
        if isinstance(key, str):
            self._on_named_timer[key](now)
        elif key[0] == REBROADCAST:
            assert isinstance(key[1], EventId)
            self._broadcast.on_timer(now, key[1])
        elif key[0] == FAILOVER:
            assert isinstance(key[1], EventId)
            self._processing.on_timer(now, key[1])
        else:
            assert key[0] == EXPLORE
            assert isinstance(key[1], int)
            self._list_events(now, self._trees.on_timer(now, key[1]))

    def _on_lease_timer(self, now: float) -> None:
        self._known_events.on_lease_timer(now)
        self._proxied_pull.cancel_expired(self._known_events.__contains__)
        self._known_events.arm_lease_timer(now)

    def _on_provisional_timer(self, now: float) -> None:
        for node in self._neighbors.expire_provisional(now):
            self._on_departure(now, node)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        if token < 0:
            self._broadcast.on_sent(now, token, failure)
        elif failure is not None:
            self._list_events(now, self._trees.on_failure(now, token))

    def _on_contact(self, now: float, node: NodeId) -> None:
        self._reconciliation.on_contact(now, node)
        self._eviction.on_neighbors_changed()
        self._proxied_pull.on_contact()
        self._on_links_changed(now)

    def _on_departure(self, now: float, node: NodeId) -> None:
        self._reconciliation.on_departure(node)
        self._eviction.on_neighbors_changed()
        self._broadcast.cover_all(now, node)
        self._on_links_changed(now)

    def _on_links_changed(self, now: float) -> None:
        ended = self._trees.on_link_changed(now)
        if ended:
            self._list_events(now, ended)

    def _list_events(self, now: float, sources: list[NodeId]) -> None:
        """The trees of these sources were torn down: their events are reconciled like all others."""
        listed = [source for source in sources if self._known_events.list_all(source)]
        if listed and self._links:
            self._reconciliation.reset_timer()

    def _local_filters(self) -> list[str]:
        return [*(subscription.filter for subscription in self._local), *self._processing.filters()]

    def _on_tree_data(self, now: float, sender: NodeId, message: TreeData) -> None:
        """An event on a multicast tree; if the tree was torn down here, it is handled like any other event."""
        id = message.event.id
        by_tree = self._trees.is_from_parent(id.source, sender)
        if by_tree:
            self._trees.on_received(message.event)
        if self._known_events.is_duplicate(id):
            return
        self._pull.cancel(id)
        stored = self._accept(now, message.event, message.hops, message.remaining_s, unlisted=by_tree)
        if by_tree:
            self._trees.forward(now, stored)
        else:
            self._broadcast.schedule(now, id, sender, frozenset())
        if self._processing:
            self._processing.on_event(stored)

    def _on_data(self, now: float, sender: NodeId, message: Data) -> None:
        id = message.event.id
        if id in self._known_ids or self._known_events.on_mention(id):
            if id in self._pending:
                self._broadcast.on_duplicate(now, id, sender, message.covered_addresses)
            if id in self._proxied_pull.requesters:
                self._exchange.on_proxied_event(now, message)
            elif self._known_events.nearly_full:
                self._eviction.add_holders(id, short_address(sender) + message.neighbors)
            return
        self._pull.cancel(id)
        stored = self._accept(now, message.event, message.hops, message.remaining_s, message.neighbors)
        self._broadcast.schedule(now, id, sender, message.covered_addresses)
        if self._processing:
            self._processing.on_event(stored)

    def _accept(
        self, now: float, event: Event, hops: int, remaining_s: float, holders: bytes = b"", unlisted: bool = False
    ) -> BufferedEvent:
        """Deliver and buffer a new event; `unlisted` if it travels by a multicast tree."""
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        stored = BufferedEvent(until, event.id, event, hops)
        self._local.deliver(event, hops)
        self._known_events.add(now, stored, holders, unlisted)
        self._requests.answer_with(event, hops)
        if self._links and not unlisted:
            self._reconciliation.on_received(len(event.payload))
            self._reconciliation.reset_timer()
        self._known_events.arm_lease_timer(now)
        return stored
