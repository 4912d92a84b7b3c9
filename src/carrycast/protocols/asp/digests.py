"""Digests [001 §6.3]: by their ids alone, neighbors are told what is valid here."""

from math import ceil

from carrycast.core.model import NodeId
from carrycast.core.protocol import Link
from carrycast.protocols.asp.broker import Broker
from carrycast.protocols.asp.messages import MAX_KNOWN, US_PER_S, Digest, Known, Reply
from carrycast.protocols.asp.tables import Announced


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
