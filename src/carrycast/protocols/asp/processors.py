"""Local processor applications [001 §4.1]: their calls for announcements, and for messages on active paths."""

from typing import NamedTuple

from carrycast.core.matching import Filter
from carrycast.core.model import Processor, ProcessorId
from carrycast.core.parts import ProcessorCalls, parse_filter
from carrycast.core.protocol import Token
from carrycast.protocols.asp.announcement_table import Derivation, KnownAnnouncement, StreamMessage
from carrycast.protocols.asp.broker import AspBroker


class ProcessorCall(NamedTuple):
    """One call: its derivation, its messages, and whether its results are announced or published."""

    derivation: Derivation
    items: tuple[StreamMessage, ...]
    announces: bool


class LocalProcessor:
    """A processor with its parsed filter and, if it takes several inputs, the groups of streams that it combines."""

    __slots__ = ("filter", "groups", "processor")

    def __init__(self, processor: Processor, filter: Filter) -> None:
        self.processor = processor
        self.filter = filter
        self.groups: list[dict[int, int]] = []
        """For each group: the announcement of each of its streams."""


class LocalProcessors:
    """The processors of a node and their calls."""

    def __init__(self, broker: AspBroker) -> None:
        self._broker = broker
        self._processors: dict[ProcessorId, LocalProcessor] = {}
        self._calls: ProcessorCalls[ProcessorCall] = ProcessorCalls(broker.port)

    def add(self, now: float, processor: Processor) -> None:
        """Install a processor. With the announcement cache it is called for all known announcements."""
        parsed = parse_filter(self._broker.port, processor)
        if parsed is None:
            return
        local = self._processors[processor.id] = LocalProcessor(processor, parsed)
        self._calls.open(processor.id, processor.id)
        if self._broker.settings.announcement_cache:
            for entry in self._broker.table.entries():
                if entry.current and not entry.individual and entry.until > now:
                    self._call_for(local, entry)

    def on_announced(self, entry: KnownAnnouncement) -> None:
        """[001 §4.2] A full announcement goes to every processor "except if they have registered using a filter and the
        filter does not fit"."""
        for local in list(self._processors.values()):
            self._call_for(local, entry)

    def _call_for(self, local: LocalProcessor, entry: KnownAnnouncement) -> None:
        """Call a processor for an announcement. It does not get its own results: a processor from Celsius to Celsius
        would never end."""
        made = entry.derivation
        if not local.filter.matches(entry.item.event.attributes):
            return
        if made is not None and made.processor == local.processor.id:
            return
        if entry.stages >= self._broker.settings.max_stages:
            self._broker.drop("too_many_processors", entry.item.event.id)
            return
        inputs = (entry,) if local.processor.inputs == 1 else self._join_group(local, entry)
        if inputs:
            ids, sequences = tuple(one.id for one in inputs), tuple(one.sequence for one in inputs)
            derivation = Derivation(local.processor.id, ids, sequences)
            self._submit(ProcessorCall(derivation, tuple(one.latest for one in inputs), announces=True))

    def consume(self, entry: KnownAnnouncement, item: StreamMessage) -> None:
        """A message for this node's applications: sinks, and the processors on an active path."""
        entry.update_latest(item)
        self._broker.local.deliver(item.event, item.hops)
        self.on_published(entry, item)

    def on_published(self, entry: KnownAnnouncement, item: StreamMessage) -> None:
        """[001 §4.1] "If the processor application is part of an active path later, further publications are sent to it
        for processing". A processor of several inputs is called when each of them has something new.
        """
        if not entry.derivations:
            return
        wanted = {path.result for path in entry.path.active.values()}
        for derivation in entry.derivations:
            if not any(id in wanted and self._makes(derivation, id) for id in derivation.results):
                continue
            derivation.fresh[entry.id] = item
            if len(derivation.fresh) == len(derivation.inputs):
                items = tuple(derivation.fresh[id] for id in derivation.inputs)
                derivation.fresh.clear()
                self._submit(ProcessorCall(derivation, items, announces=False))

    def finish(self, token: Token, state: bytes, error: str) -> ProcessorCall | None:
        """A call has ended; None, with a named drop, if its processor is not installed any more."""
        call = self._calls.finish(token, state, error)
        if call is None:
            self._broker.drop("processor_gone")
        return call

    def on_expired(self, gone: list[KnownAnnouncement]) -> None:
        """Remove expired announcements from the groups."""
        ids = {entry.id for entry in gone}
        for local in self._processors.values():
            for group in local.groups:
                for stream in [stream for stream, id in group.items() if id in ids]:
                    del group[stream]
            local.groups = [group for group in local.groups if group]

    def _join_group(self, local: LocalProcessor, entry: KnownAnnouncement) -> tuple[KnownAnnouncement, ...]:
        """The announcements to combine with a new one: those of its group, once that is complete. A stream stays in its
        group when it is announced again; a new one joins the first group that is not full."""
        size = local.processor.inputs
        stream = entry.stream.id
        group = next((group for group in local.groups if stream in group), None)
        if group is None:
            group = next((group for group in local.groups if len(group) < size), None)
        if group is None:
            group = {}
            local.groups.append(group)
        group[stream] = entry.id
        known = [self._broker.table.get(id) for id in group.values()]
        inputs = tuple(one for one in known if one is not None)
        return inputs if len(inputs) == size else ()

    def _makes(self, derivation: Derivation, result: int) -> bool:
        """Whether a result is made by this derivation, and not by a better one of another local processor."""
        entry = self._broker.table.get(result)
        return entry is not None and entry.derivation is derivation

    def _submit(self, call: ProcessorCall) -> None:
        processor = call.derivation.processor
        if not self._calls.submit(processor, [item.event for item in call.items], call):
            self._broker.drop("processor_busy", call.items[0].event.id)
