"""Calls of processors: one at a time for each state, because each call uses the state that the previous one left.

A protocol opens a call queue for each state (one per processor, or one per client and processor) and submits work to
it. The work is returned with the outcome of its call.
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
    Meta(max_length=16, description="attributes that distinguish streams, for processors with several inputs"),
]
MaxStages = Annotated[
    int, Meta(ge=0, le=64, description="the most processors that an event passes in a row; ends processing loops")
]

MAX_WAITING = 64
"""Calls queued behind the running one; as many as a node queues for one worker."""


def parse_filter(port: Port, processor: Processor) -> Filter | None:
    """The parsed filter of a processor; None, with a recorded drop, if it does not parse."""
    try:
        return Filter(processor.filter)
    except FilterError:
        port.note(Fact("drop", reason="processor_filter_invalid"))
        return None


Stream = tuple[Scalar | None, ...]
"""A source, and the values of the attributes that distinguish its streams."""


def stream_of(event: Event, attributes: Sequence[str]) -> Stream:
    """The stream that an event belongs to."""
    return (event.source, *(event.attributes.get(name) for name in attributes))


class ProcessorInputs(Generic[Work]):
    """Collects the inputs of a processor: the newest event of each stream since its last call."""

    __slots__ = ("_filter", "_fresh", "processor")

    def __init__(self, processor: Processor, filter: Filter) -> None:
        self.processor = processor
        self._filter = filter
        self._fresh: dict[Stream, Work] = {}

    def fits(self, event: Event) -> bool:
        """Whether an event matches the filter of the processor."""
        return self._filter.matches(event.attributes)

    def take(self, stream: Stream, newest: Work) -> tuple[Work, ...]:
        """Add an input; returns the inputs for a call, one of each stream, or nothing while there are too few."""
        self._fresh[stream] = newest
        if len(self._fresh) < self.processor.inputs:
            return ()
        inputs = tuple(self._fresh.values())
        self._fresh.clear()
        return inputs


class _CallQueue(Generic[Work]):
    """The state of a processor, its running call and the queued calls."""

    __slots__ = ("closed", "processor", "running", "state", "waiting")

    def __init__(self, processor: ProcessorId, state: bytes) -> None:
        self.processor = processor
        self.state = state
        self.running: Work | None = None
        self.waiting: deque[tuple[tuple[Event, ...], Work]] = deque()
        self.closed = False


class ProcessorCalls(Generic[Work]):
    """The call queues of one node. Their tokens start at 1 and are independent of those of sends."""

    __slots__ = ("_limit", "_port", "_queues", "_token", "_tokens")

    def __init__(self, port: Port, limit: int = MAX_WAITING) -> None:
        self._port = port
        self._limit = limit
        self._queues: dict[Hashable, _CallQueue[Work]] = {}
        self._tokens: dict[Token, _CallQueue[Work]] = {}
        self._token = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queues

    def open(self, key: Hashable, processor: ProcessorId, state: bytes = b"") -> None:
        """Open a queue with a state for a processor; an open key is left unchanged."""
        if key not in self._queues:
            self._queues[key] = _CallQueue(processor, state)

    def close(self, key: Hashable) -> list[Work]:
        """Close a queue. Returns the queued work; the outcome of the running call will be ignored."""
        line = self._queues.pop(key, None)
        if line is None:
            return []
        line.closed = True
        dropped = [work for _, work in line.waiting]
        line.waiting.clear()
        return dropped

    def state(self, key: Hashable) -> bytes:
        """The state left by the last successful call."""
        return self._queues[key].state

    def submit(self, key: Hashable, events: Sequence[Event], work: Work) -> bool:
        """Call the processor, now or after the queued calls; False if the queue is full or not open."""
        line = self._queues.get(key)
        if line is None or len(line.waiting) >= self._limit:
            return False
        if line.running is None:
            self._call(line, tuple(events), work)
        else:
            line.waiting.append((tuple(events), work))
        return True

    def finish(self, token: Token, state: bytes, error: str) -> Work | None:
        """The outcome of a call; returns its work, or None if the queue was closed. After an error the previous state
        is kept. The next call starts before the caller processes the results."""
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

    def _call(self, line: _CallQueue[Work], events: tuple[Event, ...], work: Work) -> None:
        self._token += 1
        line.running = work
        self._tokens[self._token] = line
        self._port.process(line.processor, line.state, events, self._token)
