"""Runs the processors of this node on the events it receives, without running the same one on several nodes.

Every event reaches every node, so every node that has a processor could run it. Nodes do not announce their processors.
Two nodes that derive equal events from the same inputs recognize it by the results. From then on the node with the
smaller id is the primary, and the other one is its backup (primary-backup replication: Budhiraja et al. 1993): it waits
for the primary's result and runs the processor only if none comes, so every island has one that runs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from carrycast.core.model import Event, EventId, NodeId, Processor, ProcessorId
from carrycast.core.parts import BufferedEvent, ProcessorCalls, ProcessorInputs, parse_filter, stream_of
from carrycast.core.protocol import Fact, Port, Token
from carrycast.core.wire import LEASE_EXPIRED
from carrycast.protocols.drift.settings import DriftSettings

Key = TypeVar("Key")
Value = TypeVar("Value")

FAILOVER = "failover"
MAX_REMEMBERED = 4096
"""Inputs whose results are known, results whose stages are known, inputs that wait for a primary: each at most this."""
MAX_RESULTS = 16
"""Results of the same inputs that are compared; the oldest are forgotten."""


class _ProcessorCall(NamedTuple):
    """A call of a processor and its inputs."""

    processor: ProcessorId
    inputs: tuple[BufferedEvent, ...]


class _KnownResult(NamedTuple):
    """A derived event, and the local processor that made it; None if another node made it."""

    event: Event
    processor: ProcessorId | None


class _BackupWait(NamedTuple):
    """An input that waits for the results of primaries, by processor."""

    stored: BufferedEvent
    primaries: dict[ProcessorId, NodeId]


class DriftProcessing:
    """The processors of one node."""

    def __init__(
        self, node: NodeId, port: Port, settings: DriftSettings, is_duplicate: Callable[[EventId], bool]
    ) -> None:
        self._node = node
        self._port = port
        self.settings = settings
        self._is_duplicate = is_duplicate
        """Whether an event was received before."""
        self._processors: dict[ProcessorId, ProcessorInputs[BufferedEvent]] = {}
        self._calls: ProcessorCalls[_ProcessorCall] = ProcessorCalls(port)
        self._primaries: dict[ProcessorId, NodeId] = {}
        """The node with a smaller id that derives the same events."""
        self._waiting: dict[EventId, _BackupWait] = {}
        self._results: dict[tuple[EventId, ...], list[_KnownResult]] = {}
        """By their inputs."""
        self._stages: dict[EventId, int] = {}
        """The number of processors that a derived event has passed through."""
        self._early: dict[EventId, list[tuple[BufferedEvent, ProcessorId | None]]] = {}
        """Derived events that were received before one of their inputs, by that input; their stage is unknown."""
        self._early_ids: set[EventId] = set()

    def __bool__(self) -> bool:
        return bool(self._processors)

    def filters(self) -> Iterator[str]:
        """The filters of the processors' inputs."""
        return (local.processor.filter for local in self._processors.values())

    def add(self, processor: Processor) -> None:
        """This node can run a processor from now on."""
        parsed = parse_filter(self._port, processor)
        if parsed is not None:
            self._processors[processor.id] = ProcessorInputs(processor, parsed)
            self._calls.open(processor.id, processor.id)

    def on_event(self, stored: BufferedEvent, maker: ProcessorId | None = None) -> None:
        """Process a new event; `maker` if a processor of this node has made it."""
        if stored.event.derived_from:
            self._compare_results(stored.event, maker)
        queue = [(stored, maker)]
        while queue:
            one, made_by = queue.pop(0)
            if self._has_stage(one, made_by):
                for id, local in self._processors.items():
                    if id != made_by and local.fits(one.event):
                        self._process(local, one)
                queue += self._early.pop(one.id, ())

    def _has_stage(self, stored: BufferedEvent, maker: ProcessorId | None) -> bool:
        """Whether it is known how many processors an event has passed through. A derived event whose inputs have not
        come yet waits for them: taken for a first stage, results of results would have no end."""
        inputs = stored.event.derived_from
        missing = next((id for id in inputs if not self._is_known(id)), None)
        if missing is not None:
            self._early.setdefault(missing, []).append((stored, maker))
            self._early_ids.add(stored.id)
            if len(self._early) > MAX_REMEMBERED:
                for late, _ in self._early.pop(next(iter(self._early))):
                    self._early_ids.discard(late.id)
                    self._drop("inputs_unknown", late.id)
            return False
        self._early_ids.discard(stored.id)
        if inputs:
            self._stages[stored.id] = 1 + max(self._stages.get(id, 0) for id in inputs)
            _bound(self._stages)
        return True

    def _is_known(self, id: EventId) -> bool:
        return id in self._stages or (self._is_duplicate(id) and id not in self._early_ids)

    def finish(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], error: str
    ) -> Iterator[tuple[BufferedEvent, ProcessorId]]:
        """Handle the outcome of a call; yields the events to publish."""
        call = self._calls.finish(token, state, error)
        if call is None:
            self._port.note(Fact("drop", reason="processor_gone"))
        elif error:
            self._drop("processor_failed", call.inputs[0].id)
        else:
            until = min(one.until for one in call.inputs)
            for event in events:
                if until > now:
                    yield BufferedEvent(until, event.id, event, max(one.hops for one in call.inputs)), call.processor
                else:
                    self._drop(LEASE_EXPIRED, event.id)

    def on_timer(self, now: float, id: EventId) -> None:
        """The wait for primaries has ended: run the processors whose result has not come, and forget their primary."""
        stored, primaries = self._waiting.pop(id)
        makers = {result.event.source for result in self._results.get((id,), ())}
        for processor, primary in primaries.items():
            if primary not in makers and processor in self._processors:
                self._primaries.pop(processor, None)
                if stored.until > now:
                    self._call(self._processors[processor], stored)

    def stop(self) -> None:
        """Cancel all timers."""
        for id in self._waiting:
            self._port.cancel_timer((FAILOVER, id))
        self._waiting.clear()

    def _process(self, local: ProcessorInputs[BufferedEvent], stored: BufferedEvent) -> None:
        """Run a processor on an event, or wait for its primary."""
        id, primary = local.processor.id, self._primaries.get(local.processor.id)
        if self._stages.get(stored.id, 0) >= self.settings.max_stages:
            self._drop("too_many_processors", stored.id)
        elif primary is not None and stored.id in self._waiting:
            self._waiting[stored.id].primaries[id] = primary
        elif primary is not None and len(self._waiting) < MAX_REMEMBERED:
            self._waiting[stored.id] = _BackupWait(stored, {id: primary})
            self._port.set_timer((FAILOVER, stored.id), self.settings.news_s)
        else:
            self._call(local, stored)

    def _call(self, local: ProcessorInputs[BufferedEvent], stored: BufferedEvent) -> None:
        inputs, id = local.take(stream_of(stored.event, self.settings.stream_attributes), stored), local.processor.id
        if inputs and not self._calls.submit(id, [one.event for one in inputs], _ProcessorCall(id, inputs)):
            self._drop("processor_busy", stored.id)

    def _compare_results(self, event: Event, maker: ProcessorId | None) -> None:
        """If this node and another have derived equal events from the same inputs, the greater id becomes the
        backup."""
        others = self._results.setdefault(event.derived_from, [])
        for other in others:
            mine, theirs = (maker, other.event) if maker else (other.processor, event)
            if mine in self._processors and theirs.source < self._node and _are_equal(event, other.event):
                self._set_primary(mine, theirs.source)
        others.append(_KnownResult(event, maker))
        del others[:-MAX_RESULTS]
        _bound(self._results)

    def _set_primary(self, processor: ProcessorId, primary: NodeId) -> None:
        # Which of several inputs are combined depends on when each arrived, so another node may combine others.
        if self._processors[processor].processor.inputs == 1:
            self._primaries[processor] = min(primary, self._primaries.get(processor, primary))

    def _drop(self, reason: str, event: EventId) -> None:
        self._port.note(Fact("drop", event, reason=reason))


def _are_equal(one: Event, other: Event) -> bool:
    return one.attributes == other.attributes and one.payload == other.payload


def _bound(known: dict[Key, Value]) -> None:
    """Remove the oldest entry if there are too many."""
    if len(known) > MAX_REMEMBERED:
        del known[next(iter(known))]
