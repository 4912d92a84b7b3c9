"""What a broker knows: announcements with their paths, streams with their counters, and what its processors make."""

from collections import deque
from typing import NamedTuple

from driftcast.dissemination.asp.messages import Flag
from driftcast.model import Event, NodeId, ProcessorId
from driftcast.parts.fragments import Assembly
from driftcast.parts.window import CounterWindow

MAX_ANNOUNCEMENTS = 10_000
"""Announcements known at one time; forged ones cannot fill the memory."""


class Item(NamedTuple):
    """One message of a stream: its number, its content, the hops behind it, the end of its lease."""

    counter: int
    event: Event
    hops: int
    lease_until: float


class ActivePath(NamedTuple):
    """[001 §4.3] Where a subscriber's publications go: a neighbor, or this node itself for a local application.

    `result` is the id of the result for which a local processor wants them, or 0; `after` is the last number of the
    stream that is not wanted again.
    """

    neighbor: NodeId
    metric_s: float
    result: int = 0
    after: int | None = None


class SentPath(NamedTuple):
    """[001 §4.3] "The neighbor a subscription is sent to is stored by the broker"; the node itself for a processor."""

    target: NodeId
    metric_s: float


class Production:
    """What a local processor made of some announcements: the outcome that short announcements are simulated from."""

    __slots__ = ("cost_s", "fresh", "inputs", "processor", "results", "sequence")

    def __init__(self, processor: ProcessorId, inputs: tuple[int, ...], sequence: int) -> None:
        self.processor = processor
        self.inputs = inputs
        self.sequence = sequence
        self.cost_s = 0.0
        self.results: list[int] = []
        self.fresh: dict[int, Item] = {}
        """The newest message of each input since the last call."""


class Announced:
    """One announcement. The announcer is a neighbor, this node itself, or None when its path is lost."""

    __slots__ = (
        "active",
        "alternatives",
        "announcer",
        "flags",
        "id",
        "item",
        "latest",
        "metric_s",
        "path_s",
        "production",
        "productions",
        "renewing",
        "sent",
        "sequence",
        "stages",
        "standby",
        "stream",
        "until",
    )

    def __init__(
        self,
        id: int,
        stream: "Stream",
        sequence: int,
        item: Item,
        until: float,
        announcer: NodeId,
        metric_s: float,
        flags: int = 0,
        stages: int = 0,
    ) -> None:
        self.id = id
        self.stream = stream
        self.sequence = sequence
        self.item = item
        self.latest = item
        """The newest message of the stream that has come under this announcement."""
        self.until = until
        self.flags = flags
        self.stages = stages
        self.announcer: NodeId | None = announcer
        self.metric_s = metric_s
        """The best metric there ever was under this sequence; it never rises, which keeps repairs free of loops."""
        self.path_s = metric_s
        """The metric of the announcer in use: worse than the best after a repair."""
        self.alternatives: dict[NodeId, float] = {}
        self.active: dict[int, ActivePath] = {}
        self.standby: dict[int, dict[NodeId, ActivePath]] = {}
        """For each subscriber: others that have asked for its publications, and take over if the active one goes."""
        self.sent: dict[int, SentPath] = {}
        self.production: Production | None = None
        """By which local processor the announcement is made, if it is."""
        self.productions: list[Production] = []
        """What local processors made of it."""
        self.renewing = False
        """Whether a new announcement has been asked for."""

    @property
    def individual(self) -> bool:
        """Whether there is nothing but this message."""
        return bool(self.flags & Flag.INDIVIDUAL)

    @property
    def descriptive(self) -> bool:
        """Whether the message only describes what follows."""
        return bool(self.flags & Flag.DESCRIPTIVE)

    @property
    def current(self) -> bool:
        """Whether the stream has not been announced anew under another id since."""
        return self.stream.current == self.id


class Stream:
    """A stream over all its announcements: which of its messages were met, and those kept for others."""

    __slots__ = ("cache", "current", "current_counter", "id", "large", "until", "window")

    def __init__(self, id: int) -> None:
        self.id = id
        self.current = 0
        """The id of its newest announcement."""
        self.current_counter = -1
        self.window = CounterWindow()
        self.cache: deque[Item] = deque()
        self.large: dict[int, Assembly] = {}
        self.until = 0.0
        """How long it is remembered."""


class Table:
    """The announcements and streams of one broker."""

    def __init__(self) -> None:
        self._announced: dict[int, Announced] = {}
        self._streams: dict[int, Stream] = {}

    def __len__(self) -> int:
        return len(self._announced)

    @property
    def full(self) -> bool:
        """Whether no further announcement is taken in."""
        return len(self._announced) >= MAX_ANNOUNCEMENTS

    def get(self, id: int) -> Announced | None:
        """What is known under an id."""
        return self._announced.get(id)

    def entries(self) -> list[Announced]:
        """All announcements, in the order in which they became known; a list, since handlers change the table."""
        return list(self._announced.values())

    def streams(self) -> list[Stream]:
        """All streams."""
        return list(self._streams.values())

    def stream(self, id: int) -> Stream:
        """The stream of an id, new if it is not known."""
        stream = self._streams.get(id)
        if stream is None:
            stream = self._streams[id] = Stream(id)
        return stream

    def put(self, entry: Announced, memory_s: float) -> None:
        """Take an announcement in; one of an older sequence makes room. The newest of a stream is its current one."""
        self._announced.pop(entry.id, None)
        self._announced[entry.id] = entry
        stream = entry.stream
        stream.until = max(stream.until, entry.until + memory_s)
        if entry.item.counter >= stream.current_counter:
            stream.current, stream.current_counter = entry.id, entry.item.counter

    def expire(self, now: float) -> tuple[list[Announced], list[Stream]]:
        """[001 §4.2] "If an announcement is not prolonged before, all references to it can be removed"."""
        gone = [entry for entry in self._announced.values() if entry.until <= now]
        for entry in gone:
            del self._announced[entry.id]
        forgotten = [stream for stream in self._streams.values() if stream.until <= now]
        for stream in forgotten:
            del self._streams[stream.id]
        return gone, forgotten

    def next_end(self) -> float | None:
        """When the next announcement, stream or kept message ends, or None."""
        ends = [entry.until for entry in self._announced.values()]
        for stream in self._streams.values():
            ends.append(stream.until)
            ends += [item.lease_until for item in stream.cache]
        return min(ends, default=None)
