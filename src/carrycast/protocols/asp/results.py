"""What local processors have made [001 §4.1]: results are announced, or published on the paths to them."""

import math
from collections.abc import Sequence

from carrycast.core.model import Event
from carrycast.core.protocol import Token
from carrycast.protocols.asp.announcements import Announcements
from carrycast.protocols.asp.broker import Broker
from carrycast.protocols.asp.path_state import PathState
from carrycast.protocols.asp.paths import Paths
from carrycast.protocols.asp.processors import LocalProcessors, Work
from carrycast.protocols.asp.publications import Publications
from carrycast.protocols.asp.rules import announcement_id, combined_number, result_stream, valid_metric
from carrycast.protocols.asp.tables import Announced, Item, Stream

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
