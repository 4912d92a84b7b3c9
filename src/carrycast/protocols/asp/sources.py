"""Announcements and publications of this node: of source applications [001 §4.4] and of processors [001 §4.1]."""

import math
from collections.abc import Sequence

import msgspec

from carrycast.core.model import Event
from carrycast.core.parts import next_sequence
from carrycast.core.protocol import Fact, Token
from carrycast.protocols.asp.announcement_table import KnownAnnouncement, StreamMessage, StreamState
from carrycast.protocols.asp.announcements import AnnouncementPhase
from carrycast.protocols.asp.broker import TIME_TOLERANCE_S, AspBroker, LocalStream, LocalStreams
from carrycast.protocols.asp.messages import AnnouncementFlag
from carrycast.protocols.asp.path_state import PathState
from carrycast.protocols.asp.paths import SubscriptionPhase
from carrycast.protocols.asp.processors import LocalProcessors, ProcessorCall
from carrycast.protocols.asp.publications import PublicationPhase
from carrycast.protocols.asp.rules import announcement_id, combine_numbers, is_valid_metric, result_stream_id


class LocalSources:
    """The publications of local applications: some are announced, the others follow an announcement."""

    def __init__(
        self,
        broker: AspBroker,
        streams: LocalStreams,
        announcements: AnnouncementPhase,
        publications: PublicationPhase,
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
        source = self._streams.stream_of(event)
        if source is None:
            self._broker.local.deliver(event, 0)
            self._broker.drop("too_many_streams", event.id)
            return
        entry = self._broker.table.get(source.announced)
        item = source.last = source.next_message(now, self._incarnation, event)
        if entry is None or now >= entry.until - TIME_TOLERANCE_S or source.is_due(now) or one_off:
            self._announce(now, source, item, AnnouncementFlag.INDIVIDUAL if one_off else AnnouncementFlag(0))
        else:
            self._publications.publish(now, entry, item, self._broker.node)

    def on_timer(self, now: float, stream: int) -> None:
        """A path was not repaired in time: announce again, with the newest message if no newer one has come. Receivers
        that have it drop the duplicate. An expired message is not announced again: the next one will be."""
        source = self._streams.get(stream)
        last = source.last
        if not source.is_due(now):
            # The path that the timer was for has been repaired; others may still be broken.
            self._streams.wait_for_repair(now, source)
        elif last is not None and last.lease_until <= now:
            self._broker.drop("lease_over", last.event.id)
        elif last is not None and not self._publications.exceeds_packet(last.event):
            self._announce(now, source, last, AnnouncementFlag(0))

    def _announce(self, now: float, source: LocalStream, item: StreamMessage, flags: AnnouncementFlag) -> None:
        broker = self._broker
        settings = broker.settings
        message = item.event
        large = settings.fragment_bytes and self._publications.exceeds_packet(message)
        if large:
            # [001 §4.5] A message too large to be announced is described by its attributes, without its payload.
            message = msgspec.structs.replace(message, payload=b"")
            flags = AnnouncementFlag.DESCRIPTIVE
        self._sequence += 1
        origin = () if settings.identity == "content" else (broker.node,)
        id = announcement_id(message, origin, settings.decimals)
        known = broker.table.get(id)
        # [001 §4.2] "To recognize an identical announcement with the task to prolong an older one, the sequence number
        # has to be incremented", whichever node made the older one.
        sequence = max(next_sequence(self._incarnation, self._sequence), 0 if known is None else known.sequence + 1)
        entry = KnownAnnouncement(
            id,
            broker.table.stream(source.stream),
            sequence,
            item._replace(event=message),
            now + settings.validity_s,
            PathState(broker.node, 0.0),
            flags,
        )
        if not self._announcements.announce(now, entry):
            # Only the applications of this node can receive it.
            if entry.stream.window.add(item.counter):
                broker.local.deliver(item.event, 0)
            return
        broker.port.note(Fact("announce", item.event.id))
        source.on_announced(entry.id)
        if large:
            follows = source.next_message(now, self._incarnation, item.event)
            self._publications.publish(now, entry, follows, broker.node)


NO_RESULT = 0
"""In place of the id of an announcement, if a result has none of its own."""


class ProcessorResults:
    """The outcomes of processor calls: results are announced, or published on the paths to them."""

    def __init__(
        self,
        broker: AspBroker,
        processors: LocalProcessors,
        paths: SubscriptionPhase,
        announcements: AnnouncementPhase,
        publications: PublicationPhase,
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
        call = self._processors.finish(token, state, error)
        if call is None:
            return
        event = call.items[0].event.id
        if error:
            self._broker.drop("processor_failed", event)
        elif not is_valid_metric(cost_s):
            self._broker.drop("processor_cost_invalid", event)
        elif call.announces:
            self._announce(now, call, events, cost_s)
        else:
            self._publish(now, call, events)

    def _announce(self, now: float, call: ProcessorCall, events: Sequence[Event], cost_s: float) -> None:
        """[001 §4.1] "the result is to be submitted back to their broker along with identifications of the processed
        source announcements and a metric information"."""
        broker = self._broker
        derivation = call.derivation
        known = [broker.table.get(id) for id in derivation.inputs]
        inputs = [one for one in known if one is not None]
        if tuple(one.sequence for one in inputs) != derivation.sequences:
            # Announced again while the processor was busy; the newer announcement has its own call.
            broker.drop("announcement_over", call.items[0].event.id)
            return
        derivation.cost_s = cost_s
        for one in inputs:
            one.add_derivation(derivation)
        for place, event in enumerate(events):
            entry = self._make_result(call, inputs, event, place)
            own = broker.table.depends_on(derivation, entry.id)
            derivation.results.append(NO_RESULT if own else entry.id)
            if own:
                # Only if ids are hashes of the content alone: the result equals one of its inputs.
                broker.drop("result_of_itself", event.id)
            if (own or not self._announcements.announce(now, entry)) and entry.stream.window.add(entry.item.counter):
                broker.local.deliver(event, entry.item.hops)

    def _make_result(
        self, call: ProcessorCall, inputs: list[KnownAnnouncement], event: Event, place: int
    ) -> KnownAnnouncement:
        broker = self._broker
        derivation = call.derivation
        origin = () if broker.settings.identity == "content" else sorted(one.id for one in inputs)
        streams = [one.stream.id for one in inputs]
        metric_s = self._announcements.result_metric(derivation)
        flags = 0
        for one in inputs:
            flags |= one.flags
        stream = broker.table.stream(result_stream_id(streams, derivation.processor, place))
        id = announcement_id(event, origin, broker.settings.decimals)
        known = broker.table.get(id)
        sequence = combine_numbers(derivation.sequences)
        if known is not None and known.derivation is not None and sequence < known.sequence:
            # An input has restarted, and this prolongs a result from before that.
            sequence = known.sequence + 1
        return KnownAnnouncement(
            id,
            stream,
            sequence,
            combine_messages(stream, call.items, event),
            min(one.until for one in inputs),
            PathState(broker.node, math.inf if metric_s is None else metric_s),
            flags,
            1 + max(one.stages for one in inputs),
            derivation,
        )

    def _publish(self, now: float, call: ProcessorCall, events: Sequence[Event]) -> None:
        derivation = call.derivation
        for place, event in enumerate(events):
            id = derivation.results[place] if place < len(derivation.results) else NO_RESULT
            entry = self._broker.table.get(id)
            if entry is None:
                self._broker.drop("result_unannounced", event.id)
            else:
                item = combine_messages(entry.stream, call.items, event)
                self._publications.publish(now, entry, item, self._broker.node)


def combine_messages(stream: StreamState, items: Sequence[StreamMessage], event: Event) -> StreamMessage:
    """A result as a message of its stream. It expires with the first of its inputs.

    Its number is the input's own if there is only one, so that equal processors number alike. When one of several
    inputs restarts, the combined number may fall; the numbering then continues from the last one.
    """
    counter = combine_numbers([item.counter for item in items])
    if len(items) > 1:
        counter = max(counter, stream.made + 1)
        stream.made = counter
    return StreamMessage(counter, event, max(item.hops for item in items), min(item.lease_until for item in items))
