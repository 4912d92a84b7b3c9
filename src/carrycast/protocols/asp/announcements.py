"""The announcement phase [001 §4.2]: extended flooding, so that every broker knows its best announcer.

With the announcement cache [001 §6.3], late sinks and new neighbors learn of announcements that are still valid:
neighbors exchange digests and request the announcements that they are missing.
"""

import math
from math import ceil

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Interface, Link
from carrycast.protocols.asp.announcement_table import Derivation, KnownAnnouncement, StreamMessage
from carrycast.protocols.asp.broker import AspBroker, make_announcement, packet_size
from carrycast.protocols.asp.messages import (
    MAX_DIGEST_ENTRIES,
    US_PER_S,
    Announcement,
    AnnouncementFlag,
    AnnouncementRequest,
    Digest,
    DigestEntry,
    DigestReply,
    ShortAnnouncement,
)
from carrycast.protocols.asp.path_state import Alternative, PathState
from carrycast.protocols.asp.paths import SubscriptionPhase
from carrycast.protocols.asp.processors import LocalProcessors
from carrycast.protocols.asp.publications import PublicationPhase
from carrycast.protocols.asp.rules import aggregate_metrics, canonical_content, is_better, is_valid_metric


class DigestExchange:
    """Sends the ids of valid announcements to new and returning neighbors. It sends nothing without the setting."""

    def __init__(self, broker: AspBroker) -> None:
        self._broker = broker
        self._enabled = broker.settings.announcement_cache

    def on_link_up(self, now: float, link: Link) -> None:
        """A new neighbor. Both ends notice, so the one with the lower id sends first, and mostly alone."""
        if self._enabled and self._broker.node < link.neighbor:
            self._send_all(now, link)

    def on_neighbor_back(self, now: float, link: Link) -> None:
        """A neighbor that could not be reached is back; the other end may have noticed nothing."""
        if self._enabled:
            self._send_all(now, link)

    def advertise(self, now: float, entry: KnownAnnouncement, announcer: NodeId) -> None:
        """Send the id of an announcement that came from a cache to the other neighbors."""
        for link in self._broker.neighbors:
            if link.neighbor != announcer:
                self._send(now, link, self._entries_for(now, link, [entry]), DigestReply.NOTHING)

    def send_reply(self, now: float, sender: NodeId, message: Digest) -> None:
        """Send the announcements that the sender of a digest requests in return."""
        if not self._enabled or message.reply is DigestReply.NOTHING:
            return
        listed = {known.id for known in message.known} if message.reply is DigestReply.REST else set()
        for link in self._broker.neighbors:
            if link.neighbor == sender:
                entries = self._entries_for(now, link, self._broker.table.entries())
                rest = [known for known in entries if known.id not in listed]
                if rest:
                    self._send(now, link, rest, DigestReply.NOTHING)

    def _send_all(self, now: float, link: Link) -> None:
        entries = self._entries_for(now, link, self._broker.table.entries())
        self._send(now, link, entries, DigestReply.REST if len(entries) <= MAX_DIGEST_ENTRIES else DigestReply.ALL)

    def _entries_for(self, now: float, link: Link, entries: list[KnownAnnouncement]) -> list[DigestEntry]:
        """The entries for a neighbor: without announcements that are outdated or come from that neighbor."""
        return [
            DigestEntry(entry.id, entry.sequence, ceil((entry.path.path_s + link.cost_s) * US_PER_S))
            for entry in entries
            if entry.current and not entry.individual and entry.until > now
            if entry.path.announcer is not None and entry.path.announcer != link.neighbor
        ]

    def _send(self, now: float, link: Link, entries: list[DigestEntry], reply: DigestReply) -> None:
        for first in range(0, max(1, len(entries)), MAX_DIGEST_ENTRIES):
            digest = Digest(
                tuple(entries[first : first + MAX_DIGEST_ENTRIES]), reply if first == 0 else DigestReply.NOTHING
            )
            self._broker.neighbors.send(now, link.neighbor, digest)


MAX_VALIDITY_S = 1e6
"""The largest validity of an announcement, whatever its source says; the maximum of the setting."""


class AnnouncementPhase:
    """Accepts announcements from neighbors and local applications, and forwards them."""

    def __init__(
        self,
        broker: AspBroker,
        paths: SubscriptionPhase,
        publications: PublicationPhase,
        processors: LocalProcessors,
        digests: DigestExchange,
    ) -> None:
        self._broker = broker
        self._paths = paths
        self._publications = publications
        self._processors = processors
        self._digests = digests
        self._broadcast = broker.settings.announce_by == "broadcast"

    # From neighbors.

    def on_announcement(self, now: float, sender: NodeId, message: Announcement, via: Interface) -> None:
        """Handle a full announcement."""
        broker = self._broker
        metric_s = self._metric(sender, message.metric_s, via)
        reason = self._rejection_reason(message, metric_s)
        if reason:
            broker.drop(reason, message.event.id, sender)
            return
        known = broker.table.get(message.id)
        if known is not None and self._collides(known, message.event):
            broker.drop("id_collision", message.event.id, sender)
        elif known is None or message.sequence > known.sequence:
            if known is None and broker.table.full:
                broker.drop("too_many_announcements", message.event.id, sender)
                return
            item = StreamMessage(message.counter, message.event, message.hops, now + message.remaining_s)
            entry = KnownAnnouncement(
                message.id,
                broker.table.stream(message.stream),
                message.sequence,
                item,
                now + message.validity_s,
                PathState(sender, metric_s),
                message.flags & ~AnnouncementFlag.CACHED,
                message.stages,
            )
            self._admit(now, entry, sender, via, cached=bool(message.flags & AnnouncementFlag.CACHED))
        elif message.sequence == known.sequence:
            self.offer(now, known, sender, metric_s, via)

    def on_short_announcement(self, now: float, sender: NodeId, message: ShortAnnouncement, via: Interface) -> None:
        """Handle a better path to a known announcement; without its message an unknown one is useless."""
        metric_s = self._metric(sender, message.metric_s, via)
        known = self._broker.table.get(message.id)
        if not is_valid_metric(metric_s):
            self._broker.drop("metric_invalid", peer=sender)
        elif known is None or message.sequence > known.sequence:
            self._broker.drop("short_announcement_unknown", peer=sender)
        elif message.sequence == known.sequence:
            self.offer(now, known, sender, metric_s, via)

    # From local applications.

    def announce(self, now: float, entry: KnownAnnouncement) -> bool:
        """[001 §4.2] Announce a local source's next message, or a processor's result.

        False if it does not fit in one packet. If a neighbor has announced the same result, of a processor that does
        the same, this node becomes one more announcer of it.
        """
        broker = self._broker
        full = make_announcement(entry, now, 0.0)
        if full is None:
            broker.drop("lease_over", entry.item.event.id)
            return False
        if packet_size(full) > broker.settings.packet_bytes:
            broker.drop("announcement_too_large", entry.item.event.id)
            return False
        if entry.path.metric_s > broker.settings.max_metric_s:
            broker.drop("metric_too_large", entry.item.event.id)
            return False
        known = broker.table.get(entry.id)
        if known is None or entry.sequence > known.sequence:
            if known is None and broker.table.full:
                broker.drop("too_many_announcements", entry.item.event.id)
                return False
            self._admit(now, entry, broker.node, None, cached=False)
        elif self._collides(known, entry.item.event):
            broker.drop("id_collision", entry.item.event.id)
            return False
        elif entry.sequence == known.sequence:
            if entry.derivation is not None:
                self._prefer_better(now, known, entry.derivation, entry.path.metric_s)
            self.offer(now, known, broker.node, entry.path.metric_s)
        return True

    # The rules.

    def offer(
        self, now: float, entry: KnownAnnouncement, announcer: NodeId, metric_s: float, via: Interface | None = None
    ) -> None:
        """[001 §4.2] A known announcement again: a better metric makes a new best announcer, and the following brokers
        get a short announcement; any other one is at most an alternative."""
        if entry.individual or not is_valid_metric(metric_s) or metric_s > self._broker.settings.max_metric_s:
            return
        change = entry.path.offer(announcer, self._alternative(announcer, metric_s, via))
        if change is None:
            self._paths.repair.on_alternative(now, entry, announcer)
            return
        self._announce_better_path(now, entry, announcer)
        self._paths.follow_announcer(now, entry, change)
        for derivation in entry.derivations:
            self.simulate_processing(now, derivation)

    def _prefer_better(self, now: float, entry: KnownAnnouncement, derivation: Derivation, metric_s: float) -> None:
        """Of local processors with equal results only the one with the best metric works."""
        current = entry.derivation
        current_s = None if current is None else self.result_metric(current)
        if current_s is None or is_better(metric_s, current_s):
            self._paths.use_derivation(now, entry, derivation)

    def _alternative(self, announcer: NodeId, metric_s: float, via: Interface | None) -> Alternative:
        """The metric that an announcer reported is computed now: another link may be used later."""
        cost_s = self._broker.neighbors.cost_s(announcer, via)
        return Alternative(metric_s, metric_s if cost_s is None else metric_s - cost_s)

    def simulate_processing(self, now: float, derivation: Derivation) -> None:
        """[001 §4.2] Simulate the processing of a short announcement, from the known outcome of the full one."""
        metric_s = self.result_metric(derivation)
        if metric_s is None:
            return
        for id in derivation.results:
            result = self._broker.table.get(id)
            if result is not None and result.derivation is derivation:
                self.offer(now, result, self._broker.node, metric_s)

    def result_metric(self, derivation: Derivation) -> float | None:
        """The metric of a result: that of its inputs plus the processing; None if an input is no longer known."""
        metrics_s = []
        for id in derivation.inputs:
            entry = self._broker.table.get(id)
            if entry is None:
                return None
            metrics_s.append(entry.path.metric_s)
        return aggregate_metrics(metrics_s, self._broker.settings.aggregate_metric) + derivation.cost_s

    def _admit(
        self, now: float, entry: KnownAnnouncement, announcer: NodeId, via: Interface | None, cached: bool
    ) -> None:
        broker = self._broker
        # Whether the same message arrived before, under an older announcement or as a publication.
        first = entry.stream.window.add(entry.item.counter)
        entry.path.offer(announcer, self._alternative(announcer, entry.path.metric_s, via))
        broker.table.put(entry, broker.settings.memory_s)
        broker.start_expiry_timer(now)
        if cached:
            # From a cache only the id is sent on: most neighbors know the announcement already.
            self._digests.advertise(now, entry, announcer)
        else:
            self._flood(now, entry, announcer)
        if first and not entry.descriptive:
            broker.local.deliver(entry.item.event, entry.item.hops)
            self._publications.cache_message(now, entry.stream, entry.item)
        if not entry.individual and broker.wants(entry):
            self._paths.subscribe_locally(now, entry)
        self._processors.on_announced(entry)

    def _flood(self, now: float, entry: KnownAnnouncement, announcer: NodeId) -> None:
        """[001 §4.2] "The full announcement is sent to every neighboring broker, except for the sender"."""
        broker = self._broker
        if self._broadcast:
            full = make_announcement(entry, now, 0.0)
            if full is not None:
                broker.port.broadcast(full)
            return
        for link in broker.neighbors:
            if link.neighbor != announcer:
                full = make_announcement(entry, now, link.cost_s)
                if full is None:
                    broker.drop("lease_over", entry.item.event.id)
                    return
                broker.neighbors.send(now, link.neighbor, full)

    def _announce_better_path(self, now: float, entry: KnownAnnouncement, announcer: NodeId) -> None:
        broker = self._broker
        if self._broadcast:
            broker.port.broadcast(ShortAnnouncement(entry.id, entry.path.path_s, entry.sequence))
            return
        for link in broker.neighbors:
            if link.neighbor != announcer:
                short = ShortAnnouncement(entry.id, entry.path.path_s + link.cost_s, entry.sequence)
                broker.neighbors.send(now, link.neighbor, short)

    def _metric(self, sender: NodeId, metric_s: float, via: Interface) -> float:
        """[001 §4.2] The sender adds the link cost to the metric; for a broadcast the receiver does."""
        if not self._broadcast:
            return metric_s
        cost_s = self._broker.neighbors.cost_s(sender, via)
        # A neighbor that discovery has not found has no known cost, so the metric is invalid.
        return math.nan if cost_s is None else metric_s + cost_s

    def _rejection_reason(self, message: Announcement, metric_s: float) -> str:
        if not is_valid_metric(metric_s):
            return "metric_invalid"
        if metric_s > self._broker.settings.max_metric_s:
            return "metric_too_large"
        if not 0 < message.validity_s <= MAX_VALIDITY_S:
            return "validity_invalid"
        if not message.remaining_s > 0:
            return "lease_over"
        return ""

    def _collides(self, known: KnownAnnouncement, event: Event) -> bool:
        """Whether two different contents have the same id. The same event has the same content."""
        mine = known.item.event
        if mine.id == event.id:
            return False
        decimals = self._broker.settings.decimals
        return canonical_content(mine, decimals) != canonical_content(event, decimals)


class AnnouncementCache:
    """Requests announcements that a digest lists and this broker is missing, sends requested ones, and subscribes late
    sinks."""

    def __init__(
        self, broker: AspBroker, digests: DigestExchange, announcements: AnnouncementPhase, paths: SubscriptionPhase
    ) -> None:
        self._broker = broker
        self._digests = digests
        self._announcements = announcements
        self._paths = paths
        self._enabled = broker.settings.announcement_cache

    def on_subscribe(self, now: float) -> None:
        """Subscribe a late sink to the known announcements that match. Earlier messages are not for it."""
        if not self._enabled:
            return
        for entry in self._broker.table.entries():
            if entry.individual or not entry.current or not self._broker.wants(entry):
                continue
            if entry.path.announcer != self._broker.node or entry.derivation is not None:
                self._paths.subscribe_locally(now, entry)

    def on_digest(self, now: float, sender: NodeId, message: Digest, via: Interface) -> None:
        """Request unknown announcements; a known one may be a better path, or replace a lost one."""
        broker = self._broker
        missing = []
        for known in message.known:
            entry = broker.table.get(known.id)
            if entry is None or known.sequence > entry.sequence:
                missing.append(known.id)
            elif known.sequence == entry.sequence:
                self._announcements.offer(now, entry, sender, known.metric_us / US_PER_S, via)
        if missing:
            broker.neighbors.send(now, sender, AnnouncementRequest(tuple(missing)))
        self._digests.send_reply(now, sender, message)

    def on_request(self, now: float, sender: NodeId, message: AnnouncementRequest) -> None:
        """A neighbor requests full announcements."""
        broker = self._broker
        cost_s = broker.neighbors.cost_s(sender)
        for id in dict.fromkeys(message.ids):
            entry = broker.table.get(id)
            if entry is None or entry.path.announcer is None or cost_s is None:
                broker.drop("announcement_unknown", peer=sender)
                continue
            broadcast = broker.settings.announce_by == "broadcast"
            full = make_announcement(entry, now, 0.0 if broadcast else cost_s, AnnouncementFlag.CACHED)
            if full is None:
                broker.drop("lease_over", entry.item.event.id, sender)
            else:
                broker.neighbors.send(now, sender, full)
