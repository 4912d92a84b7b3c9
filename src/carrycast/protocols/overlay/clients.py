"""What a broker knows of clients: its own [002 §3.3, the client information table], and what all of them want."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from carrycast.core.matching import Filter, FilterError, serves
from carrycast.core.matching.index import FilterIndex
from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.protocols.overlay.moves import Interest
from carrycast.protocols.overlay.words import Version


@dataclass(slots=True)
class Client:
    """A row of the client information table: who, how far, over which paths."""

    node: NodeId
    version: Version
    distance: float
    heard: float
    peers: dict[NodeId, NodeId] = field(default_factory=dict)
    """The broker at the other end of each of its streams: of each producer that it hears, or each consumer's."""


class Clients:
    """Those for which a broker is home; at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[NodeId, Client] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._rows

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._rows.values()))

    def get(self, node: NodeId) -> Client | None:
        """A client of this home, or None."""
        return self._rows.get(node)

    def add(self, client: Client) -> bool:
        """A client has come; False if there is no room."""
        if client.node not in self._rows and len(self._rows) >= self._limit:
            return False
        self._rows[client.node] = client
        return True

    def remove(self, node: NodeId) -> Client | None:
        """A client has gone."""
        return self._rows.pop(node, None)


class InterestTable:
    """Every subscription that a broker has heard of, with the place of its modulator. Soft state."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._interests: dict[SubscriptionId, tuple[Interest, float]] = {}
        self._homes: dict[NodeId, tuple[Version, NodeId]] = {}
        self._of: dict[NodeId, set[SubscriptionId]] = {}

    def __len__(self) -> int:
        return len(self._interests)

    def __iter__(self) -> Iterator[Interest]:
        return iter([interest for interest, _ in self._interests.values()])

    def get(self, id: SubscriptionId) -> Interest | None:
        """What is known of a subscription."""
        known = self._interests.get(id)
        return None if known is None else known[0]

    def home(self, client: NodeId) -> NodeId | None:
        """Where a client is at home, by the newest word on any of its subscriptions."""
        known = self._homes.get(client)
        return None if known is None else known[1]

    def put(self, interest: Interest, until: float) -> str:
        """Take in the newest word; why not, if not. The same word again renews it."""
        id = interest.subscription.id
        known = self.get(id)
        if known is not None and interest.version < known.version:
            return "interest_outdated"
        if known is not None and interest.version == known.version and interest.place < known.place:
            # Two brokers that both believe to have it: all hold to the same rule, so one of the two will give way.
            return "interest_contested"
        if known is None and len(self._interests) >= self._limit:
            return "interests_full"
        if known is None or known.subscription.filter != interest.subscription.filter:
            try:
                parsed = Filter(interest.subscription.filter)
            except FilterError:
                return "filter_unreadable"
            if known is not None:
                self._index.remove(id)
            self._index.add(id, parsed)
        self._interests[id] = (interest, until)
        self._homes[id.subscriber] = (interest.version, interest.home)
        self._of.setdefault(id.subscriber, set()).add(id)
        return ""

    def remove(self, id: SubscriptionId) -> bool:
        """A subscription has ended; False if it is not known."""
        if self._interests.pop(id, None) is None:
            return False
        self._index.remove(id)
        left = self._of[id.subscriber]
        left.discard(id)
        if not left:
            del self._of[id.subscriber]
            del self._homes[id.subscriber]
        return True

    def expire(self, now: float) -> list[SubscriptionId]:
        """Forget what nobody has renewed."""
        gone = [id for id, (_, until) in self._interests.items() if until <= now]
        for id in gone:
            self.remove(id)
        return gone

    def served(self, event: Event) -> list[Interest]:
        """Those that an event is for, by filter and access policy."""
        found = (self._interests[id][0] for id in self._index.match(event.attributes))
        return [interest for interest in found if event.access is None or serves(event, interest.subscription)]
