"""What the parts of one ASP broker share: its node, its tables, its neighbors, its applications."""

import msgspec

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import EventId, NodeId, Scalar
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import HEADER_BYTES, Message, hops_after
from carrycast.protocols.asp.messages import Announcement, Publication
from carrycast.protocols.asp.network import NeighborCache
from carrycast.protocols.asp.settings import AspSettings
from carrycast.protocols.asp.tables import Announced, Item, Table

GRAIN_S = 0.001
"""Nothing ends so punctually that a timer for less than a millisecond would be worth it."""


class Broker:
    """The state of a broker, and what every part of it does in the same way."""

    def __init__(self, node: NodeId, settings: AspSettings, port: Port, subscriber: int) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.subscriber = subscriber
        """[001 §4.3] Drawn at random by the sink's broker to stand for it."""
        self.table = Table()
        self.neighbors = NeighborCache(
            port, settings.unreachable_s, settings.retries, settings.announce_by == "unicast"
        )
        self.local = LocalSubscriptions(port)
        self._expiry_s: float | None = None

    def drop(self, reason: str, event: EventId | None = None, peer: NodeId | None = None) -> None:
        """Something was not done, and this is why."""
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))

    def wants(self, entry: Announced) -> bool:
        """[001 §4.1] Whether a local sink subscribes to an announcement."""
        event = entry.item.event
        if self.local.wants(event):
            return True
        if self.settings.interest == "announced" and not entry.descriptive:
            return False
        described = stream_filter(event.attributes, self.settings.stream_attributes)
        return any(Filter(subscription.filter).overlaps(described) for subscription in self.local)

    def watch(self, now: float) -> None:
        """One timer for the earliest end of anything."""
        end = self.table.next_end()
        if end is not None and (self._expiry_s is None or end < self._expiry_s):
            self._expiry_s = end
            self.port.set_timer("expiry", max(GRAIN_S, end - now))

    def watched(self) -> None:
        """The timer has run out."""
        self._expiry_s = None


def stream_filter(attributes: dict[str, Scalar], names: tuple[str, ...]) -> Filter:
    """Every event of a stream matches this. Values too long for a filter are left out: it then matches more."""
    conditions = []
    for name in names:
        value = attributes.get(name)
        quoted = '"' + name.replace('"', '""') + '"'
        if value is None:
            conditions.append(f"{quoted} is null")
        elif isinstance(value, str):
            conditions.append(quoted + " = '" + value.replace("'", "''") + "'")
        elif isinstance(value, bool):
            conditions.append(f"{quoted} = {str(value).lower()}")
        else:
            conditions.append(f"{quoted} = {value!r}")
    try:
        return Filter(" and ".join(conditions))
    except FilterError:
        return Filter("")


def packet_size(message: Message) -> int:
    """The length of a message's frame."""
    return HEADER_BYTES + len(msgspec.msgpack.encode(message))


def announcement_of(entry: Announced, now: float, cost_s: float, flags: int = 0) -> Announcement | None:
    """[001 §4.2] The full announcement for a neighbor at that cost; None if its message's lease is over."""
    item = entry.item
    if item.lease_until <= now or entry.until <= now:
        return None
    return Announcement(
        item.event,
        hops_after(item.hops),
        item.lease_until - now,
        id=entry.id,
        stream=entry.stream.id,
        metric_s=entry.path.path_s + cost_s,
        validity_s=entry.until - now,
        sequence=entry.sequence,
        counter=item.counter,
        flags=entry.flags | flags,
        stages=entry.stages,
    )


def publication_of(entry: Announced, item: Item, now: float) -> Publication | None:
    """[001 §4.4] A message for active paths; None if its lease is over."""
    if item.lease_until <= now:
        return None
    return Publication(item.event, hops_after(item.hops), item.lease_until - now, id=entry.id, counter=item.counter)
