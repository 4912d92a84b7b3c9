"""The state that all components of one ASP broker share, and the streams of its local source applications."""

import msgspec

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, EventId, NodeId, Scalar
from carrycast.core.parts import LocalSubscriptions, next_sequence
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import HEADER_BYTES, Message, hops_after
from carrycast.protocols.asp.announcement_table import AnnouncementTable, KnownAnnouncement, StreamMessage
from carrycast.protocols.asp.messages import Announcement, Publication
from carrycast.protocols.asp.neighbor_cache import NeighborCache
from carrycast.protocols.asp.rules import stream_id
from carrycast.protocols.asp.settings import AspSettings

TIMER_RESOLUTION_S = 0.001
"""The shortest delay of a timer; expiry need not be more exact than a millisecond."""


class AspBroker:
    """The state of a broker, and the operations that all of its components share."""

    def __init__(self, node: NodeId, settings: AspSettings, port: Port, subscriber: int) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.subscriber = subscriber
        """[001 §4.3] The id that the sink's broker draws at random for itself."""
        self.table = AnnouncementTable()
        self.neighbors = NeighborCache(
            port, settings.unreachable_s, settings.retries, settings.announce_by == "unicast"
        )
        self.local = LocalSubscriptions(port)
        self._expiry_s: float | None = None

    def drop(self, reason: str, event: EventId | None = None, peer: NodeId | None = None) -> None:
        """Record why a message is dropped."""
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))

    def wants(self, entry: KnownAnnouncement) -> bool:
        """[001 §4.1] Whether a local sink subscribes to an announcement."""
        event = entry.item.event
        if self.local.wants(event):
            return True
        if self.settings.interest == "announced" and not entry.descriptive:
            return False
        described = stream_filter(event.attributes, self.settings.stream_attributes)
        return any(Filter(subscription.filter).overlaps(described) for subscription in self.local)

    def start_expiry_timer(self, now: float) -> None:
        """Start the timer for the earliest expiry, if it is not running."""
        end = self.table.next_expiry()
        if end is not None and (self._expiry_s is None or end < self._expiry_s):
            self._expiry_s = end
            self.port.set_timer("expiry", max(TIMER_RESOLUTION_S, end - now))

    def on_expiry_timer(self) -> None:
        """The expiry timer has fired."""
        self._expiry_s = None


def stream_filter(attributes: dict[str, Scalar], names: tuple[str, ...]) -> Filter:
    """A filter that matches every event of a stream. Values too long for a filter are left out, so that it matches
    more."""
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
    """Return the length of a message's frame."""
    return HEADER_BYTES + len(msgspec.msgpack.encode(message))


def make_announcement(entry: KnownAnnouncement, now: float, cost_s: float, flags: int = 0) -> Announcement | None:
    """[001 §4.2] The full announcement for a neighbor at that link cost; None if its message has expired."""
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


def make_publication(entry: KnownAnnouncement, item: StreamMessage, now: float) -> Publication | None:
    """[001 §4.4] A publication for active paths; None if its message has expired."""
    if item.lease_until <= now:
        return None
    return Publication(item.event, hops_after(item.hops), item.lease_until - now, id=entry.id, counter=item.counter)


TIME_TOLERANCE_S = 1e-6
"""The accuracy of times; a message at the very end of a validity is announced."""

MAX_LOCAL_STREAMS = 10_000
"""Streams of one node; more are a sign of badly chosen stream attributes."""


class LocalStream:
    """A stream of a local source application: its current announcement, and the state of its paths."""

    __slots__ = ("announced", "broken", "counter", "last", "repaired", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.counter = 0
        self.last: StreamMessage | None = None
        """The newest message."""
        self.announced = 0
        self.broken: dict[int, float] = {}
        """Subscribers whose path is broken, and until when the source waits for its repair."""
        self.repaired: set[int] = set()
        """Subscribers whose broken path has been made again."""

    def next_message(self, now: float, incarnation: int, event: Event) -> StreamMessage:
        """The next message of the stream. Its number begins with the incarnation, so that a restarted source does not
        repeat numbers."""
        self.counter += 1
        return StreamMessage(next_sequence(incarnation, self.counter), event, 0, now + event.lease_s)

    def on_announced(self, announced: int) -> None:
        """The stream has been announced under this id: paths that were broken before do not matter any more."""
        self.announced = announced
        self.broken.clear()
        self.repaired.clear()

    def is_due(self, now: float) -> bool:
        """Whether the source has waited long enough for the repair of a path."""
        return any(until <= now + TIME_TOLERANCE_S for until in self.broken.values())


class LocalStreams:
    """The streams of a node's applications, identified by the values of the stream attributes, and the state of their
    paths."""

    def __init__(self, broker: AspBroker) -> None:
        self._broker = broker
        self._sources: dict[tuple[tuple[str, Scalar | None], ...], LocalStream] = {}
        self._by_stream: dict[int, LocalStream] = {}

    def get(self, stream: int) -> LocalStream:
        """The stream with a known id."""
        return self._by_stream[stream]

    def stream_of(self, event: Event) -> LocalStream | None:
        """The stream of an event, new if it is not known; None if there are too many."""
        key = tuple((name, event.attributes.get(name)) for name in self._broker.settings.stream_attributes)
        source = self._sources.get(key)
        if source is None and len(self._sources) < MAX_LOCAL_STREAMS:
            stream = stream_id(self._broker.node, [value for _, value in key])
            source = self._sources[key] = self._by_stream[stream] = LocalStream(stream)
        return source

    def on_path_made(self, entry: KnownAnnouncement, subscriber: int) -> None:
        """A path has reached its source: a break of it is repaired."""
        source = self._by_stream.get(entry.stream.id)
        if not self._broker.settings.repair or source is None or source.announced != entry.id:
            return
        if source.broken.pop(subscriber, None) is not None:
            source.repaired.add(subscriber)

    def on_path_removed(self, now: float, entry: KnownAnnouncement, subscriber: int) -> None:
        """A path was unsubscribed. If it had replaced a broken one, it may have been a late subscription from before
        the break, followed by its unsubscription: then the path is still broken."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id and subscriber in source.repaired:
            source.repaired.discard(subscriber)
            self._mark_broken(now, source, subscriber)

    def on_path_broken(self, now: float, entry: KnownAnnouncement, subscriber: int) -> None:
        """[001 §4.3] "If a source receives such a path broken subscription, it prepares to extend the next publication
        to an announcement". One for an earlier announcement is ignored."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id:
            self._broker.port.note(Fact("path_broken", entry.item.event.id))
            self._mark_broken(now, source, subscriber)

    def on_renew(self, now: float, entry: KnownAnnouncement) -> None:
        """A subscriber has no safe path to the source any more."""
        source = self._by_stream.get(entry.stream.id)
        if source is not None and source.announced == entry.id:
            # 0 is no subscriber's id, so no new path takes this back.
            source.broken[0] = now

    def wait_for_repair(self, now: float, source: LocalStream) -> None:
        """Start the timer for the path that has been broken the longest."""
        if source.broken:
            delay_s = max(TIMER_RESOLUTION_S, min(source.broken.values()) - now)
            self._broker.port.set_timer(("patience", (source.stream,)), delay_s)

    def stop(self) -> None:
        """Stop all timers."""
        for stream in self._by_stream:
            self._broker.port.cancel_timer(("patience", (stream,)))

    def _mark_broken(self, now: float, source: LocalStream, subscriber: int) -> None:
        patience_s = self._broker.settings.patience_s
        source.broken.setdefault(subscriber, now + patience_s)
        if patience_s > 0:
            self.wait_for_repair(now, source)
