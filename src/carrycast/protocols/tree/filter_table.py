"""The filter table of a broker: the paper's subscription table, and its advertisement table.

[000 §IV] "a subscription is forwarded to a neighboring broker only if it is not being covered by a subscription already
forwarded to the same neighbor". The table has the filters received from each neighbor, and for each neighbor the fewest
filters that cover those received from all others. Every change results in the updates to send.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from carrycast.core.matching import CoverChange, CoverForest, Filter, FilterIndex
from carrycast.core.model import Attributes, NodeId

MODULUS = 1 << 63


def hash_filter(text: str) -> int:
    """A hash of a filter's text, the same on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % MODULUS


class _ForwardedFilters:
    """The filters forwarded to one neighbor."""

    __slots__ = ("digest", "forest", "hops")

    def __init__(self) -> None:
        self.forest = CoverForest()
        self.hops: dict[str, int] = {}
        """The distance of the nearest origin of each forwarded filter."""
        self.digest = 0


class FilterUpdates:
    """The updates to send to each neighbor. A filter that is forwarded and withdrawn by the same change is not sent."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: dict[NodeId, dict[str, tuple[int | None, int | None]]] = {}
        """The distance of each changed filter, as the neighbor knows it and as it is now; None: not forwarded."""

    def __iter__(self) -> Iterator[NodeId]:
        """The neighbors that may need an update."""
        return iter(self._changes)

    def record(self, neighbor: NodeId, text: str, before: int | None, now: int | None) -> None:
        """Record that a filter was added or removed, or that its distance has changed."""
        changed = self._changes.setdefault(neighbor, {})
        changed[text] = (changed[text][0] if text in changed else before, now)

    def get_added(self, neighbor: NodeId) -> dict[str, int]:
        """Return the filters to forward to a neighbor, with distances."""
        changed = self._changes.get(neighbor, {})
        return {text: now for text, (before, now) in changed.items() if now is not None and now != before}

    def get_withdrawn(self, neighbor: NodeId) -> list[str]:
        """Return the filters to withdraw from a neighbor."""
        changed = self._changes.get(neighbor, {})
        return [text for text, (before, now) in changed.items() if now is None and before is not None]


class FilterTable:
    """Filters by origin: a neighbor, or `own`, the node itself, of whose applications several may have the same
    filter."""

    __slots__ = ("_digests", "_distances", "_forwarded", "_index", "_own", "_own_counts", "_received")

    def __init__(self, own: NodeId, distances: bool) -> None:
        self._own = own
        self._distances = distances
        """Whether the distances of the origins of a filter are needed."""
        self._own_counts: dict[str, int] = {}
        self._received: dict[NodeId, dict[str, int]] = {}
        self._digests: dict[NodeId, int] = {}
        self._forwarded: dict[NodeId, _ForwardedFilters] = {}
        self._index: FilterIndex[tuple[NodeId, str]] = FilterIndex()

    # Received filters.

    def add_own(self, filter: Filter) -> FilterUpdates:
        """Add a filter of a local application; several may have the same."""
        count = self._own_counts[filter.text] = self._own_counts.get(filter.text, 0) + 1
        return self.add(self._own, filter, 0) if count == 1 else FilterUpdates()

    def remove_own(self, text: str) -> FilterUpdates:
        """Remove a filter of a local application."""
        self._own_counts[text] -= 1
        if self._own_counts[text]:
            return FilterUpdates()
        del self._own_counts[text]
        return self.remove(self._own, text)

    def add(self, origin: NodeId, filter: Filter, hops: int, updates: FilterUpdates | None = None) -> FilterUpdates:
        """Add a filter of an origin, or update its distance."""
        updates = FilterUpdates() if updates is None else updates
        text = filter.text
        received = self._received.setdefault(origin, {})
        new = text not in received
        if not new and received[text] == hops:
            return updates
        received[text] = hops
        if new:
            self._digests[origin] = (self._digests.get(origin, 0) + hash_filter(text)) % MODULUS
            if origin != self._own:
                self._index.add((origin, text), filter)
        for neighbor, forwarded in self._forwarded.items():
            if neighbor != origin:
                self._apply(neighbor, forwarded, forwarded.forest.add(filter) if new else CoverChange(), updates)
                self._update_distance(neighbor, forwarded, text, updates)
        return updates

    def remove(self, origin: NodeId, text: str, updates: FilterUpdates | None = None) -> FilterUpdates:
        """Remove a filter of an origin, if there is one."""
        updates = FilterUpdates() if updates is None else updates
        received = self._received.get(origin, {})
        if text not in received:
            return updates
        del received[text]
        self._digests[origin] = (self._digests[origin] - hash_filter(text)) % MODULUS
        if origin != self._own:
            self._index.remove((origin, text))
        if not received:
            del self._received[origin], self._digests[origin]
        for neighbor, forwarded in self._forwarded.items():
            if neighbor != origin:
                self._apply(neighbor, forwarded, forwarded.forest.remove(text), updates)
                self._update_distance(neighbor, forwarded, text, updates)
        return updates

    def replace(self, origin: NodeId, filters: Mapping[str, int]) -> FilterUpdates:
        """Replace all filters of an origin. [000 §V] New filters are added before old ones are removed, so that a
        filter that covers an old one is there in time."""
        updates = FilterUpdates()
        for text, hops in filters.items():
            self.add(origin, Filter(text), hops, updates)
        for text in [text for text in self._received.get(origin, {}) if text not in filters]:
            self.remove(origin, text, updates)
        return updates

    def get_received(self, origin: NodeId) -> Mapping[str, int]:
        """Return the filters of an origin, with distances."""
        return self._received.get(origin, {})

    def origins(self) -> Iterator[NodeId]:
        """The origins of all filters."""
        return iter(self._received)

    def received_digest(self, origin: NodeId) -> int:
        """The digest of the filters of an origin: a sum of hashes."""
        return self._digests.get(origin, 0)

    # Forwarded filters.

    def add_neighbor(self, neighbor: NodeId) -> None:
        """Compute the filters to forward to a neighbor, and keep them up to date from now on."""
        forwarded = _ForwardedFilters()
        if self._forwarded:
            # The filters forwarded to another neighbor, plus that neighbor's own and minus this one's: with many
            # filters this is far less work than comparing all of them.
            other = min(self._forwarded, key=lambda other: (len(self._received.get(other, ())), other))
            forwarded.forest = self._forwarded[other].forest.copy()
            for text in self._received.get(other, {}):
                forwarded.forest.add(Filter(text))
            for text in self._received.get(neighbor, {}):
                forwarded.forest.remove(text)
        else:
            texts = (text for origin, received in self._received.items() if origin != neighbor for text in received)
            for text in texts:
                forwarded.forest.add(Filter(text))
        for text in forwarded.forest:
            forwarded.hops[text] = self._distance(neighbor, text)
            forwarded.digest = (forwarded.digest + hash_filter(text)) % MODULUS
        self._forwarded[neighbor] = forwarded

    def has_neighbor(self, neighbor: NodeId) -> bool:
        """Whether filters are forwarded to a neighbor."""
        return neighbor in self._forwarded

    def remove_neighbor(self, neighbor: NodeId) -> None:
        """Stop forwarding to a neighbor; the filters received from it stay."""
        self._forwarded.pop(neighbor, None)

    def get_forwarded(self, neighbor: NodeId) -> Mapping[str, int]:
        """Return the filters forwarded to a neighbor, with distances."""
        return self._forwarded[neighbor].hops

    def forwarded_digest(self, neighbor: NodeId) -> int:
        """The digest of the filters forwarded to a neighbor."""
        return self._forwarded[neighbor].digest

    # Events and requests.

    def match(self, attributes: Attributes) -> Iterable[NodeId]:
        """The neighbors with a filter that matches an event, each once."""
        return dict.fromkeys([neighbor for neighbor, _ in self._index.match(attributes)])

    def _apply(
        self, neighbor: NodeId, forwarded: _ForwardedFilters, change: CoverChange, updates: FilterUpdates
    ) -> None:
        for text in change.added:
            forwarded.digest = (forwarded.digest + hash_filter(text)) % MODULUS
            forwarded.hops[text] = self._distance(neighbor, text)
            updates.record(neighbor, text, None, forwarded.hops[text])
        for text in change.withdrawn:
            forwarded.digest = (forwarded.digest - hash_filter(text)) % MODULUS
            updates.record(neighbor, text, forwarded.hops.pop(text), None)

    def _update_distance(
        self, neighbor: NodeId, forwarded: _ForwardedFilters, text: str, updates: FilterUpdates
    ) -> None:
        """Update the distance of a forwarded filter."""
        if self._distances and text in forwarded.hops:
            before, forwarded.hops[text] = forwarded.hops[text], self._distance(neighbor, text)
            updates.record(neighbor, text, before, forwarded.hops[text])

    def _distance(self, neighbor: NodeId, text: str) -> int:
        if not self._distances:
            return 1
        return 1 + min(
            (received[text] for origin, received in self._received.items() if origin != neighbor and text in received),
            default=0,
        )
