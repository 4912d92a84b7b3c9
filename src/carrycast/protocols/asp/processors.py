"""Local processor applications [001 §4.1]: what they are given of announcements, and of messages on active paths."""

from typing import NamedTuple

from carrycast.core.matching import Filter
from carrycast.core.model import Processor, ProcessorId
from carrycast.core.parts.processing import ProcessorCalls, parsed_filter
from carrycast.core.protocol import Token
from carrycast.protocols.asp.announcement_table import Announced, Item, Production
from carrycast.protocols.asp.broker import Broker


class Work(NamedTuple):
    """One call: for which production, with which messages, and whether its results announce or are published."""

    production: Production
    items: tuple[Item, ...]
    announces: bool


class Local:
    """A processor with its parsed filter and, if it takes several inputs, the groups of streams that it combines."""

    __slots__ = ("filter", "groups", "processor")

    def __init__(self, processor: Processor, filter: Filter) -> None:
        self.processor = processor
        self.filter = filter
        self.groups: list[dict[int, int]] = []
        """For each group: the announcement of each of its streams."""


class LocalProcessors:
    """The processors of a node and their calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._processors: dict[ProcessorId, Local] = {}
        self._calls: ProcessorCalls[Work] = ProcessorCalls(broker.port)

    def add(self, now: float, processor: Processor) -> None:
        """This node can run a processor. With the announcement cache a late one learns of what is known."""
        parsed = parsed_filter(self._broker.port, processor)
        if parsed is None:
            return
        local = self._processors[processor.id] = Local(processor, parsed)
        self._calls.open(processor.id, processor.id)
        if self._broker.settings.announcement_cache:
            for entry in self._broker.table.entries():
                if entry.current and not entry.individual and entry.until > now:
                    self._try(local, entry)

    def on_announced(self, entry: Announced) -> None:
        """[001 §4.2] A full announcement goes to every processor "except if they have registered using a filter and the
        filter does not fit"."""
        for local in list(self._processors.values()):
            self._try(local, entry)

    def _try(self, local: Local, entry: Announced) -> None:
        """Let a processor make what it can of an announcement. It is not given its own results: what turns Celsius into
        warmer Celsius would never end."""
        made = entry.production
        if not local.filter.matches(entry.item.event.attributes):
            return
        if made is not None and made.processor == local.processor.id:
            return
        if entry.stages >= self._broker.settings.max_stages:
            self._broker.drop("too_many_processors", entry.item.event.id)
            return
        inputs = (entry,) if local.processor.inputs == 1 else self._group(local, entry)
        if inputs:
            ids, sequences = tuple(one.id for one in inputs), tuple(one.sequence for one in inputs)
            production = Production(local.processor.id, ids, sequences)
            self._call(Work(production, tuple(one.latest for one in inputs), announces=True))

    def consume(self, entry: Announced, item: Item) -> None:
        """A message is for this node's applications: sinks, and the processors that are part of an active path."""
        entry.meet(item)
        self._broker.local.deliver(item.event, item.hops)
        self.on_published(entry, item)

    def on_published(self, entry: Announced, item: Item) -> None:
        """[001 §4.1] "If the processor application is part of an active path later, further publications are sent to it
        for processing". A processor of several inputs is called when each of them has something new.
        """
        if not entry.productions:
            return
        wanted = {path.result for path in entry.path.active.values()}
        for production in entry.productions:
            if not any(id in wanted and self._makes(production, id) for id in production.results):
                continue
            production.fresh[entry.id] = item
            if len(production.fresh) == len(production.inputs):
                items = tuple(production.fresh[id] for id in production.inputs)
                production.fresh.clear()
                self._call(Work(production, items, announces=False))

    def finish(self, token: Token, state: bytes, error: str) -> Work | None:
        """A call is over; None, with a named drop, if nobody waits for its outcome any more."""
        work = self._calls.finish(token, state, error)
        if work is None:
            self._broker.drop("processor_gone")
        return work

    def on_expired(self, gone: list[Announced]) -> None:
        """What a group was made of is over."""
        ids = {entry.id for entry in gone}
        for local in self._processors.values():
            for group in local.groups:
                for stream in [stream for stream, id in group.items() if id in ids]:
                    del group[stream]
            local.groups = [group for group in local.groups if group]

    def _group(self, local: Local, entry: Announced) -> tuple[Announced, ...]:
        """The announcements to combine with a new one: of its group, once that is complete. A stream stays in its
        group when it is announced anew; a new one joins the first group with room."""
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

    def _makes(self, production: Production, result: int) -> bool:
        """Whether it is this production that makes a result, and not a better one of another local processor."""
        entry = self._broker.table.get(result)
        return entry is not None and entry.production is production

    def _call(self, work: Work) -> None:
        processor = work.production.processor
        if not self._calls.submit(processor, [item.event for item in work.items], work):
            self._broker.drop("processor_busy", work.items[0].event.id)
