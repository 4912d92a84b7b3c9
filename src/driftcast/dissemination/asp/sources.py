"""Local source applications: which of their messages announce, and which follow an announcement."""

import msgspec

from driftcast.dissemination.asp.announcements import Announcements
from driftcast.dissemination.asp.broker import GRAIN_S, Broker
from driftcast.dissemination.asp.messages import Flag
from driftcast.dissemination.asp.publications import Publications
from driftcast.dissemination.asp.rules import announcement_id, stream_id
from driftcast.dissemination.asp.tables import Announced, Item
from driftcast.model import Event, Scalar
from driftcast.parts.horizon import next_sequence
from driftcast.protocol import Fact

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

    def due(self, now: float) -> bool:
        """Whether it has waited long enough for a broken path."""
        return any(until <= now + DUE_S for until in self.broken.values())


class Sources:
    """The streams of a node's applications, told apart by the values of the stream attributes."""

    def __init__(
        self, broker: Broker, announcements: Announcements, publications: Publications, incarnation: int
    ) -> None:
        self._broker = broker
        self._announcements = announcements
        self._publications = publications
        self._incarnation = incarnation
        self._sources: dict[tuple[tuple[str, Scalar | None], ...], Source] = {}
        self._by_stream: dict[int, Source] = {}
        self._sequence = 0

    def publish(self, now: float, event: Event) -> None:
        """[001 §4.4] "Following an announcement, the source will send out all published messages as publications until
        the next announcement is necessary due to announcement expiration or path disintegration"."""
        settings = self._broker.settings
        unkeyed = all(name not in event.attributes for name in settings.stream_attributes)
        one_off = settings.individual == "always" or (settings.individual == "unkeyed" and unkeyed)
        source = self._source(event)
        if source is None:
            self._broker.local.deliver(event, 0)
            self._broker.drop("too_many_streams", event.id)
            return
        entry = self._broker.table.get(source.announced)
        item = source.last = self._item(now, source, event)
        if entry is None or now >= entry.until - DUE_S or source.due(now) or one_off:
            self._announce(now, source, item, Flag.INDIVIDUAL if one_off else Flag(0))
        else:
            self._publications.publish(now, entry, item, self._broker.node)

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

    def on_timer(self, now: float, stream: int) -> None:
        """A path was not made again in time: announce anew, with the newest message if no newer one has come. Whoever
        has met it is not given it twice."""
        source = self._by_stream[stream]
        last = source.last
        if not source.due(now):
            # The path it was armed for has been made again; others may still wait for theirs.
            self._wait(now, source)
        elif last is not None and not self._publications.is_large(last.event):
            self._announce(now, source, last, Flag(0))

    def stop(self) -> None:
        """Disarm every timer."""
        for stream in self._by_stream:
            self._broker.port.cancel_timer(("patience", (stream,)))

    def _break(self, now: float, source: Source, subscriber: int) -> None:
        patience_s = self._broker.settings.patience_s
        source.broken.setdefault(subscriber, now + patience_s)
        if patience_s > 0:
            self._wait(now, source)

    def _wait(self, now: float, source: Source) -> None:
        """For the path that has been broken the longest: others that break meanwhile do not put it off."""
        if source.broken:
            delay_s = max(GRAIN_S, min(source.broken.values()) - now)
            self._broker.port.set_timer(("patience", (source.stream,)), delay_s)

    def _source(self, event: Event) -> Source | None:
        key = tuple((name, event.attributes.get(name)) for name in self._broker.settings.stream_attributes)
        source = self._sources.get(key)
        if source is None and len(self._sources) < MAX_SOURCES:
            stream = stream_id(self._broker.node, [value for _, value in key])
            source = self._sources[key] = self._by_stream[stream] = Source(stream)
        return source

    def _item(self, now: float, source: Source, event: Event) -> Item:
        source.counter += 1
        # The incarnation goes before the number: a source that starts anew does not look like its own past.
        return Item(next_sequence(self._incarnation, source.counter), event, 0, now + event.lease_s)

    def _announce(self, now: float, source: Source, item: Item, flags: Flag) -> None:
        broker = self._broker
        settings = broker.settings
        message = item.event
        large = settings.fragment_bytes and self._publications.is_large(message)
        if large:
            # [001 §4.5] What is too large to be announced is described: by its attributes, without its payload.
            message = msgspec.structs.replace(message, payload=b"")
            flags = Flag.DESCRIPTIVE
        self._sequence += 1
        origin = () if settings.identity == "content" else (broker.node,)
        id = announcement_id(message, origin, settings.decimals)
        known = broker.table.get(id)
        # [001 §4.2] "To recognize an identical announcement with the task to prolong an older one, the sequence number
        # has to be incremented", whoever made the older one.
        sequence = max(next_sequence(self._incarnation, self._sequence), 0 if known is None else known.sequence + 1)
        entry = Announced(
            id,
            broker.table.stream(source.stream),
            sequence,
            item._replace(event=message),
            now + settings.validity_s,
            broker.node,
            0.0,
            flags,
        )
        if not self._announcements.announce(now, entry):
            # Nobody else can learn of it, but the applications of this node can.
            if entry.stream.window.add(item.counter):
                broker.local.deliver(item.event, 0)
            return
        broker.port.note(Fact("announce", item.event.id))
        source.announced = entry.id
        source.broken.clear()
        source.mended.clear()
        if large:
            follows = self._item(now, source, item.event)
            self._publications.publish(now, entry, follows, broker.node)
