"""The tree: subscription forwarding among brokers, clients that attach to one, and retrieval of stored events.

[000 §IV] Brokers keep what each neighbor wants and what each says is stored behind it, tell each neighbor the fewest
filters that cover what the others said, and send events back along the paths of subscriptions. [000 §V] When the tree
changes, so do the tables: at once (strawman), or when what replaces the old has had time to come (deferred).
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.matching import Filter
from carrycast.core.model import Advertisement, Event, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts.log import capacity_of
from carrycast.core.parts.neighbors import Neighbors
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
    Settings,
    TimerKey,
)
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message
from carrycast.protocols.tree.clients import MAX_SEEN_S, Clients
from carrycast.protocols.tree.messages import (
    Advertise,
    Digest,
    Group,
    Ids,
    Publish,
    Resend,
    Subscribe,
    Table,
    Unadvertise,
    Unsubscribe,
    Want,
)
from carrycast.protocols.tree.overlay import BuiltTree, GivenTree, HomeBroker, Overlay
from carrycast.protocols.tree.recovery import LEASE, Recovery
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.protocols.tree.talk import Talk
from carrycast.services.retrieval import AllAnswered, Answered, Asked, Branch, Retrieval, Ways
from carrycast.services.retrieval.messages import MAX_HOPS


class Tree(Protocol, Advertises, AnswersRequests, KeepsEvents, Ways):
    """A broker if that is its role, else a client of one."""

    name = "tree"
    summary = "brokers in a self-repairing tree forward subscriptions; stored events are retrieved along it"
    settings_type = TreeSettings
    messages = (
        Subscribe,
        Unsubscribe,
        Advertise,
        Unadvertise,
        Publish,
        Asked,
        Answered,
        AllAnswered,
        Table,
        Digest,
        Resend,
        Group,
        Ids,
        Want,
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
        self.overlay: Overlay = self._overlay(settings)
        self._recovery = Recovery(port, rng, settings, host.store)
        self._seen = self._recovery.met
        self.talk = Talk(node, port, settings)
        self._retrieval = Retrieval(node, port, host, rng, settings, self)
        self._clients = Clients(port, self.talk, self._retrieval)
        self._advertised: dict[object, str] = {}
        self._lost: dict[NodeId, None] = {}
        """Neighbors whose filters are kept although they are gone."""
        self._was_cut = False
        """Whether a neighbor was lost for which no other has come yet."""

    def _overlay(self, settings: TreeSettings) -> Overlay:
        if not self.is_broker:
            return HomeBroker()
        if settings.links == "given":
            return GivenTree()
        return BuiltTree(self.node, self.host.incarnation, self.port, settings.missed_groups * settings.group_s)

    def on_start(self, now: float) -> None:
        self._retrieval.start(now)
        # At random moments of the first period, so that nodes started together do not speak together for ever.
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
        for word in ("group", "refresh", "recover", "catch up", LEASE):
            self.port.cancel_timer(word)
        for neighbor in self._lost:
            self.port.cancel_timer(("deferred", neighbor))
        self._retrieval.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "group":
            self.port.set_timer("group", self._settings.group_s)
            self.overlay.tick(now)
            self._follow_overlay(now)
        elif key == "refresh":
            self.port.set_timer("refresh", self._settings.refresh_s)
            self.talk.refresh()
        elif key == "catch up":
            self._clients.catch_up(now)
        elif key == "recover":
            self._recover_others(now)
        elif key == LEASE:
            self._recovery.on_lease(now)
        elif isinstance(key, tuple) and key[0] == "deferred":
            assert isinstance(key[1], int)
            self._forget(key[1])
        else:
            self._retrieval.on_timer(now, key)

    # Links, and the tree among them.

    def on_link_up(self, now: float, link: Link) -> None:
        if not self._links.add(link):
            return
        if link.neighbor in self._brokers:
            self.overlay.found(now, link.neighbor)
            self._follow_overlay(now)
        elif self.is_broker:
            self._take_back(link.neighbor)
            self.talk.welcome(link.neighbor)
        self._retrieval.on_routes(now)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if not self._links.remove(link):
            return
        neighbor = link.neighbor
        if neighbor in self._brokers:
            self.overlay.lost(now, neighbor)
            self._follow_overlay(now)
        elif self.is_broker:
            self._lose(neighbor)
        # What was asked through it may find another way.
        self._retrieval.on_routes(now)

    def _follow_overlay(self, now: float) -> None:
        """[000 §V] Keep the tables in line with the tree: new neighbors are told all, those lost are withdrawn."""
        before, after = self.talk.neighbors, self.overlay.neighbors
        for neighbor in [node for node in before if node not in after]:
            self.talk.close(neighbor)
            self._lose(neighbor)
        for neighbor in [node for node in after if node not in before]:
            self._take_back(neighbor)
            self.talk.open(neighbor)
            if self._was_cut:
                # Not at once: what is stored behind the new neighbor is still to be told.
                self._was_cut = False
                self.port.set_timer("catch up", self._settings.catch_up_s)

    def _lose(self, neighbor: NodeId) -> None:
        self._retrieval.forget(neighbor)
        self._was_cut |= neighbor in self._brokers
        if self._settings.reconcile == "strawman" or not self.talk.knows(neighbor):
            # [000 §V] "behaves as if it received unsubscription and unadvertisement messages from the former neighbor".
            self.talk.forget(neighbor)
        else:
            # [000 §V] "delay the unsubscription and unadvertisement process until the subscription and advertisement
            # process is complete".
            self._lost[neighbor] = None
            self.port.set_timer(("deferred", neighbor), self._settings.defer_s)

    def _take_back(self, neighbor: NodeId) -> None:
        if neighbor in self._lost:
            del self._lost[neighbor]
            self.port.cancel_timer(("deferred", neighbor))

    def _forget(self, neighbor: NodeId) -> None:
        del self._lost[neighbor]
        self.talk.forget(neighbor)

    # Subscriptions and advertisements.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._clients.subscribe(now, subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._clients.unsubscribe(now, subscription)

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """What is stored is subscribed to as well [000 §III]; that events will be published needs no words here: they
        follow subscriptions, wherever they come from."""
        if not advertisement.stored or advertisement.id in self._advertised:
            return
        stored = Filter(advertisement.filter)
        self._advertised[advertisement.id] = stored.text
        self._retrieval.stored.open(stored)
        self.talk.subscribe(stored)
        self.talk.advertise(stored)
        self._retrieval.on_routes(now)

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        text = self._advertised.pop(advertisement.id, None)
        if text is not None:
            self._retrieval.stored.close(text)
            self.talk.unadvertise(text)
            self.talk.unsubscribe(text)

    def on_request(self, now: float, request: Request) -> None:
        self._retrieval.request(now, request)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self._retrieval.cancel(request)

    # Messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Publish):
            # A neighbor that is no longer, or not yet, one of the tree may have sent it: it is met once in any case.
            self._spread(now, sender, message.event, message.hops, message.remaining_s)
        elif isinstance(message, Group):
            if sender in self._links and sender in self._brokers:
                self.overlay.heard(now, sender, message)
                self._follow_overlay(now)
        elif isinstance(message, Asked):
            self._retrieval.on_asked(now, sender, message)
        elif isinstance(message, Answered | AllAnswered):
            self._retrieval.on_answer(now, sender, message)
        elif isinstance(message, Ids | Want):
            self._recover(now, sender, message)
        elif self._is_neighbor(sender):
            self.talk.on_message(sender, message)
            if isinstance(message, Advertise) or (isinstance(message, Table) and message.stored):
                self._retrieval.on_routes(now)
        else:
            self.talk.missed(sender, message)

    def _is_neighbor(self, sender: NodeId) -> bool:
        """Whether its words about filters count: of those in the tree, and at a broker of clients in reach."""
        if sender in self._brokers:
            return sender in self.overlay.neighbors
        return self.is_broker and sender in self._links

    # Events.

    def on_publish(self, now: float, event: Event) -> None:
        self._spread(now, self.node, event, 0, event.lease_s)

    def _spread(self, now: float, sender: NodeId, event: Event, hops: int, remaining_s: float) -> None:
        remembered_s = min(max(self._settings.seen_s, remaining_s), MAX_SEEN_S)
        until = now + max(remembered_s, self._recovery.remembered_s(remaining_s))
        if not self._seen.add(now, event.id, until):
            return
        self._clients.deliver(now, event, hops, until)
        if self._retrieval.stored.wants(event):
            self._retrieval.stored.keep(now, event, remaining_s)
        if isinstance(self.overlay, HomeBroker):
            own = sender == self.node
            targets = [node for node in self.overlay.neighbors if node != sender] if own else []
            if own and self._settings.durable:
                self._recovery.keep(now, event, hops, remaining_s)
        else:
            self._recovery.keep(now, event, hops, remaining_s)
            # [000 §IV] "following the reverse path put in place by the subscription".
            targets = [node for node in self.talk.wanting(event.attributes) if node != sender and node in self._links]
        if targets:
            self.port.send_each(targets, Publish(event, min(hops + 1, MAX_HOPS), remaining_s))

    def history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self._clients.give_history(now, subscription, event, hops)

    def _recover_others(self, now: float) -> None:
        if isinstance(self.overlay, HomeBroker):
            # A client keeps nothing but what it has published, and its broker knows who wants that.
            self._recovery.round(now, list(self.overlay.neighbors), lambda neighbor, event: True)
        else:
            wanting = [node for node in self.talk.wanted.origins() if node in self._links]
            wants = self.talk.wanting
            self._recovery.round(now, wanting, lambda neighbor, event: neighbor in wants(event.attributes))

    def _recover(self, now: float, sender: NodeId, message: Ids | Want) -> None:
        if sender not in self._links:
            self.port.note(Fact("drop", peer=sender, reason="recovery_not_a_neighbor"))
        elif isinstance(message, Ids):
            self._recovery.on_ids(sender, message, self._seen.ids)
        else:
            self._recovery.on_want(now, sender, message)

    # What retrieval asks.

    def branches(self, without: NodeId) -> list[Branch]:
        if isinstance(self.overlay, HomeBroker):
            # A client knows no advertisements: its broker does.
            home = self.overlay.home
            return [Branch(home, "true", 1)] if home is not None and home != without else []
        return [
            Branch(neighbor, text, hops)
            for neighbor in self.talk.advertisers()
            if neighbor != without and neighbor in self._links
            for text, hops in self.talk.advertised(neighbor).items()
        ]

    def reaches(self, node: NodeId) -> bool:
        return node in self._links
