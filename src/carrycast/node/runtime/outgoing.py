"""Events that a node publishes, or its processors make: numbered, checked before anybody sees them, and what can be
promised of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from carrycast.core.functions import Fault, ProcessorError, derived_event
from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import FOREVER_S, AccessPolicy, Event, EventId, NodeId, Scalar
from carrycast.core.protocol import Protocol
from carrycast.core.protocol.optional import KeepsEvents
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.link.frame import MAX_BODY_BYTES
from carrycast.node.record import LOG, Record
from carrycast.node.runtime.holding import Copies, Holding
from carrycast.node.runtime.numbers import EventNumbers, Numbers
from carrycast.node.runtime.pacing import Pacing
from carrycast.node.runtime.processing import Finished
from carrycast.node.runtime.retention import Retention
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.runtime.saving import Saved, Saving
from carrycast.trace import rows

AROUND_BYTES = 100
"""Of an event besides its payload, about."""
MAX_EVENT_BYTES = MAX_BODY_BYTES - 512
"""What a datagram leaves for an event when a message of any protocol is put around it."""


_decode = msgspec.msgpack.Decoder(Event).decode


Sign: TypeAlias = Callable[[Sequence[Event]], Sequence[Event | UserError]]
"""Makes of events what travels, or says why one may not."""


class Publication(NamedTuple):
    """What an application publishes, and what it wants to be told."""

    attributes: Mapping[str, Scalar]
    payload: bytes
    lease_s: float
    access: str | None
    stored: Saved | None = None
    """Called when it is on the disk."""
    copies: Copies | None = None
    """Names what is called when that many neighbors hold it."""

    @property
    def promised(self) -> bool:
        """Whether it is to be kept until its lease ends, where the protocol keeps events on disk."""
        return self.stored is not None


class Outgoing:
    """What leaves the applications and the processors of one node."""

    def __init__(
        self,
        node: NodeId,
        numbers: Numbers | EventNumbers,
        runtime: Runtime,
        record: Record,
        saving: Saving,
        sign: Sign = lambda events: events,
    ) -> None:
        self._sign = sign
        self._node = node
        self._numbers = numbers
        self._runtime = runtime
        self._record = record
        self._saving = saving
        self.holding = Holding(runtime)
        self._pacing = Pacing(runtime)
        self.retention = Retention(runtime, record, saving)

    def is_busy(self, more: int) -> bool:
        """Whether links or neighbors cannot keep up with what was published, and so many more events."""
        return self._runtime.busy or self._pacing.is_behind(more)

    def held(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor has an event that is counted."""
        self.holding.held(event, neighbor)
        self._pacing.held(event)

    def publish(self, wanted: Publication) -> EventId:
        """Publish an event; a UserError says what is wrong with it."""
        [found] = self.publish_all([wanted])
        if isinstance(found, EventId):
            return found
        raise found

    def publish_all(self, publications: Sequence[Publication]) -> list[EventId | UserError | WorkError]:
        """Publish events that are there at the same time; of each its id, or what is wrong with it."""
        prepared = [self._prepared(publication) for publication in publications]
        signed = iter(self._sign([event for event in prepared if isinstance(event, Event)]))
        ready = [next(signed) if isinstance(event, Event) else event for event in prepared]
        return [self._publish(event, wanted) for event, wanted in zip(ready, publications, strict=True)]

    def _prepared(self, wanted: Publication) -> Event | UserError | WorkError:
        try:
            if wanted.stored is not None:
                check_keeps(self._runtime.protocol)
            if wanted.copies is not None:
                self.holding.check()
            policy = None if wanted.access is None else checked_policy(wanted.access)
            id = EventId(self._node, self._numbers.take())
            lease_s, log = wanted.lease_s, self.retention.log
            if lease_s == FOREVER_S and log is not None and wanted.promised:
                # What is promised has an end: without one of its own, that of the protocol.
                lease_s = log.longest_s
            return checked_event(id, wanted.attributes, wanted.payload, lease_s, policy)
        except (UserError, WorkError) as error:
            return error

    def _publish(self, event: Event | UserError | WorkError, wanted: Publication) -> EventId | UserError | WorkError:
        if not isinstance(event, Event):
            return event
        # Signed events are longer, and those before it have taken room.
        refused = self.retention.refusal(event) if wanted.promised and self.retention.log is not None else None
        if refused is not None:
            self._record.drop(Layer.DISSEMINATION, "not_stored")
            return refused
        self._record.publish(event)
        if not self.retention.publish(event, wanted.promised):
            return WorkError("the protocol failed on the event; the node's log has the reason")
        if wanted.stored is not None:
            self._saving.on_disk(wanted.stored)
        if wanted.copies is None:
            self._pacing.published(event.id, len(event.payload) + AROUND_BYTES)
        else:
            self.holding.wait(event.id, wanted.copies)
        return event.id

    def processed(self, finished: Finished) -> None:
        """A processor has returned; what it made goes to the protocol that asked for it."""
        error, events = finished.error, list[Event]()
        try:
            for result in finished.results:
                id = EventId(self._node, self._numbers.take())
                events.append(derived_event(finished.processor, finished.inputs, result, id, time.time()))
        except ProcessorError as problem:
            error, events = problem.told, []
        signed = self._sign(events)
        events = [event for event in signed if isinstance(event, Event)]
        problems = [problem for problem in signed if isinstance(problem, UserError)]
        if problems:
            error, events = f"{Fault.RESULT}: {problems[0]}", []
        if error:
            LOG.warning("processor %s: %s", finished.processor, error)
            self._record.note(Layer.DISSEMINATION, rows.processor_error(finished.inputs, error))
        for event in events:
            self._record.publish(event, finished.processor)
        self._runtime.on_processed(self._runtime.now, finished.token, finished.state, events, finished.cost_s, error)


def checked_event(
    id: EventId, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, policy: AccessPolicy | None
) -> Event:
    """An event that every other node will accept, or a UserError."""
    try:
        encoded = msgspec.msgpack.encode(Event(id, dict(attributes), payload, time.time(), lease_s, policy))
        if len(encoded) > MAX_EVENT_BYTES:
            raise ValueError(f"it has {len(encoded)} bytes, and at most {MAX_EVENT_BYTES} fit in a datagram")
        # Decoding checks types and bounds, as it will everywhere else.
        return _decode(encoded)
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UserError(f"event: {error}") from None


def checked_policy(access: str) -> AccessPolicy:
    """Who may have an event, in canonical form, or a UserError."""
    try:
        return AccessPolicy(Filter(access).text)
    except FilterError as error:
        raise UserError(f"access: {error}") from None


def check_keeps(protocol: Protocol) -> None:
    """A UserError if a protocol does not keep on disk what is published."""
    if not isinstance(protocol, KeepsEvents):
        raise UserError(
            f"{protocol.name} does not keep on disk what is published; publish at level accepted, or run one that "
            "does, as drift"
        )
    if not protocol.durable:
        raise UserError(
            f"this node keeps events in memory only; say durable = true in [protocol] of its configuration, and name a "
            f"file in [store], so that {protocol.name} stores them"
        )
