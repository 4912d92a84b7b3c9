"""The tables of a broker about clients [002 §3.3], and how a broker that starts fills them.

The client information table has the clients for which this broker is the home broker. The subscription directory has
the subscriptions of the whole network. A broker that starts knows no subscription and requests them from others. It
cannot know whether it is the first broker or joins a running network, so it asks a few others. It is done when one of
them is done itself, or when none of them is. Events that are published before that wait.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from carrycast.core.matching import Filter, FilterError, FilterIndex, serves
from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.messages import (
    DirectoryEntry,
    DirectoryReply,
    DirectoryRequest,
    HomeVersion,
    Publish,
)

PARALLEL_REQUESTS = 2
"""Brokers that are asked for their directory at the same time."""
MAX_WAITING = 1024
"""Published events that wait for the directory."""
MAX_LISTED = 64
"""Entries of one reply."""


@dataclass(slots=True)
class ClientInformation:
    """A row of the client information table: the client, its distance, and the other ends of its streams."""

    node: NodeId
    version: HomeVersion
    distance: float
    heard: float
    peers: dict[NodeId, NodeId] = field(default_factory=dict)
    """The broker at the other end of each of its streams, by producer or by consumer."""


class ClientInformationTable:
    """The clients for which a broker is the home broker; at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[NodeId, ClientInformation] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._rows

    def __iter__(self) -> Iterator[ClientInformation]:
        return iter(list(self._rows.values()))

    def get(self, node: NodeId) -> ClientInformation | None:
        """The row of a client, or None."""
        return self._rows.get(node)

    def add(self, client: ClientInformation) -> bool:
        """Add a client; False if the table is full."""
        if client.node not in self._rows and len(self._rows) >= self._limit:
            return False
        self._rows[client.node] = client
        return True

    def remove(self, node: NodeId) -> ClientInformation | None:
        """Remove a client."""
        return self._rows.pop(node, None)


class SubscriptionDirectory:
    """All subscriptions of the network with the brokers of their modulators. Soft state."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._entries: dict[SubscriptionId, tuple[DirectoryEntry, float]] = {}
        self._homes: dict[NodeId, tuple[HomeVersion, NodeId]] = {}
        self._by_client: dict[NodeId, set[SubscriptionId]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[DirectoryEntry]:
        return iter([entry for entry, _ in self._entries.values()])

    def get(self, id: SubscriptionId) -> DirectoryEntry | None:
        """The entry of a subscription, or None."""
        known = self._entries.get(id)
        return None if known is None else known[0]

    def home_of(self, client: NodeId) -> NodeId | None:
        """The home broker of a client, by the newest entry of any of its subscriptions."""
        known = self._homes.get(client)
        return None if known is None else known[1]

    def put(self, entry: DirectoryEntry, until: float) -> str:
        """Add an entry or renew it. Returns the reason if it is rejected."""
        id = entry.subscription.id
        known = self.get(id)
        if known is not None and entry.version < known.version:
            return "interest_outdated"
        if known is not None and entry.version == known.version and entry.broker < known.broker:
            # Two brokers both believe that they run the modulator. All brokers follow the same rule, so one of the two
            # gives up.
            return "interest_contested"
        if known is None and len(self._entries) >= self._limit:
            return "interests_full"
        if known is None or known.subscription.filter != entry.subscription.filter:
            try:
                parsed = Filter(entry.subscription.filter)
            except FilterError:
                return "filter_unreadable"
            if known is not None:
                self._index.remove(id)
            self._index.add(id, parsed)
        self._entries[id] = (entry, until)
        self._homes[id.subscriber] = (entry.version, entry.home)
        self._by_client.setdefault(id.subscriber, set()).add(id)
        return ""

    def remove(self, id: SubscriptionId) -> bool:
        """Remove an entry; False if there is none."""
        if self._entries.pop(id, None) is None:
            return False
        self._index.remove(id)
        left = self._by_client[id.subscriber]
        left.discard(id)
        if not left:
            del self._by_client[id.subscriber]
            del self._homes[id.subscriber]
        return True

    def expire(self, now: float) -> list[SubscriptionId]:
        """Remove the entries that were not renewed in time, and return their ids."""
        expired = [id for id, (_, until) in self._entries.items() if until <= now]
        for id in expired:
            self.remove(id)
        return expired

    def find_matching(self, event: Event) -> list[DirectoryEntry]:
        """The subscriptions that an event is for, by filter and access policy."""
        found = (self._entries[id][0] for id in self._index.match(event.attributes))
        return [entry for entry in found if event.access is None or serves(event, entry.subscription)]


class DirectorySync:
    """Fills the directory of a broker that starts."""

    def __init__(self, context: NodeContext, directory: SubscriptionDirectory) -> None:
        self._context = context
        self._directory = directory
        at = context.brokers.index(context.node) if context.node in context.brokers else 0
        self._to_ask = deque([*context.brokers[at + 1 :], *context.brokers[:at]])
        self._since = 0.0
        self._asked: set[NodeId] = set()
        self._queued: list[tuple[float, NodeId, Publish, int]] = []
        self.is_done = not self._to_ask

    def begin(self, now: float) -> None:
        """Send the first requests."""
        self._since = now
        if not self.is_done:
            self._request_some(now)

    def _request_some(self, now: float) -> None:
        settings = self._context.settings
        self._context.start_timer("directory", min(settings.resend_s, settings.seek_s))
        for _ in range(min(PARALLEL_REQUESTS, len(self._to_ask))):
            other = self._to_ask[0]
            self._to_ask.rotate(-1)
            self._asked.add(other)
            self._context.send(now, other, DirectoryRequest())

    def on_request(self, now: float, origin: NodeId) -> None:
        """Another broker starts: send it the directory."""
        entries = list(self._directory)
        for begin in range(0, max(len(entries), 1), MAX_LISTED):
            more = begin + MAX_LISTED < len(entries)
            part = tuple(entries[begin : begin + MAX_LISTED])
            self._context.send(now, origin, DirectoryReply(part, more, self.is_done))

    def on_reply(self, now: float, origin: NodeId, message: DirectoryReply) -> bool:
        """Take the directory of another broker in. Returns whether that completes the synchronization."""
        if origin not in self._asked:
            self._context.drop("not_asked", origin)
            return False
        for entry in message.entries:
            if self._context.is_broker(entry.broker) and self._context.is_broker(entry.home):
                self._directory.put(entry, now + self._context.settings.lease_s)
        if not message.more:
            self._asked.discard(origin)
        return not message.more and (message.complete or not self._asked) and self._finish()

    def on_timer(self, now: float) -> bool:
        """Some replies are missing: ask other brokers, or finish after `seek_s`. Returns whether it is finished."""
        if now - self._since >= self._context.settings.seek_s:
            return self._finish()
        self._request_some(now)
        return False

    def _finish(self) -> bool:
        is_first, self.is_done = not self.is_done, True
        self._context.stop_timer("directory")
        return is_first

    def queue(self, now: float, origin: NodeId, message: Publish, hops: int) -> None:
        """Keep a published event until the directory is known."""
        if len(self._queued) < MAX_WAITING:
            self._queued.append((now, origin, message, hops))
        else:
            self._context.drop("starting", origin, message.event.id)

    def take_queued(self, now: float) -> list[tuple[NodeId, Publish, int]]:
        """Remove and return the queued events that have not expired, with the time that they waited deducted."""
        queued, self._queued = self._queued, []
        aged = [(origin, message.age_by(now - since), hops) for since, origin, message, hops in queued]
        return [(origin, message, hops) for origin, message, hops in aged if message is not None]
