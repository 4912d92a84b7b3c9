"""ASP: one broker per node that announces streams, makes active paths to their subscribers, and publishes on them."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, Failure, NodeId, Processor, Subscription, SubscriptionId
from carrycast.core.parts import Undelivered
from carrycast.core.protocol import Host, Interface, Link, Port, Protocol, RunsProcessors, TimerKey, Token
from carrycast.core.wire import Message
from carrycast.protocols.asp.announcements import AnnouncementCache, AnnouncementPhase, DigestExchange
from carrycast.protocols.asp.broker import AspBroker, LocalStreams
from carrycast.protocols.asp.messages import (
    MESSAGES,
    Announcement,
    AnnouncementRequest,
    Digest,
    Fragment,
    MissingFragments,
    PathLost,
    PathMessage,
    Publication,
    ShortAnnouncement,
)
from carrycast.protocols.asp.paths import SubscriptionPhase
from carrycast.protocols.asp.processors import LocalProcessors
from carrycast.protocols.asp.publications import FragmentedMessages, PublicationPhase
from carrycast.protocols.asp.settings import AspSettings
from carrycast.protocols.asp.sources import LocalSources, ProcessorResults


class Asp(Protocol, RunsProcessors):
    """Announcement, subscription, publication [001]. Passes each input to the component that it is for."""

    name = "asp"
    summary = "sources announce streams, sinks subscribe along best paths, processors sit on them"
    settings_type = AspSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"validity_s": (60.0, 600.0)}
    messages = MESSAGES
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        # The paper's shortcomings and future work [001 §6.2, §6.3], as far as they concern small streams.
        # The patience is the time-out of discovery: three missed beacons, one every second.
        "repaired": {"repair": True, "patience_s": 3.0, "announcement_cache": True, "publication_cache": 16},
        "cached": {"announcement_cache": True, "publication_cache": 16},
        "rerouted": {"repair": True},
        # Messages of any size [001 §2, groups three and four].
        "large": {"fragment_bytes": 1400, "publication_cache": 16, "announcement_cache": True, "repair": True},
        # One-off messages [001 §2, group one].
        "individual": {"individual": "always"},
    }

    def __init__(self, node: NodeId, settings: AspSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        # Each component uses only those before it.
        broker = self.broker = AspBroker(node, settings, port, 1 + rng.getrandbits(62))
        self._digests = DigestExchange(broker)
        self._streams = LocalStreams(broker)
        self._processors = LocalProcessors(broker)
        self._large = FragmentedMessages(broker, self._processors, host.decoder((Event,)))
        self._publications = PublicationPhase(broker, self._processors, self._large)
        self._paths = SubscriptionPhase(broker, self._streams, self._publications)
        self._announcements = AnnouncementPhase(
            broker, self._paths, self._publications, self._processors, self._digests
        )
        self._sources = LocalSources(broker, self._streams, self._announcements, self._publications, host.incarnation)
        self._results = ProcessorResults(broker, self._processors, self._paths, self._announcements, self._publications)
        self._cache = AnnouncementCache(broker, self._digests, self._announcements, self._paths)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("expiry")
        self.broker.neighbors.stop()
        self._large.stop()
        self._streams.stop()

    # Applications.

    def on_publish(self, now: float, event: Event) -> None:
        self._sources.publish(now, event)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.broker.local.add(subscription)
        self._cache.on_subscribe(now)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        broker = self.broker
        broker.local.remove(subscription)
        for entry in broker.table.entries():
            if broker.subscriber in entry.path.active and not broker.wants(entry):
                self._paths.unsubscribe_locally(now, entry)

    def on_processor(self, now: float, processor: Processor) -> None:
        self._processors.add(now, processor)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        self._results.on_processed(now, token, state, events, cost_s, error)

    # The network.

    def on_link_up(self, now: float, link: Link) -> None:
        if self.broker.neighbors.on_link_found(link):
            self._digests.on_link_up(now, link)
            self._paths.on_neighbor_back(now, link.neighbor)

    def on_link_changed(self, now: float, link: Link) -> None:
        self.broker.neighbors.on_link_found(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self.broker.neighbors.on_link_lost(link, cause):
            self._paths.on_neighbor_lost(now, link.neighbor)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self._on_given_up(now, self.broker.neighbors.on_sent(now, token, failure))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if self.broker.neighbors.on_heard(sender, via):
            self._on_neighbor_back(now, sender)
        if isinstance(message, Publication):
            self._publications.on_publication(now, sender, message)
        elif isinstance(message, Announcement):
            self._announcements.on_announcement(now, sender, message, via)
        elif isinstance(message, ShortAnnouncement):
            self._announcements.on_short_announcement(now, sender, message, via)
        elif isinstance(message, PathMessage):
            self._paths.on_path_message(now, sender, message)
        elif isinstance(message, Fragment):
            self._large.on_fragment(now, sender, message)
        elif isinstance(message, MissingFragments):
            self._large.on_missing(now, sender, message)
        elif isinstance(message, Digest):
            self._cache.on_digest(now, sender, message, via)
        elif isinstance(message, AnnouncementRequest):
            self._cache.on_request(now, sender, message)
        elif isinstance(message, PathLost):
            self._paths.repair.on_path_lost(now, sender, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if isinstance(key, str):
            self._expire(now)
            return
        word, about = key
        assert isinstance(about, tuple)
        if word == "back":
            node, interface = about
            if self.broker.neighbors.on_suspension_over(node, interface):
                self._on_neighbor_back(now, node)
        elif word == "resend":
            self._on_given_up(now, self.broker.neighbors.on_resend(now, about[0]))
        elif word == "patience":
            self._sources.on_timer(now, about[0])
        else:
            self._large.on_timer(now, about)

    def _on_neighbor_back(self, now: float, neighbor: NodeId) -> None:
        for link in self.broker.neighbors:
            if link.neighbor == neighbor:
                self._digests.on_neighbor_back(now, link)
        self._paths.on_neighbor_back(now, neighbor)

    def _on_given_up(self, now: float, given_up: list[Undelivered]) -> None:
        for one in given_up:
            if one.lost:
                self._paths.on_neighbor_lost(now, one.peer)
            if isinstance(one.message, PathMessage):
                self._paths.on_undelivered(now, one.peer, one.message)

    def _expire(self, now: float) -> None:
        self.broker.on_expiry_timer()
        expired = self.broker.table.expire(now)
        self._processors.on_expired(expired.announcements)
        for stream in expired.stale:
            self._publications.evict(stream, now)
        for stream in expired.streams:
            self._publications.evict(stream, float("inf"))
        self._large.evict_expired(now, expired.streams)
        self.broker.start_expiry_timer(now)
