"""Subscription forwarding: the subscription table and the advertisement table of a node, kept up to date by messages
with its neighbors [000 §IV]."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Attributes, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import Message
from carrycast.protocols.tree.filter_table import FilterTable, FilterUpdates
from carrycast.protocols.tree.messages import (
    BATCH,
    MAX_DEPTH,
    Advertise,
    Digest,
    ForwardedFilter,
    Subscribe,
    TableRequest,
    TableTransfer,
    Unadvertise,
    Unsubscribe,
)

Item = TypeVar("Item")

MAX_MISSED = 256
"""Senders that are remembered because their messages came before they were neighbors."""


MAX_FILTERS = 200_000
"""Subscriptions accepted from one neighbor: the tables are built for a hundred thousand in a broker."""
MAX_ADVERTISEMENTS = 4096
"""Advertisements accepted from one neighbor: repositories are few."""


class SubscriptionForwarding:
    """The tables of a node. It forwards filters to the neighbors that were added, and handles the messages that the
    protocol passes to it."""

    def __init__(self, node: NodeId, port: Port) -> None:
        self._port = port
        self._limits = {False: MAX_FILTERS, True: MAX_ADVERTISEMENTS}
        self.subscriptions = FilterTable(node, distances=False)
        """[000 §IV] ST, the subscription table."""
        self.advertisements = FilterTable(node, distances=True)
        """[000 §IV] AT, the advertisement table."""
        self.neighbors: dict[NodeId, None] = {}
        """The neighbors to which updates are forwarded."""
        self._parts: dict[tuple[NodeId, bool], dict[str, int]] = {}
        """Tables of which only some parts have arrived."""
        self._missed: dict[NodeId, None] = {}
        self._resent: dict[NodeId, None] = {}
        """Neighbors that were sent all tables again since the last digests; once is enough."""

    # Neighbors.

    def add_neighbor(self, neighbor: NodeId) -> None:
        """[000 §V] "its endpoints send subscriptions and advertisements to one another for all entries"."""
        self.neighbors[neighbor] = None
        for table in (self.subscriptions, self.advertisements):
            if not table.has_neighbor(neighbor):
                table.add_neighbor(neighbor)
        self._resent.pop(neighbor, None)
        self._send_tables(neighbor)
        self.request_missed(neighbor)

    def remove_neighbor(self, neighbor: NodeId) -> None:
        """Stop sending to a neighbor. Its filters stay until they are removed, and the filters to forward to it are
        kept up to date: a link that returns soon costs only its messages."""
        self.neighbors.pop(neighbor, None)
        for stored in (False, True):
            self._parts.pop((neighbor, stored), None)

    def request_missed(self, neighbor: NodeId) -> None:
        """A node has become a neighbor: request its tables again if it sent messages before, which were dropped."""
        if neighbor in self._missed:
            del self._missed[neighbor]
            self._port.send(neighbor, TableRequest())

    def on_early_message(self, sender: NodeId, message: Message) -> None:
        """A message of a node that is not a neighbor, or not yet."""
        self._port.note(Fact("drop", peer=sender, reason="not_a_tree_neighbor"))
        if not isinstance(message, TableRequest) and len(self._missed) < MAX_MISSED:
            self._missed[sender] = None

    def has_filters_of(self, neighbor: NodeId) -> bool:
        """Whether any filter of a neighbor is in the tables."""
        return bool(self.subscriptions.get_received(neighbor) or self.advertisements.get_received(neighbor))

    def remove_filters_of(self, neighbor: NodeId) -> None:
        """Remove all filters of a neighbor."""
        for table in (self.subscriptions, self.advertisements):
            table.remove_neighbor(neighbor)
        self._send_updates(False, self.subscriptions.replace(neighbor, {}))
        self._send_updates(True, self.advertisements.replace(neighbor, {}))

    # The local applications.

    def subscribe(self, filter: Filter) -> None:
        """Add the filter of a local subscription."""
        self._send_updates(False, self.subscriptions.add_own(filter))

    def unsubscribe(self, text: str) -> None:
        """Remove the filter of a local subscription."""
        self._send_updates(False, self.subscriptions.remove_own(text))

    def advertise(self, filter: Filter) -> None:
        """Add a filter of events stored here."""
        self._send_updates(True, self.advertisements.add_own(filter))

    def unadvertise(self, text: str) -> None:
        """Remove a filter of events stored here."""
        self._send_updates(True, self.advertisements.remove_own(text))

    # Messages.

    def on_message(self, sender: NodeId, message: Message) -> None:
        """Handle a message of a neighbor."""
        match message:
            case Subscribe(filters):
                self._add(sender, False, filters)
            case Advertise(filters):
                self._add(sender, True, filters)
            case Unsubscribe(texts):
                self._remove(sender, False, texts)
            case Unadvertise(texts):
                self._remove(sender, True, texts)
            case TableTransfer():
                self._on_table(sender, message)
            case Digest():
                received = (self.subscriptions.received_digest(sender), self.advertisements.received_digest(sender))
                if received != (message.subscriptions, message.advertisements) and not self._is_full(sender):
                    self._port.note(Fact("resync", peer=sender))
                    self._port.send(sender, TableRequest())
            case TableRequest():
                if sender in self.neighbors and sender not in self._resent:
                    self._resent[sender] = None
                    self._send_tables(sender)

    def refresh(self) -> None:
        """Send each neighbor the digests of the filters forwarded to it: messages may have been lost."""
        self._resent.clear()
        for neighbor in self.neighbors:
            digest = Digest(
                self.subscriptions.forwarded_digest(neighbor), self.advertisements.forwarded_digest(neighbor)
            )
            self._port.send(neighbor, digest)

    def _add(self, sender: NodeId, stored: bool, filters: Iterable[ForwardedFilter]) -> None:
        table, updates = self._table(stored), FilterUpdates()
        for text, hops in self._parse(sender, filters):
            if text not in table.get_received(sender) and len(table.get_received(sender)) >= self._limits[stored]:
                self._port.note(Fact("drop", peer=sender, reason="table_full"))
                break
            table.add(sender, Filter(text), hops, updates)
        self._send_updates(stored, updates)

    def _remove(self, sender: NodeId, stored: bool, texts: Iterable[str]) -> None:
        table, updates = self._table(stored), FilterUpdates()
        for text in texts:
            table.remove(sender, text, updates)
        self._send_updates(stored, updates)

    def _on_table(self, sender: NodeId, message: TableTransfer) -> None:
        key = (sender, message.stored)
        if message.first:
            self._parts[key] = {}
        parts = self._parts.get(key)
        if parts is None:
            # Its first part was lost; the next digest shows the difference.
            self._port.note(Fact("drop", peer=sender, reason="table_piece_lost"))
            return
        for text, hops in self._parse(sender, message.filters):
            if len(parts) >= self._limits[message.stored]:
                self._port.note(Fact("drop", peer=sender, reason="table_full"))
                break
            parts[text] = hops
        if message.last:
            del self._parts[key]
            self._send_updates(message.stored, self._table(message.stored).replace(sender, parts))

    def _parse(self, sender: NodeId, filters: Iterable[ForwardedFilter]) -> Iterator[tuple[str, int]]:
        for text, hops in filters:
            try:
                # Forwarded texts are canonical; another text of the same filter could not be withdrawn later.
                yield Filter(text).text, hops
            except FilterError:
                self._port.note(Fact("drop", peer=sender, reason="filter_unreadable"))

    def _is_full(self, sender: NodeId) -> bool:
        return any(len(self._table(stored).get_received(sender)) >= limit for stored, limit in self._limits.items())

    def _send_updates(self, stored: bool, updates: FilterUpdates) -> None:
        # New filters first, so that at any time the forwarded filters cover all subscriptions.
        add, withdraw = (Advertise, Unadvertise) if stored else (Subscribe, Unsubscribe)
        for neighbor in updates:
            if neighbor not in self.neighbors:
                continue
            for batch in _split_batches(list(updates.get_added(neighbor).items())):
                self._port.send(
                    neighbor, add(tuple([ForwardedFilter(text, min(hops, MAX_DEPTH)) for text, hops in batch]))
                )
            for texts in _split_batches(updates.get_withdrawn(neighbor)):
                self._port.send(neighbor, withdraw(tuple(texts)))

    def _send_tables(self, neighbor: NodeId) -> None:
        for stored in (False, True):
            forwarded = list(self._table(stored).get_forwarded(neighbor).items())
            batches = list(_split_batches(forwarded)) or [[]]
            for place, batch in enumerate(batches):
                filters = tuple([ForwardedFilter(text, min(hops, MAX_DEPTH)) for text, hops in batch])
                self._port.send(neighbor, TableTransfer(stored, place == 0, place == len(batches) - 1, filters))

    def _table(self, stored: bool) -> FilterTable:
        return self.advertisements if stored else self.subscriptions

    # Events and requests.

    def interested_neighbors(self, attributes: Attributes) -> Iterable[NodeId]:
        """The neighbors that are interested in an event."""
        return self.subscriptions.match(attributes)

    def advertisers(self) -> Iterator[NodeId]:
        """The neighbors behind which events are stored, and this node itself."""
        return self.advertisements.origins()

    def get_advertised(self, neighbor: NodeId) -> Mapping[str, int]:
        """Return the filters of events stored behind a neighbor, with distances."""
        return self.advertisements.get_received(neighbor)


def _split_batches(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
