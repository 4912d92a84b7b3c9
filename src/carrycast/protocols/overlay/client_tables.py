"""The tables of a broker about clients [002 §3.3], and how a broker that starts fills them.

The client information table has the clients for which this broker is the home broker. The subscription directory has
the subscriptions of the whole network. A broker that starts knows no subscription and requests them from others. It
cannot know whether it is the first broker or joins a running network, so it asks a few others. It is ready when one of
them is ready itself, or when none of them is. Events that are published before that wait.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from carrycast.core.matching import Filter, FilterError, serves
from carrycast.core.matching.index import FilterIndex
from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.messages import Ask, Interest, Known, Publish, Version


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


ASKED = 2
"""Brokers that are asked at a time."""

MAX_HELD = 1024

MAX_TOLD = 64


class Starting:
    """The beginning of one broker."""

    def __init__(self, station: Station, interests: InterestTable) -> None:
        self._station = station
        self._interests = interests
        at = station.brokers.index(station.node) if station.node in station.brokers else 0
        self._to_ask = deque([*station.brokers[at + 1 :], *station.brokers[:at]])
        self._since = 0.0
        self._asked: set[NodeId] = set()
        self._held: list[tuple[float, NodeId, Publish, int]] = []
        self.done = not self._to_ask

    def begin(self, now: float) -> None:
        """Ask the first ones."""
        self._since = now
        if not self.done:
            self._ask_some(now)

    def _ask_some(self, now: float) -> None:
        settings = self._station.settings
        self._station.arm("started", min(settings.resend_s, settings.seek_s))
        for _ in range(min(ASKED, len(self._to_ask))):
            self._ask(now)

    def _ask(self, now: float) -> None:
        other = self._to_ask[0]
        self._to_ask.rotate(-1)
        self._asked.add(other)
        self._station.send(now, other, Ask())

    def on_ask(self, now: float, origin: NodeId) -> None:
        """Another one starts."""
        known = list(self._interests)
        for begin in range(0, max(len(known), 1), MAX_TOLD):
            more = begin + MAX_TOLD < len(known)
            self._station.send(now, origin, Known(tuple(known[begin : begin + MAX_TOLD]), more, self.done))

    def on_known(self, now: float, origin: NodeId, message: Known) -> bool:
        """Somebody has told; whether that was what was waited for."""
        if origin not in self._asked:
            self._station.drop("not_asked", origin)
            return False
        for interest in message.interests:
            if self._station.is_broker(interest.place) and self._station.is_broker(interest.home):
                self._interests.put(interest, now + self._station.settings.lease_s)
        if not message.more:
            self._asked.discard(origin)
        return not message.more and (message.sure or not self._asked) and self._end()

    def on_timer(self, now: float) -> bool:
        """Some have not answered: others are asked, but nobody waits for ever; whether that ends it."""
        if now - self._since >= self._station.settings.seek_s:
            return self._end()
        self._ask_some(now)
        return False

    def _end(self) -> bool:
        ends, self.done = not self.done, True
        self._station.disarm("started")
        return ends

    def hold(self, now: float, origin: NodeId, message: Publish, hops: int) -> None:
        """What is published must wait until it is known for whom."""
        if len(self._held) < MAX_HELD:
            self._held.append((now, origin, message, hops))
        else:
            self._station.drop("starting", origin, message.event.id)

    def held(self, now: float) -> list[tuple[NodeId, Publish, int]]:
        """All that has waited, as old as it is."""
        held, self._held = self._held, []
        aged = [(origin, message.age_by(now - since), hops) for since, origin, message, hops in held]
        return [(origin, message, hops) for origin, message, hops in aged if message is not None]
