"""Announcements and publications of this node: of source applications [001 §4.4] and of processors [001 §4.1]."""

import math
from collections.abc import Sequence

import msgspec

from carrycast.core.model import Event
from carrycast.core.parts.horizon import next_sequence
from carrycast.core.protocol import Fact, Token
from carrycast.protocols.asp.announcement_table import Announced, Item, Stream
from carrycast.protocols.asp.announcements import Announcements
from carrycast.protocols.asp.broker import DUE_S, Broker, LocalStreams, Source
from carrycast.protocols.asp.messages import Flag
from carrycast.protocols.asp.path_state import PathState
from carrycast.protocols.asp.paths import Paths
from carrycast.protocols.asp.processors import LocalProcessors, Work
from carrycast.protocols.asp.publications import Publications
from carrycast.protocols.asp.rules import announcement_id, combined_number, result_stream, valid_metric


class Sources:
    """Local applications publish: some of their messages announce, the others follow an announcement."""

    def __init__(
        self,
        broker: Broker,
        streams: LocalStreams,
        announcements: Announcements,
        publications: Publications,
        incarnation: int,
    ) -> None:
        self._broker = broker
        self._streams = streams
        self._announcements = announcements
        self._publications = publications
        self._incarnation = incarnation
        self._sequence = 0

    def publish(self, now: float, event: Event) -> None:
        """[001 §4.4] "Following an announcement, the source will send out all published messages as publications until
        the next announcement is necessary due to announcement expiration or path disintegration"."""
        settings = self._broker.settings
        unkeyed = all(name not in event.attributes for name in settings.stream_attributes)
        one_off = settings.individual == "always" or (settings.individual == "unkeyed" and unkeyed)
        source = self._streams.of(event)
        if source is None:
            self._broker.local.deliver(event, 0)
            self._broker.drop("too_many_streams", event.id)
            return
        entry = self._broker.table.get(source.announced)
        item = source.last = source.number(now, self._incarnation, event)
        if entry is None or now >= entry.until - DUE_S or source.due(now) or one_off:
            self._announce(now, source, item, Flag.INDIVIDUAL if one_off else Flag(0))
        else:
            self._publications.publish(now, entry, item, self._broker.node)

    def on_timer(self, now: float, stream: int) -> None:
        """A path was not made again in time: announce anew, with the newest message if no newer one has come. Whoever
        has met it is not given it twice."""
        source = self._streams.get(stream)
        last = source.last
        if not source.due(now):
            # The path it was armed for has been made again; others may still wait for theirs.
            self._streams.wait(now, source)
        elif last is not None and not self._publications.is_large(last.event):
            self._announce(now, source, last, Flag(0))

    def _announce(self, now: float, source: Source, item: Item, flags: Flag) -> None:
        broker = self._broker
        settings = broker.settings
        message = item.event
        large = settings.fragment_bytes and self._publications.is_large(message)
        if large:
            # [001 §4.5] What is too large to be announced is described: by its attributes, without its payload.
            message = msgspec.structs.replace(message, payload=b"")
            flags = Flag.DESCRIPTIVE
        self._sequence += 1
        origin = () if settings.identity == "content" else (broker.node,)
        id = announcement_id(message, origin, settings.decimals)
        known = broker.table.get(id)
        # [001 §4.2] "To recognize an identical announcement with the task to prolong an older one, the sequence number
        # has to be incremented", whoever made the older one.
        sequence = max(next_sequence(self._incarnation, self._sequence), 0 if known is None else known.sequence + 1)
        entry = Announced(
            id,
            broker.table.stream(source.stream),
            sequence,
            item._replace(event=message),
            now + settings.validity_s,
            PathState(broker.node, 0.0),
            flags,
        )
        if not self._announcements.announce(now, entry):
            # Nobody else can learn of it, but the applications of this node can.
            if entry.stream.window.add(item.counter):
                broker.local.deliver(item.event, 0)
            return
        broker.port.note(Fact("announce", item.event.id))
        source.follow(entry.id)
        if large:
            follows = source.number(now, self._incarnation, item.event)
            self._publications.publish(now, entry, follows, broker.node)


NO_RESULT = 0
"""Instead of the id of an announcement, where a result has none of its own."""


class Results:
    """Takes the outcomes of calls, and finds another maker for what a processor made that is gone."""

    def __init__(
        self,
        broker: Broker,
        processors: LocalProcessors,
        paths: Paths,
        announcements: Announcements,
        publications: Publications,
    ) -> None:
        self._broker = broker
        self._processors = processors
        self._paths = paths
        self._announcements = announcements
        self._publications = publications

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of a call. A processor that failed is reported and skipped."""
        work = self._processors.finish(token, state, error)
        if work is None:
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
            one.process_by(production)
        for place, event in enumerate(events):
            entry = self._result(work, inputs, event, place)
            own = broker.table.is_made_of(production, entry.id)
            production.results.append(NO_RESULT if own else entry.id)
            if own:
                # Only where ids are of the content alone: it is announced already, as what it was made of.
                broker.drop("result_of_itself", event.id)
            if (own or not self._announcements.announce(now, entry)) and entry.stream.window.add(entry.item.counter):
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
        return Announced(
            id,
            stream,
            sequence,
            combined(stream, work.items, event),
            min(one.until for one in inputs),
            PathState(broker.node, math.inf if metric_s is None else metric_s),
            flags,
            1 + max(one.stages for one in inputs),
            production,
        )

    def _publish(self, now: float, work: Work, events: Sequence[Event]) -> None:
        production = work.production
        for place, event in enumerate(events):
            id = production.results[place] if place < len(production.results) else NO_RESULT
            entry = self._broker.table.get(id)
            if entry is None:
                self._broker.drop("result_unannounced", event.id)
            else:
                item = combined(entry.stream, work.items, event)
                self._publications.publish(now, entry, item, self._broker.node)


def combined(stream: Stream, items: Sequence[Item], event: Event) -> Item:
    """A result as a message of its stream. It lives as long as the shortest of its inputs.

    Its number is the input's own if there is only one, so that equal processors number alike. When one of several
    inputs starts anew their combined number may fall, and the count goes on from the last one.
    """
    counter = combined_number([item.counter for item in items])
    if len(items) > 1:
        counter = max(counter, stream.made + 1)
        stream.made = counter
    return Item(counter, event, max(item.hops for item in items), min(item.lease_until for item in items))
