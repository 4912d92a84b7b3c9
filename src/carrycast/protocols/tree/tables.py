"""Who told what, and what each neighbor must be told: the paper's subscription table, and its advertisement table.

[000 §IV] "a subscription is forwarded to a neighboring broker only if it is not being covered by a subscription already
forwarded to the same neighbor". Of each neighbor stands here what it said; toward each, the fewest filters that cover
what all others said. Changes come out as what has to be said now.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from carrycast.core.matching import CoverChange, CoverForest, Filter, FilterIndex
from carrycast.core.model import Attributes, NodeId

MODULUS = 1 << 63


def hash_of(text: str) -> int:
    """The same for a text on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % MODULUS


class _Told:
    """What one neighbor has been told."""

    __slots__ = ("digest", "forest", "hops")

    def __init__(self) -> None:
        self.forest = CoverForest()
        self.hops: dict[str, int] = {}
        """Of each filter told, how far away the nearest of its origins is."""
        self.digest = 0


class Changes:
    """What has to be said to whom, all in all: what is told and withdrawn on the way to the same end is not said."""

    __slots__ = ("_moves",)

    def __init__(self) -> None:
        self._moves: dict[NodeId, dict[str, tuple[int | None, int | None]]] = {}
        """Of each filter that moved, its distance as the neighbor knows it and as it is now; None for not told."""

    def __iter__(self) -> Iterator[NodeId]:
        """The neighbors to which something may have to be said."""
        return iter(self._moves)

    def move(self, neighbor: NodeId, text: str, before: int | None, now: int | None) -> None:
        """A filter has come, gone, or is nearer or farther."""
        moves = self._moves.setdefault(neighbor, {})
        moves[text] = (moves[text][0] if text in moves else before, now)

    def told(self, neighbor: NodeId) -> dict[str, int]:
        """What it has to be told."""
        moves = self._moves.get(neighbor, {})
        return {text: now for text, (before, now) in moves.items() if now is not None and now != before}

    def withdrawn(self, neighbor: NodeId) -> list[str]:
        """What it has been told and is no more."""
        moves = self._moves.get(neighbor, {})
        return [text for text, (before, now) in moves.items() if now is None and before is not None]


class FilterTable:
    """Filters by the neighbor that told them; `own` is the node itself, of whose applications two may want the same."""

    __slots__ = ("_digests", "_distances", "_heard", "_index", "_own", "_own_counts", "_told")

    def __init__(self, own: NodeId, distances: bool) -> None:
        self._own = own
        self._distances = distances
        """Whether anybody asks how far away the origins of a filter are."""
        self._own_counts: dict[str, int] = {}
        self._heard: dict[NodeId, dict[str, int]] = {}
        self._digests: dict[NodeId, int] = {}
        self._told: dict[NodeId, _Told] = {}
        self._index: FilterIndex[tuple[NodeId, str]] = FilterIndex()

    # What neighbors, and the own applications, want.

    def add_own(self, filter: Filter) -> Changes:
        """An own application's filter; there may be several that say the same."""
        count = self._own_counts[filter.text] = self._own_counts.get(filter.text, 0) + 1
        return self.hear(self._own, filter, 0) if count == 1 else Changes()

    def remove_own(self, text: str) -> Changes:
        """An own application no longer wants it."""
        self._own_counts[text] -= 1
        if self._own_counts[text]:
            return Changes()
        del self._own_counts[text]
        return self.forget(self._own, text)

    def hear(self, origin: NodeId, filter: Filter, hops: int, changes: Changes | None = None) -> Changes:
        """A filter of a neighbor; one that it said before may be nearer or farther now."""
        changes = Changes() if changes is None else changes
        text = filter.text
        heard = self._heard.setdefault(origin, {})
        new = text not in heard
        if not new and heard[text] == hops:
            return changes
        heard[text] = hops
        if new:
            self._digests[origin] = (self._digests.get(origin, 0) + hash_of(text)) % MODULUS
            if origin != self._own:
                self._index.add((origin, text), filter)
        for neighbor, told in self._told.items():
            if neighbor != origin:
                self._apply(neighbor, told, told.forest.add(filter) if new else CoverChange(), changes)
                self._move(neighbor, told, text, changes)
        return changes

    def forget(self, origin: NodeId, text: str, changes: Changes | None = None) -> Changes:
        """A neighbor no longer wants it; one that it never said is no mistake."""
        changes = Changes() if changes is None else changes
        heard = self._heard.get(origin, {})
        if text not in heard:
            return changes
        del heard[text]
        self._digests[origin] = (self._digests[origin] - hash_of(text)) % MODULUS
        if origin != self._own:
            self._index.remove((origin, text))
        if not heard:
            del self._heard[origin], self._digests[origin]
        for neighbor, told in self._told.items():
            if neighbor != origin:
                self._apply(neighbor, told, told.forest.remove(text), changes)
                self._move(neighbor, told, text, changes)
        return changes

    def replace(self, origin: NodeId, filters: Mapping[str, int]) -> Changes:
        """All that a neighbor wants, at once. [000 §V] First what is new, then what is no more, so that what covers
        the old is there before it goes."""
        changes = Changes()
        for text, hops in filters.items():
            self.hear(origin, Filter(text), hops, changes)
        for text in [text for text in self._heard.get(origin, {}) if text not in filters]:
            self.forget(origin, text, changes)
        return changes

    def heard(self, origin: NodeId) -> Mapping[str, int]:
        """What a neighbor has told, with distances."""
        return self._heard.get(origin, {})

    def origins(self) -> Iterator[NodeId]:
        """Whoever has told something."""
        return iter(self._heard)

    def digest_heard(self, origin: NodeId) -> int:
        """A sum over what a neighbor has told."""
        return self._digests.get(origin, 0)

    # What neighbors are told.

    def open(self, neighbor: NodeId) -> None:
        """From now on a neighbor is told of changes."""
        told = _Told()
        if self._told:
            # What another neighbor is told, that neighbor's own filters, and without this one's: with many filters that
            # is far less work than to compare them all anew.
            other = min(self._told, key=lambda other: (len(self._heard.get(other, ())), other))
            told.forest = self._told[other].forest.copy()
            for text in self._heard.get(other, {}):
                told.forest.add(Filter(text))
            for text in self._heard.get(neighbor, {}):
                told.forest.remove(text)
        else:
            texts = (text for origin, heard in self._heard.items() if origin != neighbor for text in heard)
            for text in texts:
                told.forest.add(Filter(text))
        for text in told.forest:
            told.hops[text] = self._hops(neighbor, text)
            told.digest = (told.digest + hash_of(text)) % MODULUS
        self._told[neighbor] = told

    def is_open(self, neighbor: NodeId) -> bool:
        """Whether it is."""
        return neighbor in self._told

    def close(self, neighbor: NodeId) -> None:
        """It is told nothing more; what it has told stays."""
        self._told.pop(neighbor, None)

    def told(self, neighbor: NodeId) -> Mapping[str, int]:
        """All that a neighbor must know, with distances."""
        return self._told[neighbor].hops

    def digest_told(self, neighbor: NodeId) -> int:
        """A sum over what it has been told."""
        return self._told[neighbor].digest

    # Events and requests.

    def matching(self, attributes: Attributes) -> Iterable[NodeId]:
        """The neighbors that want an event, each once."""
        return dict.fromkeys([neighbor for neighbor, _ in self._index.match(attributes)])

    def _apply(self, neighbor: NodeId, told: _Told, change: CoverChange, changes: Changes) -> None:
        for text in change.added:
            told.digest = (told.digest + hash_of(text)) % MODULUS
            told.hops[text] = self._hops(neighbor, text)
            changes.move(neighbor, text, None, told.hops[text])
        for text in change.withdrawn:
            told.digest = (told.digest - hash_of(text)) % MODULUS
            changes.move(neighbor, text, told.hops.pop(text), None)

    def _move(self, neighbor: NodeId, told: _Told, text: str, changes: Changes) -> None:
        """A filter that is told may have another distance now."""
        if self._distances and text in told.hops:
            before, told.hops[text] = told.hops[text], self._hops(neighbor, text)
            changes.move(neighbor, text, before, told.hops[text])

    def _hops(self, neighbor: NodeId, text: str) -> int:
        if not self._distances:
            return 1
        return 1 + min(
            (heard[text] for origin, heard in self._heard.items() if origin != neighbor and text in heard), default=0
        )
