"""Calls of processors: one at a time for each state, because each call takes the state that the one before it left.

A protocol opens a line for each state it keeps (one per processor, or one per client and processor), submits work to
it, and is handed the work back when its outcome comes. What a call is for is the protocol's own business.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, Processor, ProcessorId, Scalar
from carrycast.core.protocol import Fact, Port, Token

Work = TypeVar("Work")

StreamAttributes = Annotated[
    tuple[str, ...],
    Meta(max_length=16, description="attributes that tell streams apart, for processors of several inputs"),
]
MaxStages = Annotated[
    int, Meta(ge=0, le=64, description="processors in a row; ends what would process itself for ever")
]

MAX_WAITING = 64
"""Calls that may wait for the one that runs; as many as the live host queues for one worker."""


def parsed_filter(port: Port, processor: Processor) -> Filter | None:
    """The filter of a processor that a node can run; None, with a named drop, if it cannot be read."""
    try:
        return Filter(processor.filter)
    except FilterError:
        port.note(Fact("drop", reason="processor_filter_invalid"))
        return None


Stream = tuple[Scalar | None, ...]
"""A source, and the values of the attributes that tell its streams apart."""


def stream_of(event: Event, attributes: Sequence[str]) -> Stream:
    """The stream that an event belongs to."""
    return (event.source, *(event.attributes.get(name) for name in attributes))


class ProcessorInputs(Generic[Work]):
    """What a processor of a node is given: the newest of each stream since its last call, when there are enough."""

    __slots__ = ("_filter", "_fresh", "processor")

    def __init__(self, processor: Processor, filter: Filter) -> None:
        self.processor = processor
        self._filter = filter
        self._fresh: dict[Stream, Work] = {}

    def fits(self, event: Event) -> bool:
        """Whether it is for this processor."""
        return self._filter.matches(event.attributes)

    def take(self, stream: Stream, newest: Work) -> tuple[Work, ...]:
        """What to call it with now, one of each stream; nothing while there are too few."""
        self._fresh[stream] = newest
        if len(self._fresh) < self.processor.inputs:
            return ()
        inputs = tuple(self._fresh.values())
        self._fresh.clear()
        return inputs


class _Line(Generic[Work]):
    """One state, the call that runs on it and those that wait."""

    __slots__ = ("closed", "processor", "running", "state", "waiting")

    def __init__(self, processor: ProcessorId, state: bytes) -> None:
        self.processor = processor
        self.state = state
        self.running: Work | None = None
        self.waiting: deque[tuple[tuple[Event, ...], Work]] = deque()
        self.closed = False


class ProcessorCalls(Generic[Work]):
    """The lines of one node. Tokens are counted from 1, apart from those of sends."""

    __slots__ = ("_limit", "_lines", "_port", "_token", "_tokens")

    def __init__(self, port: Port, limit: int = MAX_WAITING) -> None:
        self._port = port
        self._limit = limit
        self._lines: dict[Hashable, _Line[Work]] = {}
        self._tokens: dict[Token, _Line[Work]] = {}
        self._token = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lines

    def open(self, key: Hashable, processor: ProcessorId, state: bytes = b"") -> None:
        """Keep a state for a processor; a key that is open stays as it is."""
        if key not in self._lines:
            self._lines[key] = _Line(processor, state)

    def close(self, key: Hashable) -> list[Work]:
        """Forget a state. What waits is dropped, and returned; the outcome of what runs will be passed over."""
        line = self._lines.pop(key, None)
        if line is None:
            return []
        line.closed = True
        dropped = [work for _, work in line.waiting]
        line.waiting.clear()
        return dropped

    def state(self, key: Hashable) -> bytes:
        """What the last call that went well has left."""
        return self._lines[key].state

    def submit(self, key: Hashable, events: Sequence[Event], work: Work) -> bool:
        """Call the processor now or after those that wait; False if too many do or the key is not open."""
        line = self._lines.get(key)
        if line is None or len(line.waiting) >= self._limit:
            return False
        if line.running is None:
            self._call(line, tuple(events), work)
        else:
            line.waiting.append((tuple(events), work))
        return True

    def finish(self, token: Token, state: bytes, error: str) -> Work | None:
        """An outcome is here: the work it belongs to, or None if its line was closed. After an error the state before
        the call stands. The next call starts before the caller looks at the results."""
        line = self._tokens.pop(token, None)
        if line is None:
            return None
        work, line.running = line.running, None
        if not error:
            line.state = state
        if line.waiting:
            events, following = line.waiting.popleft()
            self._call(line, events, following)
        return None if line.closed else work

    def _call(self, line: _Line[Work], events: tuple[Event, ...], work: Work) -> None:
        self._token += 1
        line.running = work
        self._tokens[self._token] = line
        self._port.process(line.processor, line.state, events, self._token)
