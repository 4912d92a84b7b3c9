"""The announcement cache [001 §6.3]: late sinks and new neighbors learn of what is still valid."""

from driftcast.dissemination.asp.announcements import Announcements
from driftcast.dissemination.asp.broker import Broker, announcement_of
from driftcast.dissemination.asp.messages import MAX_KNOWN, Ask, Digest, Flag, Known
from driftcast.dissemination.asp.paths import Paths
from driftcast.dissemination.asp.rules import valid_metric
from driftcast.dissemination.asp.tables import Announced
from driftcast.model import NodeId
from driftcast.protocol import Link


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

    def on_neighbor(self, now: float, link: Link) -> None:
        """A new neighbor is told what is valid here."""
        if self._on:
            self._tell(now, link, self._broker.table.entries())

    def spread(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """An announcement that came from a cache goes on to the other neighbors by its id alone."""
        for link in self._broker.neighbors:
            if link.neighbor != announcer:
                self._tell(now, link, [entry])

    def on_digest(self, now: float, sender: NodeId, message: Digest) -> None:
        """What is unknown here is asked for; what is known may be a better path, or one in place of a lost one."""
        broker = self._broker
        lacking = []
        for known in message.known:
            entry = broker.table.get(known.id)
            if not valid_metric(known.metric_s):
                broker.drop("metric_invalid", peer=sender)
            elif entry is None or known.sequence > entry.sequence:
                lacking.append(known.id)
            elif known.sequence == entry.sequence:
                self._announcements.offer(now, entry, sender, known.metric_s)
        if lacking:
            broker.neighbors.send(sender, Ask(tuple(lacking)))

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
                broker.neighbors.send(sender, full)

    def _tell(self, now: float, link: Link, entries: list[Announced]) -> None:
        known = [
            Known(entry.id, entry.sequence, entry.path_s + link.cost_s)
            for entry in entries
            # Not what a newer announcement has replaced, what is no use to the neighbor, or what comes from it.
            if entry.current
            and not entry.individual
            and entry.until > now
            and entry.announcer is not None
            and entry.announcer != link.neighbor
        ]
        for first in range(0, len(known), MAX_KNOWN):
            self._broker.neighbors.send(link.neighbor, Digest(tuple(known[first : first + MAX_KNOWN])))
