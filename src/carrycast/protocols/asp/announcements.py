"""The announcement phase [001 §4.2]: extended flooding, so that every broker knows its best announcer."""

import math

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Interface
from carrycast.protocols.asp.broker import Broker, announcement_of, packet_size
from carrycast.protocols.asp.digests import Digests
from carrycast.protocols.asp.messages import Announcement, Flag, ShortAnnouncement
from carrycast.protocols.asp.path_state import Alternative, PathState
from carrycast.protocols.asp.paths import Paths
from carrycast.protocols.asp.processors import LocalProcessors
from carrycast.protocols.asp.publications import Publications
from carrycast.protocols.asp.rules import (
    aggregated_metric,
    better,
    canonical_content,
    valid_metric,
)
from carrycast.protocols.asp.tables import Announced, Item, Production

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
