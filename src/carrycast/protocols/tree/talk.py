"""What a node says to its neighbors about filters, and what it makes of what they say: its two tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Attributes, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import Message
from carrycast.protocols.tree.messages import (
    BATCH,
    MAX_DEPTH,
    Advertise,
    Digest,
    Resend,
    Subscribe,
    Table,
    Told,
    Unadvertise,
    Unsubscribe,
)
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.protocols.tree.tables import Changes, FilterTable

Item = TypeVar("Item")

MAX_MISSED = 256
"""Senders that are remembered because they spoke before they were neighbors."""


class Talk:
    """The tables of a node. It speaks to those for whom it was opened, and hears whom the protocol lets through."""

    def __init__(self, node: NodeId, port: Port, settings: TreeSettings) -> None:
        self._port = port
        self._limits = {False: settings.max_filters, True: settings.max_advertisements}
        self.wanted = FilterTable(node, distances=False)
        """[000 §IV] ST, the subscription table."""
        self.stored = FilterTable(node, distances=True)
        """[000 §IV] AT, the advertisement table."""
        self.neighbors: dict[NodeId, None] = {}
        """Who is told of changes."""
        self._pieces: dict[tuple[NodeId, bool], dict[str, int]] = {}
        """Tables of which only some pieces have come."""
        self._missed: dict[NodeId, None] = {}
        self._resent: dict[NodeId, None] = {}
        """Who was sent all tables again since the last digests: more often nobody needs them."""

    # Neighbors.

    def open(self, neighbor: NodeId) -> None:
        """[000 §V] "its endpoints send subscriptions and advertisements to one another for all entries"."""
        self.neighbors[neighbor] = None
        for table in (self.wanted, self.stored):
            if not table.is_open(neighbor):
                table.open(neighbor)
        self._resent.pop(neighbor, None)
        self._send_tables(neighbor)
        self.welcome(neighbor)

    def close(self, neighbor: NodeId) -> None:
        """It is told nothing more. What it has told stays until it is forgotten, and what it would have to be told is
        kept up to date: a link that returns soon costs no more than its messages."""
        self.neighbors.pop(neighbor, None)
        for stored in (False, True):
            self._pieces.pop((neighbor, stored), None)

    def welcome(self, neighbor: NodeId) -> None:
        """Somebody is a neighbor now: what it said before was not heard."""
        if neighbor in self._missed:
            del self._missed[neighbor]
            self._port.send(neighbor, Resend())

    def missed(self, sender: NodeId, message: Message) -> None:
        """Words of somebody who is no neighbor, or not yet."""
        self._port.note(Fact("drop", peer=sender, reason="not_a_tree_neighbor"))
        if not isinstance(message, Resend) and len(self._missed) < MAX_MISSED:
            self._missed[sender] = None

    def knows(self, neighbor: NodeId) -> bool:
        """Whether it has told anything."""
        return bool(self.wanted.heard(neighbor) or self.stored.heard(neighbor))

    def forget(self, neighbor: NodeId) -> None:
        """All that it has told is no more."""
        for table in (self.wanted, self.stored):
            table.close(neighbor)
        self._say(False, self.wanted.replace(neighbor, {}))
        self._say(True, self.stored.replace(neighbor, {}))

    # The node's own applications.

    def subscribe(self, filter: Filter) -> None:
        """An application wants events."""
        self._say(False, self.wanted.add_own(filter))

    def unsubscribe(self, text: str) -> None:
        """It no longer does."""
        self._say(False, self.wanted.remove_own(text))

    def advertise(self, filter: Filter) -> None:
        """Events are stored here."""
        self._say(True, self.stored.add_own(filter))

    def unadvertise(self, text: str) -> None:
        """They no longer are."""
        self._say(True, self.stored.remove_own(text))

    # Messages.

    def on_message(self, sender: NodeId, message: Message) -> None:
        """A neighbor speaks."""
        match message:
            case Subscribe(filters):
                self._hear(sender, False, filters)
            case Advertise(filters):
                self._hear(sender, True, filters)
            case Unsubscribe(texts):
                self._unhear(sender, False, texts)
            case Unadvertise(texts):
                self._unhear(sender, True, texts)
            case Table():
                self._on_table(sender, message)
            case Digest():
                held = (self.wanted.digest_heard(sender), self.stored.digest_heard(sender))
                if held != (message.subscriptions, message.advertisements) and not self._is_full(sender):
                    self._port.note(Fact("resync", peer=sender))
                    self._port.send(sender, Resend())
            case Resend():
                if sender in self.neighbors and sender not in self._resent:
                    self._resent[sender] = None
                    self._send_tables(sender)

    def refresh(self) -> None:
        """Say in short what each neighbor should hold: messages may have been lost."""
        self._resent.clear()
        for neighbor in self.neighbors:
            digest = Digest(self.wanted.digest_told(neighbor), self.stored.digest_told(neighbor))
            self._port.send(neighbor, digest)

    def _hear(self, sender: NodeId, stored: bool, filters: Iterable[Told]) -> None:
        table, changes = self._table(stored), Changes()
        for text, hops in self._readable(sender, filters):
            if text not in table.heard(sender) and len(table.heard(sender)) >= self._limits[stored]:
                self._port.note(Fact("drop", peer=sender, reason="table_full"))
                break
            table.hear(sender, Filter(text), hops, changes)
        self._say(stored, changes)

    def _unhear(self, sender: NodeId, stored: bool, texts: Iterable[str]) -> None:
        table, changes = self._table(stored), Changes()
        for text in texts:
            table.forget(sender, text, changes)
        self._say(stored, changes)

    def _on_table(self, sender: NodeId, message: Table) -> None:
        key = (sender, message.stored)
        if message.first:
            self._pieces[key] = {}
        pieces = self._pieces.get(key)
        if pieces is None:
            # Its first piece was lost; the next digest shows what is missing.
            self._port.note(Fact("drop", peer=sender, reason="table_piece_lost"))
            return
        for text, hops in self._readable(sender, message.filters):
            if len(pieces) >= self._limits[message.stored]:
                self._port.note(Fact("drop", peer=sender, reason="table_full"))
                break
            pieces[text] = hops
        if message.last:
            del self._pieces[key]
            self._say(message.stored, self._table(message.stored).replace(sender, pieces))

    def _readable(self, sender: NodeId, filters: Iterable[Told]) -> Iterator[tuple[str, int]]:
        for text, hops in filters:
            try:
                # The texts that travel are canonical; those of others would be forgotten under another name.
                yield Filter(text).text, hops
            except FilterError:
                self._port.note(Fact("drop", peer=sender, reason="filter_unreadable"))

    def _is_full(self, sender: NodeId) -> bool:
        return any(len(self._table(stored).heard(sender)) >= limit for stored, limit in self._limits.items())

    def _say(self, stored: bool, changes: Changes) -> None:
        # What is new first, so that at no time something is wanted that no filter told covers.
        more, less = (Advertise, Unadvertise) if stored else (Subscribe, Unsubscribe)
        for neighbor in changes:
            if neighbor not in self.neighbors:
                continue
            for batch in _batches(list(changes.told(neighbor).items())):
                self._port.send(neighbor, more(tuple([Told(text, min(hops, MAX_DEPTH)) for text, hops in batch])))
            for texts in _batches(changes.withdrawn(neighbor)):
                self._port.send(neighbor, less(tuple(texts)))

    def _send_tables(self, neighbor: NodeId) -> None:
        for stored in (False, True):
            told = list(self._table(stored).told(neighbor).items())
            batches = list(_batches(told)) or [[]]
            for place, batch in enumerate(batches):
                filters = tuple([Told(text, min(hops, MAX_DEPTH)) for text, hops in batch])
                self._port.send(neighbor, Table(stored, place == 0, place == len(batches) - 1, filters))

    def _table(self, stored: bool) -> FilterTable:
        return self.stored if stored else self.wanted

    # Events and requests.

    def wanting(self, attributes: Attributes) -> Iterable[NodeId]:
        """Who wants an event."""
        return self.wanted.matching(attributes)

    def advertisers(self) -> Iterator[NodeId]:
        """Behind whom something is stored, this node itself among them."""
        return self.stored.origins()

    def advertised(self, neighbor: NodeId) -> Mapping[str, int]:
        """What is stored behind a neighbor, and how far away."""
        return self.stored.heard(neighbor)


def _batches(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
