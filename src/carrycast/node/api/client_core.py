"""The client side of the client API without I/O, shared by the synchronous and the asyncio client.

`ClientCore` makes requests, matches responses to them, and holds the state of every subscription: its buffered events,
what is not acknowledged, and what has to be asked again over a new connection. A client only moves lines between a
`ClientCore` and its connection.
"""

import reprlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from carrycast.core.model import FOREVER_S, Event, EventId, ProcessorId, Scalar, SubscriptionId
from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.arguments import FilterLike, Payload, filter_text, plain_attributes, plain_bytes, plain_lease
from carrycast.node.api.messages import (
    MAX_LINE_BYTES,
    MAX_POSITIONS,
    AcknowledgeRequest,
    AnyResponse,
    ApiRequest,
    DeliveryNotification,
    ErrorResponse,
    GapNotification,
    PublishRequest,
    PublishResponse,
    RequestClosed,
    RetrievedEvent,
    RetrieveRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeResponse,
)

RESPONSE_S = 30.0
"""A node that has not responded by then hangs: a response needs no network."""
REPLICATION_S = 10.0
"""How long to wait for neighbors to hold an event: a few beacons and transfers."""
ACK_BATCH = 256
"""Events that are acknowledged together, if they arrive fast. Half of the node's prefetch limit, so that the node never
waits for an acknowledgement that the client delays."""
MAX_BUFFERED = 10_000
"""Events of a subscription that are buffered in a client. The node sends fewer events of a named subscription at a
time; of another one, events beyond this limit are missed, and counted."""

_decoder: msgspec.json.Decoder[AnyResponse] = msgspec.json.Decoder(AnyResponse)
_encode = msgspec.json.Encoder().encode
R = TypeVar("R", bound=AnyResponse)


class Delivery(NamedTuple):
    """An event of a subscription. One of a named subscription has a position, to be acknowledged; `again` if it may
    have been delivered before."""

    event: Event
    position: int | None = None
    again: bool = False


class HistoryEnd(NamedTuple):
    """Follows the last event of a subscription's history."""

    complete: bool


HistoryListener: TypeAlias = Callable[[bool], None]
"""Called after the last event of a history was taken, with whether it is complete; again if the rest arrives later."""
Acknowledgeable: TypeAlias = EventId | Event | Delivery


class PendingRequest(Generic[R]):
    """A request without a response yet. `on_done` is called when `result` has one, or an error."""

    def __init__(self, request: ApiRequest, expected: type[R]) -> None:
        self.request = request
        self.on_done: Callable[[], None] = _do_nothing
        self._expected = expected
        self._result: R | Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is a response or an error."""
        return self._result is not None

    def finish(self, result: AnyResponse | Exception) -> None:
        """The response has arrived, or there will be none."""
        if isinstance(result, ErrorResponse):
            self._result = as_error(result)
        elif isinstance(result, self._expected | Exception):
            self._result = result
        else:
            self._result = WorkError("the peer is no node of carrycast")
        self.on_done()

    def result(self) -> R:
        """The response; or the error is raised: a UserError, a WorkError, or a ConnectionLostError."""
        assert self._result is not None
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@dataclass(slots=True, eq=False)
class SubscriptionState:
    """A subscription of a client, over as many connections as it takes."""

    request: SubscribeRequest
    on_history: HistoryListener | None = None
    id: SubscriptionId | None = None
    """While the node knows the subscription over the present connection."""
    buffer: deque[Delivery | HistoryEnd] = field(default_factory=deque)
    missed: int = 0
    """Events for which the buffer had no room."""
    gaps: list[str] = field(default_factory=list)
    """Each time that results did not continue where they were, the reason."""
    history_complete: bool | None = None
    """Whether all of the history was taken; None until its end."""
    has_ended: bool = False
    """Whether no more events will arrive than are buffered."""
    has_expired: bool = False
    """Whether it ended with its lease."""
    error: Exception | None = None
    """Why the node rejected it."""
    on_change: Callable[[], None] = field(default_factory=lambda: _do_nothing)
    """Called when an event arrives, when the node confirms the subscription, and when it ends."""
    unacknowledged: dict[EventId, int] = field(default_factory=dict)
    """The positions of the events that were taken over the present connection."""

    def take(self) -> Delivery | None:
        """The next buffered event, if there is one."""
        while self.buffer:
            first = self.buffer.popleft()
            if isinstance(first, Delivery):
                if first.position is not None:
                    self.unacknowledged[first.event.id] = first.position
                return first
            self._end_history(first)
        return None

    def has_event(self) -> bool:
        """Whether an event is buffered."""
        while self.buffer and isinstance(first := self.buffer[0], HistoryEnd):
            self.buffer.popleft()
            self._end_history(first)
        return bool(self.buffer)

    def should_acknowledge(self, more_received: bool = False) -> bool:
        """Whether iterating should acknowledge now: for a full batch, and before it waits for the connection."""
        if self.has_ended:
            return False
        return len(self.unacknowledged) >= ACK_BATCH or not (self.has_event() or more_received)

    def take_positions(self, events: Sequence[Acknowledgeable]) -> list[int]:
        """The positions of these events, or of all that were taken, that are not acknowledged yet."""
        if self.has_expired and self.unacknowledged:
            raise UserError("the subscription has ended with its lease, and so has what it is to acknowledge")
        ids = [event_id(event) for event in events] or tuple(self.unacknowledged)
        return [self.unacknowledged.pop(id) for id in ids if id in self.unacknowledged]

    def end(self, error: Exception | None = None, expired: bool = False) -> None:
        """No more events will arrive."""
        self.has_ended, self.has_expired, self.error = True, expired, error
        self.on_change()

    def on_delivery(self, delivery: Delivery) -> None:
        """An event has arrived."""
        if delivery.position is None and len(self.buffer) >= MAX_BUFFERED:
            self.missed += 1
        else:
            self.buffer.append(delivery)
        self.on_change()

    def on_disconnected(self) -> None:
        """Unacknowledged events of a named subscription are delivered again over the next connection."""
        self.id = None
        self.unacknowledged.clear()
        self.history_complete = None
        if self.request.name is not None:
            self.buffer.clear()

    def _end_history(self, end: HistoryEnd) -> None:
        # Events for which the buffer had no room are missing too.
        self.history_complete = end.complete and not self.missed
        if self.on_history is not None:
            self.on_history(self.history_complete)


class ClientCore:
    """The requests and subscriptions of one client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.subscriptions: dict[SubscriptionState, None] = {}
        self.rejection: ErrorResponse | None = None
        """Why the node closes the connection, or an acknowledgement failed that nobody waits for."""
        self._last_id = 0
        self._pending: dict[int, PendingRequest[AnyResponse]] = {}
        self._subscribing: dict[int, SubscriptionState] = {}
        """By the id of the request that the node has not answered yet."""
        self._by_id: dict[SubscriptionId, SubscriptionState] = {}
        self._acknowledging: dict[int, SubscriptionState] = {}
        """By the id of the acknowledgement that nobody waits for."""
        self._retrieved: dict[int, list[Event]] = {}
        """Events of open requests for stored events."""

    def next_id(self) -> int:
        """The id of the next request."""
        self._last_id += 1
        return self._last_id

    # Requests.

    def start(self, request: ApiRequest, expected: type[R]) -> tuple[PendingRequest[R], bytes]:
        """A request whose response is awaited, and its line."""
        line = encode_line(request)
        pending = PendingRequest(request, expected)
        self._pending[request.id] = pending  # type: ignore[assignment]  # `finish` checks the type of the response
        if isinstance(request, RetrieveRequest):
            self._retrieved[request.id] = []
        return pending, line

    def abandon(self, pending: PendingRequest[R]) -> None:
        """Nobody waits for the response any more."""
        self._pending.pop(pending.request.id, None)
        self._retrieved.pop(pending.request.id, None)

    def read_retrieved(self, request: ApiRequest) -> list[Event]:
        """The stored events that a request has returned so far."""
        return self._retrieved[request.id]

    # Subscriptions.

    def subscribe(
        self,
        filter: FilterLike,
        name: str | None,
        lease_s: float | None,
        attributes: Mapping[str, Scalar] | None,
        history: bool,
        on_history: HistoryListener | None,
        processor: ProcessorId | None = None,
        state: Payload = b"",
    ) -> SubscriptionState:
        """A new subscription; `start_subscription` makes its request."""
        request = SubscribeRequest(
            filter=filter_text(filter),
            name=name,
            lease_s=plain_lease(lease_s),
            attributes=plain_attributes(attributes or {}),
            processor=processor,
            state=plain_bytes(state, "state"),
            history=history,
            acknowledge=name is not None,
        )
        subscription = SubscriptionState(request, on_history)
        self.subscriptions[subscription] = None
        return subscription

    def start_subscription(self, subscription: SubscriptionState) -> tuple[PendingRequest[SubscribeResponse], bytes]:
        """The request of a subscription, over a new connection too, and its line."""
        request = msgspec.structs.replace(subscription.request, id=self.next_id())
        self._subscribing[request.id] = subscription
        return self.start(request, SubscribeResponse)

    def find(self, id: SubscriptionId) -> SubscriptionState | None:
        """The subscription of that id, if the node knows it over this connection."""
        return self._by_id.get(id)

    def remove(self, subscription: SubscriptionState) -> None:
        """The client ends a subscription."""
        self.subscriptions.pop(subscription, None)
        if subscription.id is not None:
            self._by_id.pop(subscription.id, None)

    def acknowledge(
        self, subscription: SubscriptionState, events: Sequence[Acknowledgeable] = ()
    ) -> Iterator[AcknowledgeRequest]:
        """Requests that acknowledge these events, or all that were taken."""
        positions = subscription.take_positions(events)
        if subscription.id is not None:
            yield from self.acknowledge_positions(subscription.id, positions)

    def acknowledge_positions(self, id: SubscriptionId, positions: Sequence[int]) -> Iterator[AcknowledgeRequest]:
        """Requests that acknowledge the events at these positions."""
        for first in range(0, len(positions), MAX_POSITIONS):
            part = list(positions[first : first + MAX_POSITIONS])
            yield AcknowledgeRequest(id=self.next_id(), subscription=id, positions=part)

    def send_and_forget(self, request: AcknowledgeRequest) -> bytes:
        """The line of an acknowledgement whose response nobody awaits. If it is lost the events are delivered again."""
        subscription = self._by_id.get(request.subscription)
        if subscription is not None:
            self._acknowledging[request.id] = subscription
        return encode_line(request)

    # Inputs from the connection.

    def receive(self, line: bytes) -> None:
        """Handle a response or a notification; a WorkError if it is none of carrycast."""
        try:
            message = _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise WorkError(f"what answers at {self.address} is no node of carrycast: {error}") from None
        if isinstance(message, DeliveryNotification):
            subscription = self._by_id.get(message.subscription)
            if subscription is not None:
                subscription.on_delivery(Delivery(event_of(message), message.position, message.again))
        elif isinstance(message, RetrievedEvent):
            if message.id in self._retrieved:
                self._retrieved[message.id].append(event_of(message))
        elif not self._notify(message):
            self._respond(message)

    def _notify(self, message: AnyResponse) -> bool:
        """Handle a notification of a subscription; False if it is none."""
        if (
            not isinstance(message, GapNotification | RequestClosed | UnsubscribeResponse)
            or message.subscription is None
        ):
            return False
        subscription = self._by_id.get(message.subscription)
        if subscription is None:
            return True
        if isinstance(message, GapNotification):
            subscription.gaps.append(message.reason)
        elif isinstance(message, RequestClosed):
            subscription.buffer.append(HistoryEnd(message.complete))
            subscription.on_change()
        else:
            self.remove(subscription)
            subscription.id = None
            subscription.end(expired=True)
        return True

    def _respond(self, message: AnyResponse) -> None:
        subscription = self._subscribing.pop(message.id, None)
        if subscription is not None and subscription in self.subscriptions:
            if isinstance(message, SubscribeResponse):
                subscription.id = message.subscription
                self._by_id[message.subscription] = subscription
                subscription.on_change()
            elif isinstance(message, ErrorResponse):
                self.remove(subscription)
                subscription.end(as_error(message))
        pending = self._pending.pop(message.id, None)
        acknowledging = self._acknowledging.pop(message.id, None)
        if pending is not None:
            pending.finish(message)
        elif isinstance(message, ErrorResponse) and (
            message.id == 0 or (acknowledging is not None and not acknowledging.has_ended)
        ):
            self.rejection = message

    def on_connected(self) -> list[bytes]:
        """The lines that subscribe again over a new connection."""
        self.rejection = None
        return [self.start_subscription(subscription)[1] for subscription in self.subscriptions]

    def on_disconnected(self) -> None:
        """The connection was lost: whether the node has served the pending requests is unknown."""
        why = "is gone, and has not answered" if self.rejection is None else f"hung up: {self.rejection.message}"
        pending, self._pending = self._pending, {}
        self._subscribing.clear()
        self._by_id.clear()
        self._acknowledging.clear()
        for one in pending.values():
            one.finish(ConnectionLostError(f"the node at {self.address} {why}"))
        for subscription in self.subscriptions:
            subscription.on_disconnected()
            subscription.on_change()

    def close(self) -> None:
        """The client is closed: all subscriptions end."""
        for subscription in self.subscriptions:
            subscription.end()
        self.subscriptions.clear()


def encode_line(request: ApiRequest) -> bytes:
    """A request as a line; a UserError if it is too long."""
    line = _encode(request) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise UserError(f"at most {MAX_LINE_BYTES} bytes fit through the control channel, not {len(line)}")
    return line


def as_error(response: ErrorResponse) -> UserError | WorkError:
    """The error that a failed request raises."""
    return UserError(response.message) if response.wrong_use else WorkError(response.message)


def publish_patience_s(request: PublishRequest) -> float:
    """How long to wait for the response to a publication."""
    return RESPONSE_S + (request.patience_s if request.level == "held" else 0.0)


def published_id(request: PublishRequest, response: PublishResponse) -> EventId:
    """The id of the event; a WorkError if fewer neighbors hold it than requested, though it stays published."""
    if request.level == "held" and (response.held or 0) < request.copies:
        raise WorkError(
            f"event {response.event} is stored at its node, and held by {response.held} of {request.copies} neighbors "
            f"after {request.patience_s:g} s"
        )
    return response.event


def event_of(message: DeliveryNotification | RetrievedEvent) -> Event:
    """The event in a message."""
    lease_s = FOREVER_S if message.lease_s is None else message.lease_s
    derived = tuple(message.derived_from) if isinstance(message, DeliveryNotification) else ()
    return Event(message.event, message.attributes, message.payload, message.time_s, lease_s, derived_from=derived)


def event_id(event: Acknowledgeable) -> EventId:
    """The id of what is to be acknowledged: an event, its delivery, or the id itself."""
    if isinstance(event, Delivery):
        return event.event.id
    if isinstance(event, Event):
        return event.id
    if isinstance(event, EventId):
        return event
    raise TypeError(f"to acknowledge an event, give it, its delivery or its id, not {reprlib.repr(event)}")


def _do_nothing() -> None:
    """Until a client sets a callback."""
