"""The subscriptions of other nodes. They show the destinations of an event: the nodes with a matching filter."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import Event, NodeId
from carrycast.core.parts.interests import KnownFilters

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ProfileVersion(NamedTuple):
    """The version of a node's subscriptions: how often the node has started, and how often they have changed since."""

    incarnation: Count
    change: Count


class _KnownProfile(NamedTuple):
    """The known filters of a node, and their version."""

    version: ProfileVersion
    filters: tuple[str, ...]


class SubscriberProfiles:
    """The filters of nodes by version, and the nodes by filter."""

    def __init__(self) -> None:
        self._profiles: dict[NodeId, _KnownProfile] = {}
        self._by_filter: dict[str, dict[NodeId, None]] = {}
        self._interests = KnownFilters()
        self.changes = 0
        """How often a filter of a node has changed, so that destinations can be cached."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._profiles

    def version(self, node: NodeId) -> ProfileVersion | None:
        """The version of a node's known profile."""
        profile = self._profiles.get(node)
        return None if profile is None else profile.version

    def filters(self, node: NodeId) -> tuple[str, ...]:
        """The known filters of a node."""
        profile = self._profiles.get(node)
        return () if profile is None else profile.filters

    def add(self, node: NodeId, version: ProfileVersion, filters: tuple[str, ...]) -> bool:
        """Store a node's profile; False if a filter is malformed."""
        if not self._interests.learn(filters):
            return False
        if filters != self.filters(node):
            self.changes += 1
        self.remove(node)
        # A filter that no other node has was removed with the old profile, and may be in the new one.
        self._interests.learn(filters)
        self._profiles[node] = _KnownProfile(version, filters)
        for text in filters:
            self._by_filter.setdefault(text, {})[node] = None
        return True

    def subscribers(self) -> list[NodeId]:
        """The nodes that are known to have subscriptions."""
        return [node for node, profile in self._profiles.items() if profile.filters]

    def destinations(self, event: Event) -> list[NodeId]:
        """The destinations of an event: the nodes with a known filter that matches it."""
        found: dict[NodeId, None] = {}
        for text in self._interests.match(event):
            found.update(self._by_filter.get(text, {}))
        return list(found)

    def remove(self, node: NodeId) -> None:
        """Forget a node's profile; an unknown node is ignored."""
        profile = self._profiles.pop(node, None)
        if profile is None:
            return
        unused = False
        for text in profile.filters:
            nodes = self._by_filter[text]
            del nodes[node]
            if not nodes:
                del self._by_filter[text]
                unused = True
        if unused:
            self._interests.keep(self._by_filter)
