"""The places that a node is a holder at, and what it hands over when it leaves one. Beyond [003 §3.4]."""

from collections.abc import Iterator

from carrycast.core.model import Position
from carrycast.core.protocol import Place
from carrycast.protocols.topic_holder.homes import Homes
from carrycast.protocols.topic_holder.messages import Handed, HandOver, parts
from carrycast.protocols.topic_holder.table import SubscriptionTable


class PlaceWatch:
    """Topics within K of whose places a node is, and of which it holds subscriptions.

    Soft state fills the table of whoever comes to a place within one refresh [003 §3.4]. The more seldom subscribers
    speak, the longer an event may meet a table that is not full yet; so who leaves tells those who stay.
    """

    def __init__(self, homes: Homes, table: SubscriptionTable, most_bytes: int) -> None:
        self._homes = homes
        self._table = table
        self._most_bytes = most_bytes
        self._topics: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def holds(self, topic: str, here: Position | None) -> None:
        """The node holds a subscription of a topic: if it is within K, this is a place to watch."""
        if topic not in self._topics and self._homes.is_within(topic, here):
            self._topics[topic] = None

    def left(self, now: float, here: Position | None) -> Iterator[tuple[Place, HandOver]]:
        """What to send where, topic by topic, since the node is no longer there; who is nowhere can send nothing."""
        for topic in list(self._topics):
            standing = {held.entry.subscription.id: held for held in self._table.standing(now, topic)}
            if standing and self._homes.is_within(topic, here):
                continue
            del self._topics[topic]
            if not standing or here is None:
                continue
            for part in parts((held.entry for held in standing.values()), self._most_bytes):
                ends = [standing[entry.subscription.id].until for entry in part]
                last = max(ends)
                handed = tuple(Handed(entry, last - end) for entry, end in zip(part, ends, strict=True))
                yield self._homes.nearest_place(topic, here), HandOver(topic, handed, last - now)
