"""Whom a node expects to meet, and what they want."""

from typing import NamedTuple

from carrycast.core.model import Event, NodeId
from carrycast.core.parts.interests import KnownFilters
from carrycast.protocols.prophet.messages import Version
from carrycast.protocols.prophet.rules import aged, encounter, transitive
from carrycast.protocols.prophet.settings import ProphetSettings


class _Wants(NamedTuple):
    """What a node wants, and since when."""

    version: Version
    filters: tuple[str, ...]


class Table:
    """Predictabilities by node, and profiles of those who want something.

    What is read is aged to the moment of reading; what was last written says from when.
    """

    def __init__(self, node: NodeId, settings: ProphetSettings) -> None:
        self._node = node
        self._settings = settings
        self._values: dict[NodeId, tuple[float, float]] = {}
        """What a predictability was, and when."""
        self._met: dict[NodeId, float] = {}
        """When a node was last met itself."""
        self._wants: dict[NodeId, _Wants] = {}
        self._by_filter: dict[str, dict[NodeId, None]] = {}
        self._interests = KnownFilters()

    def __len__(self) -> int:
        return len(self._values)

    def value(self, now: float, node: NodeId) -> float:
        """How likely a node is to be met; 0 for one not heard of."""
        value, since = self._values.get(node, (0.0, now))
        return aged(value, self._settings.gamma, (now - since) / self._settings.unit_s)

    def meet(self, now: float, node: NodeId) -> None:
        """A node has come."""
        settings = self._settings
        last = self.value(now, node) if node in self._values else None
        since_s = now - self._met.get(node, float("-inf"))
        value = encounter(
            last, since_s, settings.first, settings.most, settings.typical_s, settings.threshold, settings.delta
        )
        self._values[node] = (value, now)
        self._met[node] = now
        self._make_room(now)

    def hear(self, now: float, neighbor: NodeId, node: NodeId, value: float) -> None:
        """A neighbor says how likely it is to meet a node."""
        known = self.value(now, node)
        better = transitive(known, self.value(now, neighbor), value, self._settings.beta)
        if better > known:
            self._values[node] = (better, now)

    def settle(self, now: float) -> None:
        """After a neighbor's words: what is all but forgotten goes, and what is too much."""
        for node in [node for node in self._values if self.value(now, node) < self._settings.threshold]:
            self._drop(node)
        self._make_room(now)

    def version(self, node: NodeId) -> Version | None:
        """Of which version a node's wants are known."""
        wants = self._wants.get(node)
        return None if wants is None else wants.version

    def filters(self, node: NodeId) -> tuple[str, ...]:
        """What a node wants, as far as is known."""
        wants = self._wants.get(node)
        return () if wants is None else wants.filters

    def learn(self, node: NodeId, version: Version, filters: tuple[str, ...]) -> bool:
        """What a node wants, if that is news; False if it cannot be read."""
        known = self.version(node)
        if node == self._node or node not in self._values or (known is not None and version <= known):
            return True
        if not self._interests.learn(filters):
            return False
        self._unlearn(node)
        # A filter that nobody else wants went with the node's old wants, and may be among the new.
        self._interests.learn(filters)
        self._wants[node] = _Wants(version, filters)
        for text in filters:
            self._by_filter.setdefault(text, {})[node] = None
        return True

    def subscribers(self) -> list[NodeId]:
        """The nodes that want something, as far as is known."""
        return [node for node, wants in self._wants.items() if wants.filters]

    def destinations(self, event: Event) -> list[NodeId]:
        """The nodes that want an event, as far as is known."""
        found: dict[NodeId, None] = {}
        for text in self._interests.match(event):
            found.update(self._by_filter.get(text, {}))
        return list(found)

    def _make_room(self, now: float) -> None:
        over = len(self._values) - self._settings.destinations
        if over > 0:
            for node in sorted(self._values, key=lambda node: (self.value(now, node), node))[:over]:
                self._drop(node)

    def _drop(self, node: NodeId) -> None:
        del self._values[node]
        self._met.pop(node, None)
        self._unlearn(node)

    def _unlearn(self, node: NodeId) -> None:
        wants = self._wants.pop(node, None)
        if wants is None:
            return
        idle = False
        for text in wants.filters:
            nodes = self._by_filter[text]
            del nodes[node]
            if not nodes:
                del self._by_filter[text]
                idle = True
        if idle:
            self._interests.keep(self._by_filter)
