"""The tree: subscription forwarding among brokers, clients that attach to one, and retrieval of stored events.

[000 §IV] A broker keeps the subscriptions and the advertisements of stored events that each neighbor has forwarded, and
forwards to each neighbor the fewest filters that cover those of the others. Events follow the reverse paths of
subscriptions. [000 §V] When the tree changes, the tables follow: at once (strawman), or after a time in which the
repaired tree brings the filters again (deferred).
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.matching import Filter
from carrycast.core.model import Advertisement, Event, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts import LocalSubscriptions, Neighbors, SeenCache, capacity_of
from carrycast.core.protocol import (
    Advertises,
    AnswersRequests,
    Capability,
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
    Usage,
)
from carrycast.core.wire import Message
from carrycast.protocols.tree.forwarding import SubscriptionForwarding
from carrycast.protocols.tree.messages import (
    Advertise,
    Digest,
    GroupHello,
    Publish,
    RecoveryDigest,
    RecoveryRequest,
    Subscribe,
    TableRequest,
    TableTransfer,
    Unadvertise,
    Unsubscribe,
)
from carrycast.protocols.tree.overlay import BuiltTree, GivenTree, HomeBrokerLink, TreeOverlay
from carrycast.protocols.tree.recovery import LEASE, EpidemicRecovery
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.services.retrieval import (
    MAX_HOPS,
    RepositoryBranch,
    ResponseEnd,
    Retrieval,
    RetrievalRequest,
    RetrievalResponse,
    RetrievalRoutes,
)

MISSED_GROUPS = 3.0
"""Rounds of the leader that may be missing before it is given up: two may be lost, as usual for soft state."""
MAX_SEEN_S = 3600.0
"""The longest time for which an event is remembered; copies do not travel for an hour."""


class TreeDelivery:
    """Delivers events to the local subscriptions, to each once, whether an event was forwarded or retrieved."""

    def __init__(self, port: Port, forwarding: SubscriptionForwarding, retrieval: Retrieval) -> None:
        self._port = port
        self._forwarding = forwarding
        self._retrieval = retrieval
        self._local = LocalSubscriptions(port)
        self._filters: dict[SubscriptionId, str] = {}
        self._delivered: dict[SubscriptionId, SeenCache] = {}
        """For subscriptions with history: the recently delivered events."""

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """[000 §IV] Forward the subscription, then request earlier events if it has history."""
        parsed = Filter(subscription.filter)
        known = self._filters.get(subscription.id)
        self._filters[subscription.id] = parsed.text
        self._local.add(subscription)
        if known != parsed.text:
            self._forwarding.subscribe(parsed)
            if known is not None:
                self._forwarding.unsubscribe(known)
        if subscription.history and known is None:
            self._delivered[subscription.id] = SeenCache()
            self._retrieval.subscribe(now, subscription)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """Withdraw a subscription, if there is one."""
        ended = self._filters.pop(subscription, None)
        if ended is not None:
            self._local.remove(subscription)
            self._delivered.pop(subscription, None)
            self._retrieval.unsubscribe(now, subscription)
            self._forwarding.unsubscribe(ended)

    def deliver(self, now: float, event: Event, hops: int, until: float) -> None:
        """Deliver a new event; it is remembered until `until`."""
        if not self._delivered:
            self._local.deliver(event, hops)
            return
        for subscription in self._local.matching_ids(event):
            delivered = self._delivered.get(subscription)
            if delivered is None or delivered.add(now, event.id, until):
                self._port.deliver(subscription, event, hops)

    def deliver_history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """Deliver a retrieved event that was published before the subscription."""
        delivered = self._delivered.get(subscription)
        if delivered is not None and delivered.add(now, event.id, now + MAX_SEEN_S):
            self._port.deliver(subscription, event, hops)

    def catch_up(self, now: float) -> None:
        """[000 §III] Request events that were published during a disconnection; known ids are named, and not sent
        again."""
        for subscription, delivered in self._delivered.items():
            self._retrieval.subscribe(now, self._local.get(subscription), tuple(sorted(delivered.ids)))


class Tree(Protocol, Advertises, AnswersRequests, KeepsEvents, RetrievalRoutes):
    """A broker if that is its role, else a client of a broker."""

    name = "tree"
    summary = "brokers in a self-repairing tree forward subscriptions; stored events are retrieved along it"
    settings_type = TreeSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"role": ("everybody",)}
    messages = (
        Subscribe,
        Unsubscribe,
        Advertise,
        Unadvertise,
        Publish,
        RetrievalRequest,
        RetrievalResponse,
        ResponseEnd,
        TableTransfer,
        Digest,
        TableRequest,
        GroupHello,
        RecoveryDigest,
        RecoveryRequest,
    )
    needs = frozenset({Capability.DURABLE_STORE, Capability.DIRECTORY})
    retunable = frozenset({"reconcile", "defer_s", "refresh_s", "seen_s", "choice", "history_s", "retries", "retry_s"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        # [000 §V] The very first solution.
        "strawman": {"reconcile": "strawman"},
        # [000 §VII, §VIII] What the paper leaves to future work, all of it.
        "recovering": {"recover_s": 2.0, "retries": 3, "cache": 100},
    }

    def __init__(self, node: NodeId, settings: TreeSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self.is_broker = settings.role in host.roles
        self._brokers = frozenset(host.directory(settings.role))
        self._links = Neighbors()
        self.overlay: TreeOverlay = self._make_overlay(settings)
        self._recovery = EpidemicRecovery(port, rng, settings, host.store)
        self._seen = self._recovery.seen
        self.forwarding = SubscriptionForwarding(node, port)
        self._retrieval = Retrieval(node, port, host, rng, settings, self)
        self._delivery = TreeDelivery(port, self.forwarding, self._retrieval)
        self._advertised: dict[object, str] = {}
        self._lost: dict[NodeId, None] = {}
        """Lost neighbors whose filters are kept for `defer_s`."""
        self._was_cut = False
        """Whether a broker was lost and not replaced yet."""

    def _make_overlay(self, settings: TreeSettings) -> TreeOverlay:
        if not self.is_broker:
            return HomeBrokerLink()
        if settings.links == "given":
            return GivenTree()
        return BuiltTree(self.node, self.host.incarnation, self.port, MISSED_GROUPS * settings.group_s)

    def on_start(self, now: float) -> None:
        self._retrieval.start(now)
        # At random times of the first period, so that nodes started together do not stay synchronized.
        if isinstance(self.overlay, BuiltTree):
            self.port.set_timer("group", self._settings.group_s * self.rng.random())
        self.port.set_timer("refresh", self._settings.refresh_s * self.rng.uniform(0.5, 1.0))
        if self.is_broker or self._settings.durable:
            self._recovery.start(now)

    @property
    def log(self) -> RetentionLog | None:
        return self._recovery.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.recover_buffer, self._recovery.log)

    def on_retune(self, now: float, settings: Settings) -> None:
        assert isinstance(settings, TreeSettings)
        self._settings = settings
        self._retrieval.retune(settings)
        self.port.set_timer("refresh", settings.refresh_s)

    def on_stop(self, now: float) -> None:
        for key in ("group", "refresh", "recover", "catch up", LEASE):
            self.port.cancel_timer(key)
        for neighbor in self._lost:
            self.port.cancel_timer(("deferred", neighbor))
        self._retrieval.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "group":
            self.port.set_timer("group", self._settings.group_s)
            self.overlay.on_group_timer(now)
            self._follow_overlay(now)
        elif key == "refresh":
            self.port.set_timer("refresh", self._settings.refresh_s)
            self.forwarding.refresh()
        elif key == "catch up":
            self._delivery.catch_up(now)
        elif key == "recover":
            self._start_recovery_round(now)
        elif key == LEASE:
            self._recovery.on_lease(now)
        elif isinstance(key, tuple) and key[0] == "deferred":
            assert isinstance(key[1], int)
            self._withdraw_filters(key[1])
        else:
            self._retrieval.on_timer(now, key)

    # Links, and the tree among them.

    def on_link_up(self, now: float, link: Link) -> None:
        if not self._links.add(link):
            return
        if link.neighbor in self._brokers:
            self.overlay.on_broker_up(now, link.neighbor)
            self._follow_overlay(now)
        elif self.is_broker:
            self._cancel_withdrawal(link.neighbor)
            self.forwarding.request_missed(link.neighbor)
        self._retrieval.on_routes(now)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if not self._links.remove(link):
            return
        neighbor = link.neighbor
        if neighbor in self._brokers:
            self.overlay.on_broker_down(now, neighbor)
            self._follow_overlay(now)
        elif self.is_broker:
            self._on_neighbor_lost(neighbor)
        # Requests that were sent through it may find another path.
        self._retrieval.on_routes(now)

    def _follow_overlay(self, now: float) -> None:
        """[000 §V] Adapt the tables to the tree: forward all entries to new neighbors, withdraw those of lost ones."""
        before, after = self.forwarding.neighbors, self.overlay.neighbors
        for neighbor in [node for node in before if node not in after]:
            self.forwarding.remove_neighbor(neighbor)
            self._on_neighbor_lost(neighbor)
        for neighbor in [node for node in after if node not in before]:
            self._cancel_withdrawal(neighbor)
            self.forwarding.add_neighbor(neighbor)
            if self._was_cut:
                # Not at once: the advertisements of the new neighbor have not arrived yet.
                self._was_cut = False
                self.port.set_timer("catch up", self._settings.catch_up_s)

    def _on_neighbor_lost(self, neighbor: NodeId) -> None:
        self._retrieval.forget(neighbor)
        self._was_cut |= neighbor in self._brokers
        if self._settings.reconcile == "strawman" or not self.forwarding.has_filters_of(neighbor):
            # [000 §V] "behaves as if it received unsubscription and unadvertisement messages from the former neighbor".
            self.forwarding.remove_filters_of(neighbor)
        else:
            # [000 §V] "delay the unsubscription and unadvertisement process until the subscription and advertisement
            # process is complete".
            self._lost[neighbor] = None
            self.port.set_timer(("deferred", neighbor), self._settings.defer_s)

    def _cancel_withdrawal(self, neighbor: NodeId) -> None:
        if neighbor in self._lost:
            del self._lost[neighbor]
            self.port.cancel_timer(("deferred", neighbor))

    def _withdraw_filters(self, neighbor: NodeId) -> None:
        del self._lost[neighbor]
        self.forwarding.remove_filters_of(neighbor)

    # Subscriptions and advertisements.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._delivery.subscribe(now, subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._delivery.unsubscribe(now, subscription)

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """A node that stores events subscribes to them as well [000 §III]. Advertisements of streams are not needed
        here: events follow subscriptions, whichever node publishes them."""
        if not advertisement.stored or advertisement.id in self._advertised:
            return
        stored = Filter(advertisement.filter)
        self._advertised[advertisement.id] = stored.text
        self._retrieval.stored.open(stored)
        self.forwarding.subscribe(stored)
        self.forwarding.advertise(stored)
        self._retrieval.on_routes(now)

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        text = self._advertised.pop(advertisement.id, None)
        if text is not None:
            self._retrieval.stored.close(text)
            self.forwarding.unadvertise(text)
            self.forwarding.unsubscribe(text)

    def on_request(self, now: float, request: Request) -> None:
        self._retrieval.request(now, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self._retrieval.cancel(request)

    # Messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Publish):
            # The sender may be no tree neighbor any more, or not yet; duplicates are detected in any case.
            self._forward_event(now, sender, message.event, message.hops, message.remaining_s)
        elif isinstance(message, GroupHello):
            if sender in self._links and sender in self._brokers:
                self.overlay.on_group_hello(now, sender, message)
                self._follow_overlay(now)
        elif isinstance(message, RetrievalRequest):
            self._retrieval.on_request(now, sender, message)
        elif isinstance(message, RetrievalResponse | ResponseEnd):
            self._retrieval.on_answer(now, sender, message)
        elif isinstance(message, RecoveryDigest | RecoveryRequest):
            self._on_recovery(now, sender, message)
        elif self._is_neighbor(sender):
            self.forwarding.on_message(sender, message)
            if isinstance(message, Advertise) or (isinstance(message, TableTransfer) and message.stored):
                self._retrieval.on_routes(now)
        else:
            self.forwarding.on_early_message(sender, message)

    def _is_neighbor(self, sender: NodeId) -> bool:
        """Whether the sender's filters are accepted: from tree neighbors, and at a broker from linked clients."""
        if sender in self._brokers:
            return sender in self.overlay.neighbors
        return self.is_broker and sender in self._links

    # Events.

    def on_publish(self, now: float, event: Event) -> None:
        self._forward_event(now, self.node, event, 0, event.lease_s)

    def _forward_event(self, now: float, sender: NodeId, event: Event, hops: int, remaining_s: float) -> None:
        remembered_s = min(max(self._settings.seen_s, remaining_s), MAX_SEEN_S)
        until = now + max(remembered_s, self._recovery.retention_s(remaining_s))
        if not self._seen.add(now, event.id, until):
            return
        self._delivery.deliver(now, event, hops, until)
        if self._retrieval.stored.wants(event):
            self._retrieval.stored.keep(now, event, remaining_s)
        if isinstance(self.overlay, HomeBrokerLink):
            own = sender == self.node
            targets = [node for node in self.overlay.neighbors if node != sender] if own else []
            if own and self._settings.durable:
                self._recovery.keep(now, event, hops, remaining_s)
        else:
            self._recovery.keep(now, event, hops, remaining_s)
            # [000 §IV] "following the reverse path put in place by the subscription".
            targets = [
                node
                for node in self.forwarding.interested_neighbors(event.attributes)
                if node != sender and node in self._links
            ]
        if targets:
            self.port.send_each(targets, Publish(event, min(hops + 1, MAX_HOPS), remaining_s))

    def history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self._delivery.deliver_history(now, subscription, event, hops)

    def _start_recovery_round(self, now: float) -> None:
        if isinstance(self.overlay, HomeBrokerLink):
            # A client keeps only its own events, and its broker knows the interested nodes.
            self._recovery.start_round(now, list(self.overlay.neighbors), lambda neighbor, event: True)
        else:
            interested = [node for node in self.forwarding.subscriptions.origins() if node in self._links]
            neighbors_of = self.forwarding.interested_neighbors
            self._recovery.start_round(
                now, interested, lambda neighbor, event: neighbor in neighbors_of(event.attributes)
            )

    def _on_recovery(self, now: float, sender: NodeId, message: RecoveryDigest | RecoveryRequest) -> None:
        if sender not in self._links:
            self.port.note(Fact("drop", peer=sender, reason="recovery_not_a_neighbor"))
        elif isinstance(message, RecoveryDigest):
            self._recovery.on_digest(sender, message, self._seen.ids)
        else:
            self._recovery.on_request(now, sender, message)

    # Routes of requests.

    def branches(self, without: NodeId) -> list[RepositoryBranch]:
        if isinstance(self.overlay, HomeBrokerLink):
            # A client knows no advertisements: its broker does.
            home = self.overlay.home
            return [RepositoryBranch(home, "true", 1)] if home is not None and home != without else []
        return [
            RepositoryBranch(neighbor, text, hops)
            for neighbor in self.forwarding.advertisers()
            if neighbor != without and neighbor in self._links
            for text, hops in self.forwarding.get_advertised(neighbor).items()
        ]

    def reaches(self, node: NodeId) -> bool:
        return node in self._links
