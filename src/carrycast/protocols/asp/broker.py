"""The state that all components of one ASP broker share, and the streams of its local source applications."""

import msgspec

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, EventId, NodeId, Scalar
from carrycast.core.parts.horizon import next_sequence
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import HEADER_BYTES, Message, hops_after
from carrycast.protocols.asp.announcement_table import Announced, Item, Table
from carrycast.protocols.asp.messages import Announcement, Publication
from carrycast.protocols.asp.neighbor_cache import NeighborCache
from carrycast.protocols.asp.rules import stream_id
from carrycast.protocols.asp.settings import AspSettings

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


DUE_S = 1e-6
"""Times have a microsecond's accuracy; a message due at the end of a validity announces."""

MAX_SOURCES = 10_000
"""Streams of one node; one with that many has chosen its stream attributes badly."""


class Source:
    """One local stream: the announcement its messages follow, and what has become of its paths."""

    __slots__ = ("announced", "broken", "counter", "last", "mended", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.counter = 0
        self.last: Item | None = None
        """Its newest message."""
        self.announced = 0
        self.broken: dict[int, float] = {}
        """Subscribers whose path is broken and not made again since, and until when the source waits for that."""
        self.mended: set[int] = set()
        """Subscribers whose path was broken and has been made again."""

    def number(self, now: float, incarnation: int, event: Event) -> Item:
        """The next message of the stream. The incarnation goes before its number: a source that starts anew does not
        look like its own past."""
        self.counter += 1
        return Item(next_sequence(incarnation, self.counter), event, 0, now + event.lease_s)

    def follow(self, announced: int) -> None:
        """It has been announced, under this id: what was broken before does not matter any more."""
        self.announced = announced
        self.broken.clear()
        self.mended.clear()

    def due(self, now: float) -> bool:
        """Whether it has waited long enough for a broken path."""
        return any(until <= now + DUE_S for until in self.broken.values())


class LocalStreams:
    """The streams of a node's applications, told apart by the values of the stream attributes, and their paths."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sources: dict[tuple[tuple[str, Scalar | None], ...], Source] = {}
        self._by_stream: dict[int, Source] = {}

    def get(self, stream: int) -> Source:
        """The source of a stream that is there."""
        return self._by_stream[stream]

    def of(self, event: Event) -> Source | None:
        """The source of a message, new if it is not known; None if there are too many."""
        key = tuple((name, event.attributes.get(name)) for name in self._broker.settings.stream_attributes)
        source = self._sources.get(key)
        if source is None and len(self._sources) < MAX_SOURCES:
            stream = stream_id(self._broker.node, [value for _, value in key])
            source = self._sources[key] = self._by_stream[stream] = Source(stream)
        return source

    def on_path_made(self, entry: Announced, subscriber: int) -> None:
        """A path has reached its source: if it was broken, it is not any more."""
        source = self._by_stream.get(entry.stream.id)
        if not self._broker.settings.repair or source is None or source.announced != entry.id:
            return
        if source.broken.pop(subscriber, None) is not None:
            source.mended.add(subscriber)

    def on_path_removed(self, now: float, entry: Announced, subscriber: int) -> None:
        """A path is not wanted any more. If it came in place of a broken one, it may be a subscription from before the
        break that has arrived late, with what takes it back: the break stands."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id and subscriber in source.mended:
            source.mended.discard(subscriber)
            self._break(now, source, subscriber)

    def on_path_broken(self, now: float, entry: Announced, subscriber: int) -> None:
        """[001 §4.3] "If a source receives such a path broken subscription, it prepares to extend the next publication
        to an announcement". One for an earlier announcement is no news."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id:
            self._broker.port.note(Fact("path_broken", entry.item.event.id))
            self._break(now, source, subscriber)

    def on_renew(self, now: float, entry: Announced) -> None:
        """A subscriber has no safe path to the source any more."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id:
            # 0 is no subscriber's id, so no new path takes this back.
            source.broken[0] = now

    def wait(self, now: float, source: Source) -> None:
        """For the path that has been broken the longest: others that break meanwhile do not put it off."""
        if source.broken:
            delay_s = max(GRAIN_S, min(source.broken.values()) - now)
            self._broker.port.set_timer(("patience", (source.stream,)), delay_s)

    def stop(self) -> None:
        """Disarm every timer."""
        for stream in self._by_stream:
            self._broker.port.cancel_timer(("patience", (stream,)))

    def _break(self, now: float, source: Source, subscriber: int) -> None:
        patience_s = self._broker.settings.patience_s
        source.broken.setdefault(subscriber, now + patience_s)
        if patience_s > 0:
            self.wait(now, source)
