"""The announcement cache [001 §6.3]: late sinks and new neighbors learn of what is still valid."""

from carrycast.core.model import NodeId
from carrycast.core.protocol import Interface
from carrycast.protocols.asp.announcements import Announcements
from carrycast.protocols.asp.broker import Broker, announcement_of
from carrycast.protocols.asp.digests import Digests
from carrycast.protocols.asp.messages import US_PER_S, Ask, Digest, Flag
from carrycast.protocols.asp.paths import Paths


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
