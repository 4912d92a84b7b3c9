"""The CPU of one simulated node: it runs calls of user code one after the other and measures its utilization."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from carrycast.core.functions import MAX_JOBS, Fault, InstalledFunction, ProcessorError, make_derived_event
from carrycast.core.model import Event, EventId, NodeId, ProcessorId
from carrycast.core.protocol import Token
from carrycast.core.utilization import Utilization
from carrycast.core.wire import Layer
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.kernel import US_PER_S, delay_us
from carrycast.sim.engine.observers.derived_events import EventDerivation
from carrycast.trace import encode_event, processor_error

ReportOutcome: TypeAlias = Callable[[Token, bytes, list[Event], float, str], None]
"""Reports the outcome of a call: token, state, events, cost in seconds, error."""


class ProcessorFailures(NamedTuple):
    """The number of failures of a processor, and its first error."""

    times: int
    first: str
    first_s: float


class _Call(NamedTuple):
    """A running or queued call."""

    boot: int
    processor: ProcessorId
    state: bytes
    events: tuple[Event, ...]
    token: Token
    cost_s: float
    error: ProcessorError | None = None
    """Why the call is rejected; None if it runs."""

    def size_bytes(self) -> int:
        return len(self.state) + sum(len(encode_event(event)) for event in self.events)


class Computer:
    """A queue with one server: each call takes its processor's `cost_s`, after the calls before it.

    The object survives crashes of its node; queued calls do not.
    """

    def __init__(self, node: NodeId, context: RunContext, clock: Callable[[], float], report: ReportOutcome) -> None:
        self.failures: dict[ProcessorId, ProcessorFailures] = {}
        self._node = node
        self._context = context
        self._kernel = context.kernel
        self._clock = clock
        self._report = report
        self._installed = context.installed[node]
        self._busy = Utilization(context.scenario.computer.load_window_s)
        self._free_us = 0
        self._open: dict[ProcessorId, int] = {}
        """Calls of each processor that have no outcome yet."""
        self._boot = 0

    def load(self) -> float:
        """The utilization over the load window."""
        return self._busy.share(self._kernel.now_s)

    def crash(self) -> None:
        """Discard running and queued calls."""
        self._boot += 1
        self._busy.cut(self._kernel.now_s)
        self._free_us = 0
        self._open.clear()

    def process(self, id: ProcessorId, state: bytes, events: tuple[Event, ...], token: Token) -> None:
        """Queue a call of user code. Its outcome is reported when the calls before it and its own `cost_s` are over."""
        installed, now_us = self._installed.get(id), self._kernel.now_us
        error = None
        if installed is None:
            error = ProcessorError(f"there is no processor {id}", Fault.UNKNOWN)
        elif self._open.get(id, 0) > MAX_JOBS:
            error = ProcessorError(f"{MAX_JOBS} calls of {id} wait already", Fault.BUSY)
        if installed is None or error is not None:
            self._kernel.at(now_us, self._finish, _Call(self._boot, id, state, events, token, 0.0, error))
            return
        cost_s = installed.processor.cost_s
        call = _Call(self._boot, id, state, events, token, cost_s)
        self._open[id] = self._open.get(id, 0) + 1
        start_us = max(now_us, self._free_us)
        self._free_us = start_us + delay_us(cost_s)
        self._busy.add(start_us / US_PER_S, self._free_us / US_PER_S)
        if self._context.memories is not None:
            self._context.memories.on_call(self._node, call.size_bytes())
        self._kernel.at(self._free_us, self._finish, call)

    def _finish(self, call: object) -> None:
        assert isinstance(call, _Call)
        if call.boot != self._boot:
            return
        try:
            if call.error is not None:
                raise call.error
            self._open[call.processor] -= 1
            if self._context.memories is not None:
                self._context.memories.on_call(self._node, -call.size_bytes())
            results, state = self._run(call, self._installed[call.processor])
        except ProcessorError as error:
            self._on_failure(call, error)
            self._report(call.token, call.state, [], call.cost_s, error.report)
        else:
            self._report(call.token, state, results, call.cost_s, "")

    def _run(self, call: _Call, installed: InstalledFunction) -> tuple[list[Event], bytes]:
        state, outcomes = installed.run(call.state, call.events)
        results = []
        for outcome in outcomes:
            identity = EventId(self._node, self._context.next_sequence(self._node))
            results.append(make_derived_event(call.processor, call.events, outcome, identity, self._clock()))
        self._context.count_derived(call.processor, len(results))
        # Recorded only now, because an invalid result fails the whole call.
        for place, result in enumerate(results):
            self._context.recorder.on_event(self._node, result, EventDerivation(call.processor, call.events, place))
        return results, state

    def _on_failure(self, call: _Call, error: ProcessorError) -> None:
        """Keep the error for the report of the run; the protocol only learns that there was one."""
        before = self.failures.get(call.processor)
        first = (str(error), self._kernel.now_s) if before is None else (before.first, before.first_s)
        self.failures[call.processor] = ProcessorFailures(1 if before is None else before.times + 1, *first)
        self._context.recorder.on_fact(self._node, Layer.DISSEMINATION, processor_error(call.events, error.report))
