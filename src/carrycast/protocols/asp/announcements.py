"""The announcement phase [001 §4.2]: extended flooding, so that every broker knows its best announcer.

With the announcement cache [001 §6.3], late sinks and new neighbors learn of announcements that are still valid:
neighbors exchange digests and request the announcements that they are missing.
"""

import math
from math import ceil

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Interface, Link
from carrycast.protocols.asp.announcement_table import Announced, Item, Production
from carrycast.protocols.asp.broker import Broker, announcement_of, packet_size
from carrycast.protocols.asp.messages import (
    MAX_KNOWN,
    US_PER_S,
    Announcement,
    Ask,
    Digest,
    Flag,
    Known,
    Reply,
    ShortAnnouncement,
)
from carrycast.protocols.asp.path_state import Alternative, PathState
from carrycast.protocols.asp.paths import Paths
from carrycast.protocols.asp.processors import LocalProcessors
from carrycast.protocols.asp.publications import Publications
from carrycast.protocols.asp.rules import aggregated_metric, better, canonical_content, valid_metric


class Digests:
    """Tells new neighbors, and those who are back, what is known here. Without the setting it is silent."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._on = broker.settings.announcement_cache

    def on_link_up(self, now: float, link: Link) -> None:
        """A new neighbor. Both ends notice, so the one with the lower id speaks first, and mostly alone."""
        if self._on and self._broker.node < link.neighbor:
            self._greet(now, link)

    def on_neighbor_back(self, now: float, link: Link) -> None:
        """A neighbor that could not be reached is back; the other end may have noticed nothing."""
        if self._on:
            self._greet(now, link)

    def spread(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """An announcement that came from a cache goes on to the other neighbors by its id alone."""
        for link in self._broker.neighbors:
            if link.neighbor != announcer:
                self._tell(now, link, self._offers(now, link, [entry]), Reply.NOTHING)

    def answer(self, now: float, sender: NodeId, message: Digest) -> None:
        """What the sender of a digest wants to be told in turn."""
        if not self._on or message.reply is Reply.NOTHING:
            return
        listed = {known.id for known in message.known} if message.reply is Reply.REST else set()
        for link in self._broker.neighbors:
            if link.neighbor == sender:
                offers = self._offers(now, link, self._broker.table.entries())
                rest = [known for known in offers if known.id not in listed]
                if rest:
                    self._tell(now, link, rest, Reply.NOTHING)

    def _greet(self, now: float, link: Link) -> None:
        offers = self._offers(now, link, self._broker.table.entries())
        self._tell(now, link, offers, Reply.REST if len(offers) <= MAX_KNOWN else Reply.ALL)

    def _offers(self, now: float, link: Link, entries: list[Announced]) -> list[Known]:
        """What a neighbor may want to know of: not what a newer announcement has replaced, nor what comes from it."""
        return [
            Known(entry.id, entry.sequence, ceil((entry.path.path_s + link.cost_s) * US_PER_S))
            for entry in entries
            if entry.current and not entry.individual and entry.until > now
            if entry.path.announcer is not None and entry.path.announcer != link.neighbor
        ]

    def _tell(self, now: float, link: Link, offers: list[Known], reply: Reply) -> None:
        for first in range(0, max(1, len(offers)), MAX_KNOWN):
            digest = Digest(tuple(offers[first : first + MAX_KNOWN]), reply if first == 0 else Reply.NOTHING)
            self._broker.neighbors.send(now, link.neighbor, digest)


MAX_VALIDITY_S = 1e6
"""No announcement stays longer, whoever made it; as much as the setting allows."""


class Announcements:
    """Takes announcements in, from neighbors and from local applications, and passes them on."""

    def __init__(
        self,
        broker: Broker,
        paths: Paths,
        publications: Publications,
        processors: LocalProcessors,
        digests: Digests,
    ) -> None:
        self._broker = broker
        self._paths = paths
        self._publications = publications
        self._processors = processors
        self._digests = digests
        self._broadcast = broker.settings.announce_by == "broadcast"

    # From neighbors.

    def on_announcement(self, now: float, sender: NodeId, message: Announcement, via: Interface) -> None:
        """A full announcement."""
        broker = self._broker
        metric_s = self._metric(sender, message.metric_s, via)
        reason = self._flaw(message, metric_s)
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
            item = Item(message.counter, message.event, message.hops, now + message.remaining_s)
            entry = Announced(
                message.id,
                broker.table.stream(message.stream),
                message.sequence,
                item,
                now + message.validity_s,
                PathState(sender, metric_s),
                message.flags & ~Flag.CACHED,
                message.stages,
            )
            self._admit(now, entry, sender, via, cached=bool(message.flags & Flag.CACHED))
        elif message.sequence == known.sequence:
            self.offer(now, known, sender, metric_s, via)

    def on_short_announcement(self, now: float, sender: NodeId, message: ShortAnnouncement, via: Interface) -> None:
        """A better path to an announcement that should be known; without its message nothing can be begun with it."""
        metric_s = self._metric(sender, message.metric_s, via)
        known = self._broker.table.get(message.id)
        if not valid_metric(metric_s):
            self._broker.drop("metric_invalid", peer=sender)
        elif known is None or message.sequence > known.sequence:
            self._broker.drop("short_announcement_unknown", peer=sender)
        elif message.sequence == known.sequence:
            self.offer(now, known, sender, metric_s, via)

    # From local applications.

    def announce(self, now: float, entry: Announced) -> bool:
        """[001 §4.2] A local source's next message, or a processor's result, becomes an announcement.

        False if it does not fit in one packet. A result that a neighbor has announced before, from a processor that
        does the same, makes this node one more announcer of it.
        """
        broker = self._broker
        full = announcement_of(entry, now, 0.0)
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
            if entry.production is not None:
                self._compete(now, known, entry.production, entry.path.metric_s)
            self.offer(now, known, broker.node, entry.path.metric_s)
        return True

    # The rules.

    def offer(
        self, now: float, entry: Announced, announcer: NodeId, metric_s: float, via: Interface | None = None
    ) -> None:
        """[001 §4.2] A known announcement again: a better metric makes a new best announcer, which is told to the
        following brokers without the message; any other is at most an alternative."""
        if entry.individual or not valid_metric(metric_s) or metric_s > self._broker.settings.max_metric_s:
            return
        turn = entry.path.offer(announcer, self._alternative(announcer, metric_s, via))
        if turn is None:
            self._paths.repairs.consider(now, entry, announcer)
            return
        self._tell_better_path(now, entry, announcer)
        self._paths.follow(now, entry, turn)
        for production in entry.productions:
            self.simulate(now, production)

    def _compete(self, now: float, entry: Announced, production: Production, metric_s: float) -> None:
        """Of local processors with equal results only the best one works."""
        held = entry.production
        held_s = None if held is None else self.result_metric(held)
        if held_s is None or better(metric_s, held_s):
            self._paths.produce(now, entry, production)

    def _alternative(self, announcer: NodeId, metric_s: float, via: Interface | None) -> Alternative:
        """What an announcer reports is known when it speaks: the link it spoke over may not be the one used later."""
        cost_s = self._broker.neighbors.cost_s(announcer, via)
        return Alternative(metric_s, metric_s if cost_s is None else metric_s - cost_s)

    def simulate(self, now: float, production: Production) -> None:
        """[001 §4.2] What a processor would make of a short announcement, from the outcome known of the full one."""
        metric_s = self.result_metric(production)
        if metric_s is None:
            return
        for id in production.results:
            result = self._broker.table.get(id)
            if result is not None and result.production is production:
                self.offer(now, result, self._broker.node, metric_s)

    def result_metric(self, production: Production) -> float | None:
        """The metric of a result: that of its inputs and its processing; None if an input is no longer known."""
        metrics_s = []
        for id in production.inputs:
            entry = self._broker.table.get(id)
            if entry is None:
                return None
            metrics_s.append(entry.path.metric_s)
        return aggregated_metric(metrics_s, self._broker.settings.aggregate_metric) + production.cost_s

    def _admit(self, now: float, entry: Announced, announcer: NodeId, via: Interface | None, cached: bool) -> None:
        broker = self._broker
        # Whether this very message was met before, under an older announcement or as a publication.
        first = entry.stream.window.add(entry.item.counter)
        entry.path.offer(announcer, self._alternative(announcer, entry.path.metric_s, via))
        broker.table.put(entry, broker.settings.memory_s)
        broker.watch(now)
        if cached:
            # What comes from a cache is offered by its id alone: most neighbors know it, or have it from the same hand.
            self._digests.spread(now, entry, announcer)
        else:
            self._flood(now, entry, announcer)
        if first and not entry.descriptive:
            broker.local.deliver(entry.item.event, entry.item.hops)
            self._publications.keep(now, entry.stream, entry.item)
        if not entry.individual and broker.wants(entry):
            self._paths.subscribe_locally(now, entry)
        self._processors.on_announced(entry)

    def _flood(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """[001 §4.2] "The full announcement is sent to every neighboring broker, except for the sender"."""
        broker = self._broker
        if self._broadcast:
            full = announcement_of(entry, now, 0.0)
            if full is not None:
                broker.port.broadcast(full)
            return
        for link in broker.neighbors:
            if link.neighbor != announcer:
                full = announcement_of(entry, now, link.cost_s)
                if full is None:
                    broker.drop("lease_over", entry.item.event.id)
                    return
                broker.neighbors.send(now, link.neighbor, full)

    def _tell_better_path(self, now: float, entry: Announced, announcer: NodeId) -> None:
        broker = self._broker
        if self._broadcast:
            broker.port.broadcast(ShortAnnouncement(entry.id, entry.path.path_s, entry.sequence))
            return
        for link in broker.neighbors:
            if link.neighbor != announcer:
                short = ShortAnnouncement(entry.id, entry.path.path_s + link.cost_s, entry.sequence)
                broker.neighbors.send(now, link.neighbor, short)

    def _metric(self, sender: NodeId, metric_s: float, via: Interface) -> float:
        """[001 §4.2] The sender has added the link to the metric; of a broadcast it cannot, so the receiver does."""
        if not self._broadcast:
            return metric_s
        cost_s = self._broker.neighbors.cost_s(sender, via)
        # A neighbor that discovery has not found has no cost, and no metric can be told.
        return math.nan if cost_s is None else metric_s + cost_s

    def _flaw(self, message: Announcement, metric_s: float) -> str:
        if not valid_metric(metric_s):
            return "metric_invalid"
        if metric_s > self._broker.settings.max_metric_s:
            return "metric_too_large"
        if not 0 < message.validity_s <= MAX_VALIDITY_S:
            return "validity_invalid"
        if not message.remaining_s > 0:
            return "lease_over"
        return ""

    def _collides(self, known: Announced, event: Event) -> bool:
        """Whether two different contents have got the same id. The same event has the same content."""
        mine = known.item.event
        if mine.id == event.id:
            return False
        decimals = self._broker.settings.decimals
        return canonical_content(mine, decimals) != canonical_content(event, decimals)


class AnnouncementCache:
    """Asks for what a digest lists and this broker lacks, hands out what it is asked for, serves late sinks."""

    def __init__(self, broker: Broker, digests: Digests, announcements: Announcements, paths: Paths) -> None:
        self._broker = broker
        self._digests = digests
        self._announcements = announcements
        self._paths = paths
        self._on = broker.settings.announcement_cache

    def on_subscribe(self, now: float) -> None:
        """A late sink subscribes to what is known and fits. Messages from before it came are not for it."""
        if not self._on:
            return
        for entry in self._broker.table.entries():
            if entry.individual or not entry.current or not self._broker.wants(entry):
                continue
            if entry.path.announcer != self._broker.node or entry.production is not None:
                self._paths.subscribe_locally(now, entry)

    def on_digest(self, now: float, sender: NodeId, message: Digest, via: Interface) -> None:
        """What is unknown here is asked for; what is known may be a better path, or one in place of a lost one."""
        broker = self._broker
        lacking = []
        for known in message.known:
            entry = broker.table.get(known.id)
            if entry is None or known.sequence > entry.sequence:
                lacking.append(known.id)
            elif known.sequence == entry.sequence:
                self._announcements.offer(now, entry, sender, known.metric_us / US_PER_S, via)
        if lacking:
            broker.neighbors.send(now, sender, Ask(tuple(lacking)))
        self._digests.answer(now, sender, message)

    def on_ask(self, now: float, sender: NodeId, message: Ask) -> None:
        """A neighbor wants full announcements."""
        broker = self._broker
        cost_s = broker.neighbors.cost_s(sender)
        for id in dict.fromkeys(message.ids):
            entry = broker.table.get(id)
            if entry is None or entry.path.announcer is None or cost_s is None:
                broker.drop("announcement_unknown", peer=sender)
                continue
            broadcast = broker.settings.announce_by == "broadcast"
            full = announcement_of(entry, now, 0.0 if broadcast else cost_s, Flag.CACHED)
            if full is None:
                broker.drop("lease_over", entry.item.event.id, sender)
            else:
                broker.neighbors.send(now, sender, full)
