"""Events that a node publishes, or its processors make: numbered, checked before anybody sees them, and what can be
promised of them."""

import time
from collections.abc import Callable, Mapping

import msgspec

from driftcast.errors import UserError, WorkError
from driftcast.functions import Fault, ProcessorError, derived_event
from driftcast.live.host.holding import Copies, Holding
from driftcast.live.host.processing import Finished
from driftcast.live.host.runtime import Runtime
from driftcast.live.host.saving import Saved, Saving
from driftcast.live.host.sequence import EventNumbers, Sequence
from driftcast.live.link.frame import MAX_BODY_BYTES
from driftcast.live.record import LOG, Record
from driftcast.matching import Filter, FilterError
from driftcast.model import AccessPolicy, Event, EventId, NodeId, Scalar
from driftcast.protocol import Protocol
from driftcast.protocol.optional import KeepsEvents
from driftcast.trace import rows
from driftcast.wire import Layer

MAX_EVENT_BYTES = MAX_BODY_BYTES - 512
"""What a datagram leaves for an event when a message of any protocol is put around it."""


_decode = msgspec.msgpack.Decoder(Event).decode


class Outgoing:
    """What leaves the applications and the processors of one node."""

    def __init__(
        self,
        node: NodeId,
        numbers: Sequence | EventNumbers,
        runtime: Runtime,
        record: Record,
        saving: Saving,
        sign: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        """What `sign` makes of events is what travels."""
        self._sign = sign
        self._node = node
        self._numbers = numbers
        self._runtime = runtime
        self._record = record
        self._saving = saving
        self.holding = Holding(runtime)

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes,
        lease_s: float,
        access: str | None,
        stored: Saved | None = None,
        copies: Copies | None = None,
    ) -> EventId:
        """Publish an event; a UserError says what is wrong with it. `stored` is called when it is on the disk, and what
        `copies` names when that many neighbors hold it."""
        if stored is not None:
            check_keeps(self._runtime.protocol)
        if copies is not None:
            self.holding.check()
        policy = None if access is None else checked_policy(access)
        id = EventId(self._node, self._numbers.take())
        event = self._sign(checked_event(id, attributes, payload, lease_s, policy))
        self._record.publish(event)
        if not self._runtime.on_publish(self._runtime.now, event):
            raise WorkError("the protocol failed on the event; the node's log has the reason")
        if stored is not None:
            self._saving.on_disk(stored)
        if copies is not None:
            self.holding.wait(id, copies)
        return id

    def processed(self, finished: Finished) -> None:
        """A processor has returned; what it made goes to the protocol that asked for it."""
        error, events = finished.error, []
        try:
            for result in finished.results:
                id = EventId(self._node, self._numbers.take())
                events.append(self._sign(derived_event(finished.processor, finished.inputs, result, id, time.time())))
        except ProcessorError as problem:
            error, events = problem.told, []
        except UserError as problem:
            error, events = f"{Fault.RESULT}: {problem}", []
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
