"""The routing information base of a node: delivery predictabilities, and the subscriptions of other nodes."""

from carrycast.core.model import Event, NodeId
from carrycast.core.parts import ProfileVersion, SubscriberProfiles
from carrycast.protocols.prophet.rules import age, update_encounter, update_transitivity
from carrycast.protocols.prophet.settings import ProphetSettings


class RoutingInformationBase:
    """Delivery predictabilities by node, and the profiles of nodes with subscriptions [RFC 6693 §3.2].

    A stored predictability has the time of its last update. It is aged when it is read.
    """

    def __init__(self, node: NodeId, settings: ProphetSettings) -> None:
        self._node = node
        self._settings = settings
        self._values: dict[NodeId, tuple[float, float]] = {}
        """The predictability of each node at its last update, and the time of that."""
        self._encounters: dict[NodeId, float] = {}
        """The time of the last encounter with each node."""
        self._profiles = SubscriberProfiles()

    def __len__(self) -> int:
        return len(self._values)

    def predictability(self, now: float, node: NodeId) -> float:
        """The delivery predictability of a node; 0 for an unknown one."""
        value, since = self._values.get(node, (0.0, now))
        return age(value, self._settings.gamma, (now - since) / self._settings.unit_s)

    def on_encounter(self, now: float, node: NodeId) -> None:
        """Update the predictability of a node that has become a neighbor (equation 1)."""
        settings = self._settings
        last = self.predictability(now, node) if node in self._values else None
        since_s = now - self._encounters.get(node, float("-inf"))
        value = update_encounter(
            last, since_s, settings.first, settings.most, settings.typical_s, settings.threshold, settings.delta
        )
        self._values[node] = (value, now)
        self._encounters[node] = now
        self._make_room(now)

    def on_neighbor_entry(self, now: float, neighbor: NodeId, node: NodeId, value: float) -> None:
        """Update the predictability of a node from that of a neighbor (equation 3)."""
        known = self.predictability(now, node)
        better = update_transitivity(known, self.predictability(now, neighbor), value, self._settings.beta)
        if better > known:
            self._values[node] = (better, now)

    def prune(self, now: float) -> None:
        """Remove the nodes below the threshold, and those beyond the capacity."""
        for node in [node for node in self._values if self.predictability(now, node) < self._settings.threshold]:
            self._remove(node)
        self._make_room(now)

    def version(self, node: NodeId) -> ProfileVersion | None:
        """The version of a node's known profile."""
        return self._profiles.version(node)

    def filters(self, node: NodeId) -> tuple[str, ...]:
        """The known filters of a node."""
        return self._profiles.filters(node)

    def add_profile(self, node: NodeId, version: ProfileVersion, filters: tuple[str, ...]) -> bool:
        """Store a node's profile if it is newer; False if a filter is malformed."""
        known = self.version(node)
        if node == self._node or node not in self._values or (known is not None and version <= known):
            return True
        return self._profiles.add(node, version, filters)

    def subscribers(self) -> list[NodeId]:
        """The nodes that are known to have subscriptions."""
        return self._profiles.subscribers()

    def destinations(self, event: Event) -> list[NodeId]:
        """The destinations of an event: the nodes with a known filter that matches it."""
        return self._profiles.destinations(event)

    def _make_room(self, now: float) -> None:
        over = len(self._values) - self._settings.destinations
        if over > 0:
            for node in sorted(self._values, key=lambda node: (self.predictability(now, node), node))[:over]:
                self._remove(node)

    def _remove(self, node: NodeId) -> None:
        del self._values[node]
        self._encounters.pop(node, None)
        self._profiles.remove(node)
