"""What the processors of this node make of events, and who gives way where several make the same.

Events go to everybody, so every node that has a processor could run it. Nobody says who has which: two that make the
same of the same see it by the results, and from then on the one with the greater id waits for the other's. If none
comes it goes ahead, so an island is never without.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from carrycast.core.model import Event, EventId, NodeId, Processor, ProcessorId
from carrycast.core.parts.buffer import Stored
from carrycast.core.parts.processing import Calls, Inputs, parsed_filter, stream_of
from carrycast.core.protocol import Fact, Port, Token
from carrycast.protocols.drift.settings import DriftSettings

Key = TypeVar("Key")
Value = TypeVar("Value")

MAKE = "make"
REMEMBERED = 4096
"""Inputs of which results are known, results of which stages are, inputs that wait: each at most so many."""
ALIKE = 16
"""Results of the same inputs that are compared; the oldest are forgotten."""


class _Work(NamedTuple):
    """A call and what it was given."""

    processor: ProcessorId
    inputs: tuple[Stored, ...]


class _Result(NamedTuple):
    """One that was made here, or by others: then nobody knows by which processor."""

    event: Event
    processor: ProcessorId | None


class _Wait(NamedTuple):
    """An input that others may be at work on, and who they are."""

    stored: Stored
    rivals: dict[ProcessorId, NodeId]


class Making:
    """The processors of one node."""

    def __init__(self, node: NodeId, port: Port, settings: DriftSettings, knows: Callable[[EventId], bool]) -> None:
        self._node = node
        self._port = port
        self.settings = settings
        self._knows = knows
        """Whether an event was met."""
        self._processors: dict[ProcessorId, Inputs[Stored]] = {}
        self._calls: Calls[_Work] = Calls(port)
        self._rivals: dict[ProcessorId, NodeId] = {}
        """Who makes the same and has the smaller id."""
        self._waiting: dict[EventId, _Wait] = {}
        self._results: dict[tuple[EventId, ...], list[_Result]] = {}
        """By what they were made of."""
        self._stages: dict[EventId, int] = {}
        """How many processors a result has passed through."""
        self._early: dict[EventId, list[tuple[Stored, ProcessorId | None]]] = {}
        """Results that came before one of their inputs, by that input. How many processors they passed is not known."""
        self._unplaced: set[EventId] = set()
        """The ids of those."""

    def __bool__(self) -> bool:
        return bool(self._processors)

    def filters(self) -> Iterator[str]:
        """What the processors are to be given."""
        return (local.processor.filter for local in self._processors.values())

    def add(self, processor: Processor) -> None:
        """This node can run it from now on."""
        parsed = parsed_filter(self._port, processor)
        if parsed is not None:
            self._processors[processor.id] = Inputs(processor, parsed)
            self._calls.open(processor.id, processor.id)

    def met(self, stored: Stored, maker: ProcessorId | None = None) -> None:
        """An event has come for the first time, or a processor of this node has made it."""
        if stored.event.derived_from:
            self._compare(stored.event, maker)
        todo = [(stored, maker)]
        while todo:
            one, made_by = todo.pop(0)
            if self._is_placed(one, made_by):
                for id, local in self._processors.items():
                    if id != made_by and local.fits(one.event):
                        self._give(local, one)
                todo += self._early.pop(one.id, ())

    def _is_placed(self, stored: Stored, maker: ProcessorId | None) -> bool:
        """Whether it is known how many processors an event has passed through. A result whose inputs have not come yet
        waits for them: were it taken for a first one, results of results would have no end."""
        inputs = stored.event.derived_from
        missing = next((id for id in inputs if not self._is_known(id)), None)
        if missing is not None:
            self._early.setdefault(missing, []).append((stored, maker))
            self._unplaced.add(stored.id)
            if len(self._early) > REMEMBERED:
                for late, _ in self._early.pop(next(iter(self._early))):
                    self._unplaced.discard(late.id)
                    self._drop("inputs_unknown", late.id)
            return False
        self._unplaced.discard(stored.id)
        if inputs:
            self._stages[stored.id] = 1 + max(self._stages.get(id, 0) for id in inputs)
            _forget(self._stages)
        return True

    def _is_known(self, id: EventId) -> bool:
        return id in self._stages or (self._knows(id) and id not in self._unplaced)

    def finished(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], error: str
    ) -> Iterator[tuple[Stored, ProcessorId]]:
        """The outcome of a call: what is to be published."""
        work = self._calls.finish(token, state, error)
        if work is None:
            self._port.note(Fact("drop", reason="processor_gone"))
        elif error:
            self._drop("processor_failed", work.inputs[0].id)
        else:
            until = min(one.until for one in work.inputs)
            for event in events:
                if until > now:
                    yield Stored(until, event.id, event, max(one.hops for one in work.inputs)), work.processor
                else:
                    self._drop("lease_over", event.id)

    def on_timer(self, now: float, id: EventId) -> None:
        """A rival has had its time: what it has not made is made here, and it is waited for no longer."""
        stored, rivals = self._waiting.pop(id)
        makers = {result.event.source for result in self._results.get((id,), ())}
        for processor, rival in rivals.items():
            if rival not in makers and processor in self._processors:
                self._rivals.pop(processor, None)
                if stored.until > now:
                    self._call(self._processors[processor], stored)

    def stop(self) -> None:
        """Wait for nobody."""
        for id in self._waiting:
            self._port.cancel_timer((MAKE, id))
        self._waiting.clear()

    def _give(self, local: Inputs[Stored], stored: Stored) -> None:
        id, rival = local.processor.id, self._rivals.get(local.processor.id)
        if self._stages.get(stored.id, 0) >= self.settings.max_stages:
            self._drop("too_many_processors", stored.id)
        elif rival is not None and stored.id in self._waiting:
            self._waiting[stored.id].rivals[id] = rival
        elif rival is not None and len(self._waiting) < REMEMBERED:
            self._waiting[stored.id] = _Wait(stored, {id: rival})
            self._port.set_timer((MAKE, stored.id), self.settings.news_s)
        else:
            self._call(local, stored)

    def _call(self, local: Inputs[Stored], stored: Stored) -> None:
        inputs, id = local.take(stream_of(stored.event, self.settings.stream_attributes), stored), local.processor.id
        if inputs and not self._calls.submit(id, [one.event for one in inputs], _Work(id, inputs)):
            self._drop("processor_busy", stored.id)

    def _compare(self, event: Event, maker: ProcessorId | None) -> None:
        """Whether the same was made of the same here and elsewhere: then the greater of the two gives way."""
        others = self._results.setdefault(event.derived_from, [])
        for other in others:
            mine, theirs = (maker, other.event) if maker else (other.processor, event)
            if mine in self._processors and theirs.source < self._node and _alike(event, other.event):
                self._yield_to(mine, theirs.source)
        others.append(_Result(event, maker))
        del others[:-ALIKE]
        _forget(self._results)

    def _yield_to(self, processor: ProcessorId, rival: NodeId) -> None:
        # What several inputs are paired with depends on when each of them came: nobody else makes the same for sure.
        if self._processors[processor].processor.inputs == 1:
            self._rivals[processor] = min(rival, self._rivals.get(processor, rival))

    def _drop(self, reason: str, event: EventId) -> None:
        self._port.note(Fact("drop", event, reason=reason))


def _alike(one: Event, other: Event) -> bool:
    return one.attributes == other.attributes and one.payload == other.payload


def _forget(known: dict[Key, Value]) -> None:
    """The oldest, if there are too many."""
    if len(known) > REMEMBERED:
        del known[next(iter(known))]
