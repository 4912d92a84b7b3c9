"""The announcement table: announcements with their paths, streams with their counters, results of local processors."""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from carrycast.core.model import Event, ProcessorId
from carrycast.core.parts.sequence_window import SequenceWindow
from carrycast.protocols.asp.messages import Flag
from carrycast.protocols.asp.path_state import PathState

MAX_ANNOUNCEMENTS = 10_000
"""Announcements known at one time; forged ones cannot fill the memory."""

MAX_LEASED_STREAMS = 10_000
"""Streams up to which each is remembered as long as its messages may come again, however long their leases."""

SPARE_ENDS = 256
"""Ends of what is gone that may lie around before they are cleared away."""


class Item(NamedTuple):
    """One message of a stream: its number, its content, the hops behind it, the end of its lease."""

    counter: int
    event: Event
    hops: int
    lease_until: float


class Production:
    """What a local processor made of some announcements: the outcome that short announcements are simulated from."""

    __slots__ = ("cost_s", "fresh", "inputs", "processor", "results", "sequences")

    def __init__(self, processor: ProcessorId, inputs: tuple[int, ...], sequences: tuple[int, ...]) -> None:
        self.processor = processor
        self.inputs = inputs
        self.sequences = sequences
        """Those of the inputs when the call was made."""
        self.cost_s = 0.0
        self.results: list[int] = []
        self.fresh: dict[int, Item] = {}
        """The newest message of each input since the last call."""


class Announced:
    """One announcement: its message, how long it is valid, the state of its paths, and who makes what of it."""

    __slots__ = (
        "_production",
        "_productions",
        "flags",
        "id",
        "item",
        "latest",
        "path",
        "sequence",
        "stages",
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
        path: PathState,
        flags: int = 0,
        stages: int = 0,
        production: Production | None = None,
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
        self.path = path
        self._production = production
        self._productions: list[Production] = []

    @property
    def production(self) -> Production | None:
        """By which local processor the announcement is made, if it is."""
        return self._production

    @property
    def productions(self) -> Sequence[Production]:
        """What local processors made of it."""
        return self._productions

    def make_by(self, production: Production | None) -> None:
        """Another local processor makes it, or none any more."""
        self._production = production

    def process_by(self, production: Production) -> None:
        """A local processor has made something of it."""
        self._productions.append(production)

    def meet(self, item: Item) -> None:
        """A message of the stream has come under this announcement."""
        if item.counter > self.latest.counter:
            self.latest = item

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

    __slots__ = ("cache", "current", "current_counter", "id", "made", "until", "window")

    def __init__(self, id: int) -> None:
        self.id = id
        self.current = 0
        """The id of its newest announcement."""
        self.current_counter = -1
        self.window = SequenceWindow()
        self.cache: deque[Item] = deque()
        self.made = -1
        """The highest number that a local processor gave to a message of it."""
        self.until = 0.0
        """How long it is remembered."""


class Expired(NamedTuple):
    """What is over: announcements, streams, and the streams that keep messages past their lease."""

    announcements: list[Announced]
    streams: list[Stream]
    stale: list[Stream]


class Table:
    """The announcements and streams of one broker."""

    def __init__(self) -> None:
        self._announced: dict[int, Announced] = {}
        self._streams: dict[int, Stream] = {}
        self._ends: list[tuple[float, int, Announced | Stream | Item, Stream]] = []
        """A heap of everything that ends. What was prolonged or let go before stays until its turn comes."""
        self._pushed = 0
        self._compact_at = SPARE_ENDS

    def __len__(self) -> int:
        """Ends that are kept in memory, those of what is gone included."""
        return len(self._ends)

    @property
    def full(self) -> bool:
        """Whether no further announcement is taken in."""
        return len(self._announced) >= MAX_ANNOUNCEMENTS

    def get(self, id: int) -> Announced | None:
        """What is known under an id."""
        return self._announced.get(id)

    def is_made_of(self, production: Production, id: int) -> bool:
        """Whether an announcement is among those that a production is made of, at whatever stage. A path to a result
        that is its own input would lead back to itself for ever."""
        seen, todo = set[int](), list(production.inputs)
        while todo:
            one = todo.pop()
            if one == id:
                return True
            entry = self.get(one)
            if one not in seen and entry is not None and entry.production is not None:
                todo += entry.production.inputs
            seen.add(one)
        return False

    def entries(self) -> list[Announced]:
        """All announcements, in the order in which they became known; a list, since handlers change the table."""
        return list(self._announced.values())

    def stream(self, id: int) -> Stream:
        """The stream of an id, new if it is not known."""
        stream = self._streams.get(id)
        if stream is None:
            stream = self._streams[id] = Stream(id)
            self._push(stream.until, stream, stream)
        return stream

    def put(self, entry: Announced, memory_s: float) -> None:
        """Take an announcement in; one of an older sequence makes room. The newest of a stream is its current one."""
        self._announced.pop(entry.id, None)
        self._announced[entry.id] = entry
        stream = entry.stream
        self._push(entry.until, entry, stream)
        self._remember(stream, entry.until + memory_s)
        self.meet(stream, entry.item)
        if entry.item.counter >= stream.current_counter:
            stream.current, stream.current_counter = entry.id, entry.item.counter

    def meet(self, stream: Stream, item: Item) -> None:
        """A message has come: until its lease is over it may come again, as its source announces it anew, say."""
        if len(self._streams) <= MAX_LEASED_STREAMS:
            self._remember(stream, item.lease_until)

    def _remember(self, stream: Stream, until: float) -> None:
        if until > stream.until:
            stream.until = until
            self._push(until, stream, stream)

    def keep(self, stream: Stream, item: Item) -> None:
        """Keep a message of a stream until its lease is over."""
        stream.cache.append(item)
        self._push(item.lease_until, item, stream)

    def expire(self, now: float) -> Expired:
        """[001 §4.2] "If an announcement is not prolonged before, all references to it can be removed"."""
        expired = Expired([], [], [])
        while self._ends and self._ends[0][0] <= now:
            end, _, what, stream = heappop(self._ends)
            if not self.is_live(end, what, stream):
                continue
            if isinstance(what, Announced):
                del self._announced[what.id]
                expired.announcements.append(what)
            elif isinstance(what, Stream):
                del self._streams[what.id]
                expired.streams.append(what)
            else:
                expired.stale.append(stream)
        return expired

    def next_end(self) -> float | None:
        """When the next announcement, stream or kept message ends, or None."""
        while self._ends and not self.is_live(self._ends[0][0], self._ends[0][2], self._ends[0][3]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def _push(self, end: float, what: Announced | Stream | Item, stream: Stream) -> None:
        if end == inf:
            return
        self._pushed += 1
        heappush(self._ends, (end, self._pushed, what, stream))
        if len(self._ends) > self._compact_at:
            # What is long past its use must not hold on to memory until its time would have come.
            self._ends = [one for one in self._ends if self.is_live(one[0], one[2], one[3])]
            heapify(self._ends)
            self._compact_at = 2 * len(self._ends) + SPARE_ENDS

    def is_live(self, end: float, what: Announced | Stream | Item, stream: Stream) -> bool:
        """Whether it is still there and still ends then."""
        if isinstance(what, Announced):
            return self._announced.get(what.id) is what and what.until == end
        if isinstance(what, Stream):
            return self._streams.get(what.id) is what and what.until == end
        return any(one is what for one in stream.cache)
