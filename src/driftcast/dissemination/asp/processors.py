"""Local processor applications [001 §4.1]: what they make of announcements, and of publications on active paths."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from driftcast.dissemination.asp.announcements import Announcements
from driftcast.dissemination.asp.broker import Broker
from driftcast.dissemination.asp.publications import Publications
from driftcast.dissemination.asp.rules import announcement_id, combined_number, result_stream, valid_metric
from driftcast.dissemination.asp.tables import Announced, Item, Production, Stream
from driftcast.matching import Filter
from driftcast.model import Event, Processor, ProcessorId
from driftcast.parts.processing import Calls, parsed_filter
from driftcast.protocol import Token


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
    """The processors of a node and what they made."""

    def __init__(self, broker: Broker, announcements: Announcements, publications: Publications) -> None:
        self._broker = broker
        self._announcements = announcements
        self._publications = publications
        self._processors: dict[ProcessorId, Local] = {}
        self._calls: Calls[Work] = Calls(broker.port)

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

    def remove(self, now: float, processor: ProcessorId) -> None:
        """It no longer can: what waited for it is dropped, and what it made is made by another one or is over."""
        if self._processors.pop(processor, None) is None:
            return
        for work in self._calls.close(processor):
            self._broker.drop("processor_gone", work.items[0].event.id)
        table = self._broker.table
        for entry in table.entries():
            entry.productions = [one for one in entry.productions if one.processor != processor]
        for entry in table.entries():
            made = entry.production
            if made is None or made.processor != processor:
                continue
            inputs = [table.get(id) for id in made.inputs]
            others = [one for source in inputs if source is not None for one in source.productions]
            other = next((one for one in others if entry.id in one.results), None)
            if other is not None:
                self._announcements.paths.produce(now, entry, other)
            else:
                self._announcements.paths.on_result_over(now, entry)

    def on_announced(self, now: float, entry: Announced) -> None:
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

    def on_published(self, now: float, entry: Announced, item: Item) -> None:
        """[001 §4.1] "If the processor application is part of an active path later, further publications are sent to it
        for processing". A processor of several inputs is called when each of them has something new.
        """
        if not entry.productions:
            return
        wanted = {path.result for path in entry.active.values()}
        for production in entry.productions:
            if not any(id in wanted and self._makes(production, id) for id in production.results):
                continue
            production.fresh[entry.id] = item
            if len(production.fresh) == len(production.inputs):
                items = tuple(production.fresh[id] for id in production.inputs)
                production.fresh.clear()
                self._call(Work(production, items, announces=False))

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of a call. A processor that failed is reported and skipped."""
        work = self._calls.finish(token, state, error)
        if work is None:
            self._broker.drop("processor_gone")
            return
        event = work.items[0].event.id
        if error:
            self._broker.drop("processor_failed", event)
        elif not valid_metric(cost_s):
            self._broker.drop("processor_cost_invalid", event)
        elif work.announces:
            self._announce(now, work, events, cost_s)
        else:
            self._publish(now, work, events)

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

    def _announce(self, now: float, work: Work, events: Sequence[Event], cost_s: float) -> None:
        """[001 §4.1] "the result is to be submitted back to their broker along with identifications of the processed
        source announcements and a metric information"."""
        broker = self._broker
        production = work.production
        known = [broker.table.get(id) for id in production.inputs]
        inputs = [one for one in known if one is not None]
        if tuple(one.sequence for one in inputs) != production.sequences:
            # Announced anew while the processor was busy; the newer announcement has a call of its own.
            broker.drop("announcement_over", work.items[0].event.id)
            return
        production.cost_s = cost_s
        for one in inputs:
            one.productions.append(production)
        for place, event in enumerate(events):
            entry = self._result(work, inputs, event, place)
            production.results.append(entry.id)
            if not self._announcements.announce(now, entry) and entry.stream.window.add(entry.item.counter):
                broker.local.deliver(event, entry.item.hops)

    def _result(self, work: Work, inputs: list[Announced], event: Event, place: int) -> Announced:
        broker = self._broker
        production = work.production
        origin = () if broker.settings.identity == "content" else sorted(one.id for one in inputs)
        streams = [one.stream.id for one in inputs]
        metric_s = self._announcements.result_metric(production)
        flags = 0
        for one in inputs:
            flags |= one.flags
        stream = broker.table.stream(result_stream(streams, production.processor, place))
        id = announcement_id(event, origin, broker.settings.decimals)
        known = broker.table.get(id)
        sequence = combined_number(production.sequences)
        if known is not None and known.production is not None and sequence < known.sequence:
            # An input has started anew, and this prolongs what was made of its past.
            sequence = known.sequence + 1
        entry = Announced(
            id,
            stream,
            sequence,
            _combined(stream, work.items, event),
            min(one.until for one in inputs),
            broker.node,
            math.inf if metric_s is None else metric_s,
            flags,
            1 + max(one.stages for one in inputs),
        )
        entry.production = production
        return entry

    def _publish(self, now: float, work: Work, events: Sequence[Event]) -> None:
        production = work.production
        for place, event in enumerate(events):
            id = production.results[place] if place < len(production.results) else 0
            entry = self._broker.table.get(id)
            if entry is None:
                self._broker.drop("result_unannounced", event.id)
            else:
                item = _combined(entry.stream, work.items, event)
                self._publications.publish(now, entry, item, self._broker.node)


def _combined(stream: Stream, items: Sequence[Item], event: Event) -> Item:
    """A result as a message of its stream. It lives as long as the shortest of its inputs.

    Its number is the input's own if there is only one, so that equal processors number alike. When one of several
    inputs starts anew their combined number may fall, and the count goes on from the last one.
    """
    counter = combined_number([item.counter for item in items])
    if len(items) > 1:
        counter = max(counter, stream.made + 1)
        stream.made = counter
    return Item(counter, event, max(item.hops for item in items), min(item.lease_until for item in items))
