"""The announcement table: announcements with their paths, streams with their counters, results of local processors."""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from carrycast.core.model import Event, ProcessorId
from carrycast.core.parts import SequenceWindow
from carrycast.protocols.asp.messages import AnnouncementFlag
from carrycast.protocols.asp.path_state import PathState

MAX_ANNOUNCEMENTS = 10_000
"""Announcements known at one time; forged ones cannot fill the memory."""

MAX_LEASED_STREAMS = 10_000
"""Up to so many streams, each is remembered as long as its messages may arrive again, however long their leases."""

SPARE_EXPIRIES = 256
"""Outdated entries that the heap of expiries may have before it is compacted."""


class StreamMessage(NamedTuple):
    """One message of a stream: its number, its content, the hops that it travelled, the end of its lease."""

    counter: int
    event: Event
    hops: int
    lease_until: float


class Derivation:
    """The results that a local processor made of some announcements. Short announcements are simulated from them."""

    __slots__ = ("cost_s", "fresh", "inputs", "processor", "results", "sequences")

    def __init__(self, processor: ProcessorId, inputs: tuple[int, ...], sequences: tuple[int, ...]) -> None:
        self.processor = processor
        self.inputs = inputs
        self.sequences = sequences
        """The sequence numbers of the inputs at the time of the call."""
        self.cost_s = 0.0
        self.results: list[int] = []
        self.fresh: dict[int, StreamMessage] = {}
        """The newest message of each input since the last call."""


class KnownAnnouncement:
    """One announcement: its message, its validity, the state of its paths, and the local processing of it."""

    __slots__ = (
        "_derivation",
        "_derivations",
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
        stream: "StreamState",
        sequence: int,
        item: StreamMessage,
        until: float,
        path: PathState,
        flags: int = 0,
        stages: int = 0,
        derivation: Derivation | None = None,
    ) -> None:
        self.id = id
        self.stream = stream
        self.sequence = sequence
        self.item = item
        self.latest = item
        """The newest message of the stream that has arrived under this announcement."""
        self.until = until
        self.flags = flags
        self.stages = stages
        self.path = path
        self._derivation = derivation
        self._derivations: list[Derivation] = []

    @property
    def derivation(self) -> Derivation | None:
        """The local processing that the announcement results from, if any."""
        return self._derivation

    @property
    def derivations(self) -> Sequence[Derivation]:
        """The results that local processors made of the announcement."""
        return self._derivations

    def set_derivation(self, derivation: Derivation | None) -> None:
        """Another local processor makes the announcement."""
        self._derivation = derivation

    def add_derivation(self, derivation: Derivation) -> None:
        """A local processor has made results of the announcement."""
        self._derivations.append(derivation)

    def update_latest(self, item: StreamMessage) -> None:
        """A message of the stream has arrived under this announcement."""
        if item.counter > self.latest.counter:
            self.latest = item

    @property
    def individual(self) -> bool:
        """Whether the stream has only this message."""
        return bool(self.flags & AnnouncementFlag.INDIVIDUAL)

    @property
    def descriptive(self) -> bool:
        """Whether the message only describes the publications."""
        return bool(self.flags & AnnouncementFlag.DESCRIPTIVE)

    @property
    def current(self) -> bool:
        """Whether this is the newest announcement of its stream."""
        return self.stream.current == self.id


class StreamState:
    """A stream over all its announcements: the messages that were received, and those that are cached."""

    __slots__ = ("cache", "current", "current_counter", "id", "made", "until", "window")

    def __init__(self, id: int) -> None:
        self.id = id
        self.current = 0
        """The id of its newest announcement."""
        self.current_counter = -1
        self.window = SequenceWindow()
        self.cache: deque[StreamMessage] = deque()
        self.made = -1
        """The highest number that a local processor gave to one of its messages."""
        self.until = 0.0
        """The time until which the stream is remembered."""


class ExpiredEntries(NamedTuple):
    """Expired announcements and streams, and the streams with expired messages in their cache."""

    announcements: list[KnownAnnouncement]
    streams: list[StreamState]
    stale: list[StreamState]


class AnnouncementTable:
    """The announcements and streams of one broker."""

    def __init__(self) -> None:
        self._announced: dict[int, KnownAnnouncement] = {}
        self._streams: dict[int, StreamState] = {}
        self._expiries: list[tuple[float, int, KnownAnnouncement | StreamState | StreamMessage, StreamState]] = []
        """A heap of all expiries. Outdated ones stay until their turn comes."""
        self._pushed = 0
        self._compact_at = SPARE_EXPIRIES

    def __len__(self) -> int:
        """The size of the heap of expiries, outdated ones included."""
        return len(self._expiries)

    @property
    def full(self) -> bool:
        """Whether no further announcement is accepted."""
        return len(self._announced) >= MAX_ANNOUNCEMENTS

    def get(self, id: int) -> KnownAnnouncement | None:
        """The announcement with an id, or None."""
        return self._announced.get(id)

    def depends_on(self, derivation: Derivation, id: int) -> bool:
        """Whether a derivation depends on an announcement, directly or over several stages. A path to a result that is
        its own input would lead back to itself."""
        seen, todo = set[int](), list(derivation.inputs)
        while todo:
            one = todo.pop()
            if one == id:
                return True
            entry = self.get(one)
            if one not in seen and entry is not None and entry.derivation is not None:
                todo += entry.derivation.inputs
            seen.add(one)
        return False

    def entries(self) -> list[KnownAnnouncement]:
        """All announcements, in the order in which they became known; a list, since handlers change the table."""
        return list(self._announced.values())

    def stream(self, id: int) -> StreamState:
        """The stream with an id, new if it is not known."""
        stream = self._streams.get(id)
        if stream is None:
            stream = self._streams[id] = StreamState(id)
            self._push(stream.until, stream, stream)
        return stream

    def put(self, entry: KnownAnnouncement, memory_s: float) -> None:
        """Add an announcement; it replaces one with an older sequence number. The newest one of a stream is its current
        one."""
        self._announced.pop(entry.id, None)
        self._announced[entry.id] = entry
        stream = entry.stream
        self._push(entry.until, entry, stream)
        self._remember(stream, entry.until + memory_s)
        self.remember_message(stream, entry.item)
        if entry.item.counter >= stream.current_counter:
            stream.current, stream.current_counter = entry.id, entry.item.counter

    def remember_message(self, stream: StreamState, item: StreamMessage) -> None:
        """A message has arrived: it may arrive again until it expires, for example in a new announcement."""
        if len(self._streams) <= MAX_LEASED_STREAMS:
            self._remember(stream, item.lease_until)

    def _remember(self, stream: StreamState, until: float) -> None:
        if until > stream.until:
            stream.until = until
            self._push(until, stream, stream)

    def cache_message(self, stream: StreamState, item: StreamMessage) -> None:
        """Cache a message of a stream until it expires."""
        stream.cache.append(item)
        self._push(item.lease_until, item, stream)

    def expire(self, now: float) -> ExpiredEntries:
        """[001 §4.2] "If an announcement is not prolonged before, all references to it can be removed"."""
        expired = ExpiredEntries([], [], [])
        while self._expiries and self._expiries[0][0] <= now:
            end, _, what, stream = heappop(self._expiries)
            if not self.is_live(end, what, stream):
                continue
            if isinstance(what, KnownAnnouncement):
                del self._announced[what.id]
                expired.announcements.append(what)
            elif isinstance(what, StreamState):
                del self._streams[what.id]
                expired.streams.append(what)
            else:
                expired.stale.append(stream)
        return expired

    def next_expiry(self) -> float | None:
        """The time of the next expiry of an announcement, stream or cached message, or None."""
        while self._expiries and not self.is_live(self._expiries[0][0], self._expiries[0][2], self._expiries[0][3]):
            heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else None

    def _push(self, end: float, what: KnownAnnouncement | StreamState | StreamMessage, stream: StreamState) -> None:
        if end == inf:
            return
        self._pushed += 1
        heappush(self._expiries, (end, self._pushed, what, stream))
        if len(self._expiries) > self._compact_at:
            # Outdated entries must not use memory until their time would have come.
            self._expiries = [one for one in self._expiries if self.is_live(one[0], one[2], one[3])]
            heapify(self._expiries)
            self._compact_at = 2 * len(self._expiries) + SPARE_EXPIRIES

    def is_live(self, end: float, what: KnownAnnouncement | StreamState | StreamMessage, stream: StreamState) -> bool:
        """Whether an entry still exists and expires at that time."""
        if isinstance(what, KnownAnnouncement):
            return self._announced.get(what.id) is what and what.until == end
        if isinstance(what, StreamState):
            return self._streams.get(what.id) is what and what.until == end
        return any(one is what for one in stream.cache)
