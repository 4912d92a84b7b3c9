"""Publishing: events of applications and results of processors are numbered, checked, signed and given to the protocol.

A publisher may ask for a delivery guarantee (docs/guarantees.md): that its event is stored, or replicated to neighbors.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from carrycast.core.functions import Fault, ProcessorError, make_derived_event
from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import FOREVER_S, AccessPolicy, Event, EventId, NodeId, Scalar
from carrycast.core.protocol import AcknowledgesReplicas, KeepsEvents, Protocol
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.link import MAX_BODY_BYTES
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime.backpressure import Backpressure
from carrycast.node.runtime.processing import ProcessorOutcome
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.storage import GroupCommit, OnCommitted, Retention, SequenceNumbers, UnpredictableSequenceNumbers
from carrycast.trace import processor_error

EVENT_OVERHEAD_BYTES = 100
"""The size of an event without its payload, approximately."""
MAX_EVENT_BYTES = MAX_BODY_BYTES - 512
"""The longest event: it fits in a datagram, with the message of any protocol around it."""
MAX_WAITING = 10_000
"""The most events whose publishers wait for copies."""


_decode = msgspec.msgpack.Decoder(Event).decode


Sign: TypeAlias = Callable[[Sequence[Event]], Sequence[Event | UserError]]
"""Signs events; a UserError in place of an event that this node may not publish."""


class RequiredCopies(NamedTuple):
    """The number of neighbors that are to hold an event, how long the publisher waits, and a callback with the number
    of holders at the end."""

    number: int
    patience_s: float
    then: Callable[[int], None]


class PublicationRequest(NamedTuple):
    """An event that an application publishes, and the delivery guarantee that it asks for."""

    attributes: Mapping[str, Scalar]
    payload: bytes
    lease_s: float
    access: str | None
    on_stored: OnCommitted | None = None
    """Called when the event is on the disk."""
    copies: RequiredCopies | None = None
    """How many neighbors are to hold the event, and what is called then."""

    @property
    def is_stored(self) -> bool:
        """Whether the event is to be kept until its lease ends, where the protocol keeps events on disk."""
        return self.on_stored is not None


class _Wait(NamedTuple):
    copies: RequiredCopies
    holders: dict[NodeId, None]
    timer: asyncio.TimerHandle


class ReplicationAcknowledgements:
    """The events of one node whose publishers wait for copies."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._waits: dict[EventId, _Wait] = {}

    def check(self) -> None:
        """Raise a UserError if the protocol does not acknowledge replicas, a WorkError if too many publishers wait."""
        protocol = self._runtime.protocol
        if not isinstance(protocol, AcknowledgesReplicas):
            raise UserError(f"{protocol.name} does not know who holds an event; publish at level accepted or stored")
        if len(self._waits) >= MAX_WAITING:
            raise WorkError(f"{MAX_WAITING} publishers wait for copies already; try again")

    def wait(self, event: EventId, copies: RequiredCopies) -> None:
        """Wait for copies of an event that has just been published."""
        timer = self._loop.call_later(copies.patience_s, self._end, event)
        self._waits[event] = _Wait(copies, {}, timer)
        self._runtime.on_await_replicas(self._runtime.now, event, copies.number)

    def on_held(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor holds an event."""
        wait = self._waits.get(event)
        if wait is not None:
            wait.holders[neighbor] = None
            if len(wait.holders) >= wait.copies.number:
                wait.timer.cancel()
                self._end(event)

    def close(self) -> None:
        """Stop waiting: the node stops, and no callback is called any more."""
        for wait in self._waits.values():
            wait.timer.cancel()
        self._waits.clear()

    def _end(self, event: EventId) -> None:
        wait = self._waits.pop(event)
        wait.copies.then(len(wait.holders))


class EventPublisher:
    """Publishes the events of the applications and of the processors of one node."""

    def __init__(
        self,
        node: NodeId,
        numbers: SequenceNumbers | UnpredictableSequenceNumbers,
        runtime: Runtime,
        recorder: NodeRecorder,
        group_commit: GroupCommit,
        sign: Sign = lambda events: events,
    ) -> None:
        self._sign = sign
        self._node = node
        self._numbers = numbers
        self._runtime = runtime
        self._recorder = recorder
        self._group_commit = group_commit
        self.replication = ReplicationAcknowledgements(runtime)
        self._backpressure = Backpressure(runtime)
        self.retention = Retention(runtime.protocol, recorder, group_commit)

    def is_busy(self, more: int) -> bool:
        """Whether links or neighbors cannot keep up with the published events, and `more` events besides."""
        return self._runtime.is_busy or self._backpressure.is_behind(more)

    def on_held(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor has acknowledged that it holds an event."""
        self.replication.on_held(event, neighbor)
        self._backpressure.on_held(event)

    def publish(self, publication: PublicationRequest) -> EventId:
        """Publish an event; a UserError or a WorkError says why it is rejected."""
        [found] = self.publish_all([publication])
        if isinstance(found, EventId):
            return found
        raise found

    def publish_all(self, publications: Sequence[PublicationRequest]) -> list[EventId | UserError | WorkError]:
        """Publish several events at once, with one signature; for each its id, or why it is rejected."""
        prepared = [self._prepare(publication) for publication in publications]
        signed = iter(self._sign([event for event in prepared if isinstance(event, Event)]))
        ready = [next(signed) if isinstance(event, Event) else event for event in prepared]
        return [self._publish(event, publication) for event, publication in zip(ready, publications, strict=True)]

    def _prepare(self, publication: PublicationRequest) -> Event | UserError | WorkError:
        try:
            if publication.on_stored is not None:
                check_stores_events(self._runtime.protocol)
            if publication.copies is not None:
                self.replication.check()
            policy = None if publication.access is None else parse_access_policy(publication.access)
            id = EventId(self._node, self._numbers.take())
            lease_s, log = publication.lease_s, self.retention.log
            if lease_s == FOREVER_S and log is not None and publication.is_stored:
                # The guarantee needs an end: for an event without a lease, the longest retention of the protocol.
                lease_s = log.longest_s
            return make_event(id, publication.attributes, publication.payload, lease_s, policy)
        except (UserError, WorkError) as error:
            return error

    def _publish(
        self, event: Event | UserError | WorkError, publication: PublicationRequest
    ) -> EventId | UserError | WorkError:
        if not isinstance(event, Event):
            return event
        # Checked only now: a signed event is longer, and the events before it in the batch have taken room.
        stored = publication.is_stored and self.retention.log is not None
        error = self.retention.check(event) if stored else None
        if error is not None:
            self._recorder.drop(Layer.DISSEMINATION, "not_stored")
            return error
        self._recorder.publish(event)
        if not self._give_to_protocol(event, stored):
            return WorkError("the protocol failed on the event; the node's log has the reason")
        if publication.on_stored is not None:
            self._group_commit.when_synced(publication.on_stored)
        if publication.copies is None:
            self._backpressure.on_published(event.id, len(event.payload) + EVENT_OVERHEAD_BYTES)
        else:
            self.replication.wait(event.id, publication.copies)
        return event.id

    def _give_to_protocol(self, event: Event, stored: bool) -> bool:
        """Pass an event to the protocol; False if its handler raised."""
        runtime, log = self._runtime, self.retention.log
        if stored and log is not None:
            log.guarantee(event.id)
            done = runtime.on_publish(runtime.now, event)
            log.guarantee(None)
        else:
            done = runtime.on_publish(runtime.now, event)
        if done:
            self.retention.on_published(event)
        return done

    def on_processed(self, outcome: ProcessorOutcome) -> None:
        """A processor has returned; its results go to the protocol that ran it."""
        error, events = outcome.error, list[Event]()
        try:
            for result in outcome.results:
                id = EventId(self._node, self._numbers.take())
                events.append(make_derived_event(outcome.processor, outcome.inputs, result, id, time.time()))
        except ProcessorError as problem:
            error, events = problem.report, []
        signed = self._sign(events)
        events = [event for event in signed if isinstance(event, Event)]
        problems = [problem for problem in signed if isinstance(problem, UserError)]
        if problems:
            error, events = f"{Fault.RESULT}: {problems[0]}", []
        if error:
            LOG.warning("processor %s: %s", outcome.processor, error)
            self._recorder.note(Layer.DISSEMINATION, processor_error(outcome.inputs, error))
        for event in events:
            self._recorder.publish(event, outcome.processor)
        self._runtime.on_processed(self._runtime.now, outcome.token, outcome.state, events, outcome.cost_s, error)


def make_event(
    id: EventId, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, policy: AccessPolicy | None
) -> Event:
    """Make an event that every other node accepts; a UserError if these values are not valid."""
    try:
        encoded = msgspec.msgpack.encode(Event(id, dict(attributes), payload, time.time(), lease_s, policy))
        if len(encoded) > MAX_EVENT_BYTES:
            raise ValueError(f"it has {len(encoded)} bytes, and at most {MAX_EVENT_BYTES} fit in a datagram")
        # Decoding checks types and bounds, as every receiver does.
        return _decode(encoded)
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise UserError(f"event: {error}") from None


def parse_access_policy(access: str) -> AccessPolicy:
    """Parse the access policy of an event into canonical form; a UserError says what is wrong."""
    try:
        return AccessPolicy(Filter(access).text)
    except FilterError as error:
        raise UserError(f"access: {error}") from None


def check_stores_events(protocol: Protocol) -> None:
    """Raise a UserError if a protocol does not keep published events on disk."""
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
