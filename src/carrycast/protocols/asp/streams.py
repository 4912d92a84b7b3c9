"""The streams of local source applications: which announcement each follows, and what has become of its paths."""

from carrycast.core.model import Event, Scalar
from carrycast.core.parts.horizon import next_sequence
from carrycast.core.protocol import Fact
from carrycast.protocols.asp.broker import GRAIN_S, Broker
from carrycast.protocols.asp.rules import stream_id
from carrycast.protocols.asp.tables import Announced, Item

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
