"""The announcement cache [001 §6.3]: late sinks and new neighbors learn of what is still valid."""

from math import ceil

from driftcast.dissemination.asp.announcements import Announcements
from driftcast.dissemination.asp.broker import Broker, announcement_of
from driftcast.dissemination.asp.messages import MAX_KNOWN, US_PER_S, Ask, Digest, Flag, Known, Reply
from driftcast.dissemination.asp.paths import Paths
from driftcast.dissemination.asp.tables import Announced
from driftcast.model import NodeId
from driftcast.protocol import Interface, Link


class AnnouncementCache:
    """Tells by digests of ids what is known here, and hands out what is asked for. Without the setting it is silent."""

    def __init__(self, broker: Broker, announcements: Announcements, paths: Paths) -> None:
        self._broker = broker
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
            if entry.announcer != self._broker.node or entry.production is not None:
                self._paths.subscribe_locally(now, entry)

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
        if self._on and message.reply is not Reply.NOTHING:
            self._answer(now, sender, message)

    def on_ask(self, now: float, sender: NodeId, message: Ask) -> None:
        """A neighbor wants full announcements."""
        broker = self._broker
        cost_s = broker.neighbors.cost_s(sender)
        for id in dict.fromkeys(message.ids):
            entry = broker.table.get(id)
            if entry is None or entry.announcer is None or cost_s is None:
                broker.drop("announcement_unknown", peer=sender)
                continue
            broadcast = broker.settings.announce_by == "broadcast"
            full = announcement_of(entry, now, 0.0 if broadcast else cost_s, Flag.CACHED)
            if full is None:
                broker.drop("lease_over", entry.item.event.id, sender)
            else:
                broker.neighbors.send(now, sender, full)

    def _greet(self, now: float, link: Link) -> None:
        offers = self._offers(now, link, self._broker.table.entries())
        self._tell(now, link, offers, Reply.REST if len(offers) <= MAX_KNOWN else Reply.ALL)

    def _answer(self, now: float, sender: NodeId, message: Digest) -> None:
        listed = {known.id for known in message.known} if message.reply is Reply.REST else set()
        for link in self._broker.neighbors:
            if link.neighbor == sender:
                offers = self._offers(now, link, self._broker.table.entries())
                rest = [known for known in offers if known.id not in listed]
                if rest:
                    self._tell(now, link, rest, Reply.NOTHING)

    def _offers(self, now: float, link: Link, entries: list[Announced]) -> list[Known]:
        """What a neighbor may want to know of: not what a newer announcement has replaced, nor what comes from it."""
        return [
            Known(entry.id, entry.sequence, ceil((entry.path_s + link.cost_s) * US_PER_S))
            for entry in entries
            if entry.current and not entry.individual and entry.until > now
            if entry.announcer is not None and entry.announcer != link.neighbor
        ]

    def _tell(self, now: float, link: Link, offers: list[Known], reply: Reply) -> None:
        for first in range(0, max(1, len(offers)), MAX_KNOWN):
            digest = Digest(tuple(offers[first : first + MAX_KNOWN]), reply if first == 0 else Reply.NOTHING)
            self._broker.neighbors.send(now, link.neighbor, digest)
