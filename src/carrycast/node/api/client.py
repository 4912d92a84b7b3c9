"""A client of a node on the same machine, for plain synchronous Python.

with connect("node.sock") as client:
    client.publish({"road": "A1", "speed": 31})
    for event in client.subscribe("speed > 30"):
        print(event.attributes)
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import msgspec

from carrycast.core.model import Event, EventId, Position, ProcessorId, Scalar, SubscriptionId, Velocity
from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.arguments import (
    AddressLike,
    FilterLike,
    Payload,
    attributes_and_payload,
    filter_text,
    plain_address,
    plain_number,
    plain_pair,
    publish_request,
)
from carrycast.node.api.client_core import (
    REPLICATION_S,
    RESPONSE_S,
    Acknowledgeable,
    ClientCore,
    Delivery,
    HistoryListener,
    PendingRequest,
    SubscriptionState,
    as_error,
    publish_patience_s,
    published_id,
)
from carrycast.node.api.connection import Connection
from carrycast.node.api.messages import (
    AcknowledgeRequest,
    AcknowledgeResponse,
    AdvertiseRequest,
    AdvertiseResponse,
    AnyResponse,
    ApiRequest,
    Busy,
    CommandRequest,
    CommandResponse,
    Level,
    MoveRequest,
    MoveResponse,
    PublishRequest,
    PublishResponse,
    RequestClosed,
    RetrieveRequest,
    Status,
    StatusRequest,
    UnsubscribeRequest,
    UnsubscribeResponse,
    WatchRequest,
    WatchResponse,
)

__all__ = ["Client", "Deliveries", "Delivery", "ConnectionLostError", "connect"]

RETRY_S = 0.05
MAX_PIPELINED = 256
"""Publications without a response. Their responses are short and fit in the buffer of any socket, so a node never waits
for a client that is still sending."""

R = TypeVar("R", bound=AnyResponse)


def connect(address: AddressLike, patience_s: float = 0.0) -> "Client":
    """A client of the node whose control channel is at `address`: the path of its socket, or `127.0.0.1:port`.

    A node that was just started needs a moment; the client tries to connect for `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return Client(address)
        except WorkError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_S)


class Client:
    """A connection to a node. It belongs to one thread; each thread may have a client of its own."""

    def __init__(self, address: AddressLike) -> None:
        self._core = ClientCore(plain_address(address))
        self._callbacks: dict[Deliveries, Callable[[Event], object]] = {}
        self._connection = Connection(self._core.address)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; subscriptions without a name end."""
        self._connection.close()

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: Payload = b"",
        lease_s: float | None = None,
        access: FilterLike | None = None,
        level: Level = "accepted",
        copies: int = 1,
        patience_s: float = REPLICATION_S,
        busy: Busy = "wait",
    ) -> EventId:
        """Publish an event; its id, when the node has it (`accepted`), has it on its disk (`stored`), or when `copies`
        neighbors hold it too (`held`): a WorkError if they do not in time, though it stays published. A busy node is
        waited for, or refuses (a WorkError). A payload that is a `str` is encoded as UTF-8."""
        id = self._core.next_id()
        request = publish_request(id, attributes, payload, lease_s, access, level, copies, patience_s, busy)
        return self._published(request, self._start(request, PublishResponse))

    def publish_all(
        self,
        events: Iterable[tuple[Mapping[str, Scalar], Payload]],
        lease_s: float | None = None,
        access: FilterLike | None = None,
        level: Level = "accepted",
        copies: int = 1,
        patience_s: float = REPLICATION_S,
    ) -> Iterator[EventId]:
        """Publish many events, each with its attributes and payload; their ids, in order. Requests are pipelined: the
        next ones are sent before the node has responded to the last."""
        sent: deque[tuple[PublishRequest, PendingRequest[PublishResponse]]] = deque()
        try:
            for pair in events:
                attributes, payload = attributes_and_payload(pair)
                id = self._core.next_id()
                request = publish_request(id, attributes, payload, lease_s, access, level, copies, patience_s)
                sent.append((request, self._start(request, PublishResponse)))
                while len(sent) >= MAX_PIPELINED:
                    yield self._published(*sent.popleft())
            while sent:
                yield self._published(*sent.popleft())
        finally:
            for _, pending in sent:
                self._core.abandon(pending)

    def _published(self, request: PublishRequest, pending: PendingRequest[PublishResponse]) -> EventId:
        return published_id(request, self._wait(pending, publish_patience_s(request)))

    def subscribe(
        self,
        filter: FilterLike = "",
        name: str | None = None,
        lease_s: float | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: Payload = b"",
        history: bool = False,
        on_history: HistoryListener | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> "Deliveries":
        """Subscribe; the events come by iterating. With a name the subscription outlives this connection.

        With `on_event`, `run` calls that function for each event instead. As a context manager (`with
        client.subscribe(...) as events`) the subscription ends with the block, unless it has a name.

        With a processor the filter selects its inputs, `state` is its first state, and its results are delivered. With
        history, stored events from before are delivered too; `Deliveries.history_complete` and `on_history`, called
        while events are taken, tell whether they are complete. Events of a named subscription are delivered again until
        they are acknowledged, which iterating does when it is asked for the next event.
        """
        subscription = self._core.subscribe(filter, name, lease_s, attributes, history, on_history, processor, state)
        pending, line = self._core.start_subscription(subscription)
        self._connection.send(line)
        deliveries = Deliveries(self, subscription, self._wait(pending).subscription)
        if on_event is not None:
            self._callbacks[deliveries] = on_event
        return deliveries

    def run(self, timeout_s: float | None = None) -> int:
        """Call the `on_event` functions of the subscriptions as events arrive, until `timeout_s` has passed or all of
        these subscriptions have ended. Returns the number of events.

        Events of a named subscription are acknowledged after their function has returned. A function that raises ends
        `run`; its event is not acknowledged, and is delivered again over the next connection.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + plain_number(timeout_s, "timeout_s")
        count = 0
        while self._callbacks:
            for deliveries, on_event in list(self._callbacks.items()):
                while (event := deliveries.next_event(0.0)) is not None:
                    on_event(event)
                    count += 1
                    deliveries.settle()
                if deliveries.ended:
                    self._callbacks.pop(deliveries, None)
            if self._callbacks and not self._receive(deadline):
                break
        return count

    def acknowledge(self, subscription: SubscriptionId, positions: Sequence[int], wait: bool = True) -> None:
        """Acknowledge deliveries of a named subscription. With `wait` they are never delivered again once this returns,
        whatever crashes then."""
        self._acknowledge(self._core.acknowledge_positions(subscription, positions), wait)

    def _acknowledge(self, requests: Iterable[AcknowledgeRequest], wait: bool) -> None:
        for request in requests:
            if wait:
                self._ask(request, AcknowledgeResponse)
            else:
                self._connection.send(self._core.send_and_forget(request))

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """End a subscription, named or not."""
        self._ask(UnsubscribeRequest(id=self._core.next_id(), subscription=subscription), UnsubscribeResponse)
        state = self._core.find(subscription)
        if state is not None:
            self._core.remove(state)
            state.end()

    def move(self, position: tuple[float, float] | None, velocity: tuple[float, float] = (0.0, 0.0)) -> None:
        """Set the node's position, in meters, and its velocity, in meters per second; None if it is unknown."""
        try:
            there = msgspec.convert(plain_pair(position), Position | None)
            moving = msgspec.convert(plain_pair(velocity), Velocity)
        except msgspec.ValidationError as error:
            raise UserError(f"position: {error}") from None
        self._ask(MoveRequest(id=self._core.next_id(), position=there, velocity=moving), MoveResponse)

    def status(self) -> Status:
        """The status of the node."""
        return self._ask(StatusRequest(id=self._core.next_id()), Status)

    def watch(self, after: int | None = None) -> WatchResponse:
        """Read the node's event feed after a number; without one it begins now."""
        return self._ask(WatchRequest(id=self._core.next_id(), after=after), WatchResponse)

    def advertise(self, filter: FilterLike = "", stored: bool = False) -> None:
        """Advertise events that will be published, or (`stored`) that the node stores, while this connection lasts."""
        request = AdvertiseRequest(id=self._core.next_id(), filter=filter_text(filter), stored=stored)
        self._ask(request, AdvertiseResponse)

    def request(self, filter: FilterLike = "", patience_s: float = 10.0) -> tuple[list[Event], bool]:
        """The stored events of a filter, and whether they are complete."""
        plain_s = plain_number(patience_s, "patience_s")
        request = RetrieveRequest(id=self._core.next_id(), filter=filter_text(filter), patience_s=plain_s)
        pending = self._start(request, RequestClosed)
        events = self._core.read_retrieved(request)
        return events, self._wait(pending, RESPONSE_S + plain_s).complete

    def command(
        self, application: str, verb: str, body: Mapping[str, object] | None = None, patience_s: float = 0.0
    ) -> dict[str, object]:
        """Send a command to an application of the node; its reply. A UserError if it refuses."""
        request = CommandRequest(id=self._core.next_id(), application=application, verb=verb, body=dict(body or {}))
        reply = self._ask(request, CommandResponse, RESPONSE_S + patience_s).body
        if "error" in reply and "clashes" not in reply:
            raise UserError(str(reply["error"]))
        return reply

    def next_delivery(self, subscription: SubscriptionId, timeout_s: float | None = None) -> Delivery | None:
        """The next delivery of a subscription; None if none arrives in time or ever."""
        state = self._core.find(subscription)
        return None if state is None else self._next_delivery(state, timeout_s)

    def _next_delivery(self, state: SubscriptionState, timeout_s: float | None) -> Delivery | None:
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while (delivery := state.take()) is None:
            rejection, self._core.rejection = self._core.rejection, None
            if rejection is not None:
                raise WorkError(f"the node at {self._core.address} hung up: {rejection.message}")
            if state.has_ended or not self._receive(deadline):
                return None
        return delivery

    def _ask(self, request: ApiRequest, expected: type[R], patience_s: float = RESPONSE_S) -> R:
        return self._wait(self._start(request, expected), patience_s)

    def _start(self, request: ApiRequest, expected: type[R]) -> PendingRequest[R]:
        pending, line = self._core.start(request, expected)
        self._connection.send(line)
        return pending

    def _wait(self, pending: PendingRequest[R], patience_s: float = RESPONSE_S) -> R:
        deadline = time.monotonic() + patience_s
        try:
            while not pending.is_done:
                rejection = self._core.rejection
                if rejection is not None and rejection.id == 0:
                    raise as_error(rejection)
                if not self._receive(deadline):
                    raise WorkError(f"the node at {self._core.address} does not answer")
            return pending.result()
        finally:
            self._core.abandon(pending)

    def _receive(self, deadline: float) -> bool:
        """Handle the next line; False at the deadline."""
        line = self._connection.receive(deadline)
        if line is not None:
            self._core.receive(line)
        return line is not None


class Deliveries(Iterator[Event]):
    """The events of one subscription, as they arrive. Iterating waits until its lease expires; the methods have a
    limit.

    With a name, iterating acknowledges the events before the one it is asked for: an event during which a program was
    killed is delivered again. Events taken by `next_event` or `next_delivery` are acknowledged by `acknowledge`.

    Leaving its context (`with`) ends a subscription without a name. One with a name stays; what was taken is
    acknowledged, unless an error ends the block.
    """

    def __init__(self, client: Client, state: SubscriptionState, subscription: SubscriptionId) -> None:
        self.subscription = subscription
        self._client = client
        self._state = state

    def __enter__(self) -> "Deliveries":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A lost connection has ended the subscription, and must not hide the error that ends the block.
        with suppress(ConnectionLostError):
            if self._state.request.name is None:
                self.close()
            elif error is None and not self.ended:
                self.acknowledge()

    def __next__(self) -> Event:
        self.settle()
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    @property
    def ended(self) -> bool:
        """Whether its lease has expired, and no more events will arrive than are here already."""
        return self._state.has_ended

    @property
    def history_complete(self) -> bool | None:
        """Whether all stored events from before have been taken; False if some are missing, None if it is not known
        yet or was not requested (`history`). A False becomes True if the rest arrives later."""
        self._state.has_event()
        return self._state.history_complete

    @property
    def missed(self) -> int:
        """Events that were dropped because too many were not taken; of a named subscription none."""
        return self._state.missed

    @property
    def gaps(self) -> list[str]:
        """Each time that results did not continue where they were, the reason: `processor_restarted` if the processor
        was restarted without its state because its broker was lost, `node_restarted` if the node was."""
        return list(self._state.gaps)

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None if none arrives in time or ever (`ended`)."""
        delivery = self.next_delivery(timeout_s)
        return None if delivery is None else delivery.event

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """The next event and whether it may have been delivered before; None if none arrives in time or ever."""
        return self._client._next_delivery(self._state, timeout_s)

    def acknowledge(self, *events: Acknowledgeable, wait: bool = True) -> None:
        """Acknowledge these events, or all that were taken; see `Client.acknowledge`."""
        self._client._acknowledge(self._client._core.acknowledge(self._state, events), wait)

    def settle(self) -> None:
        """Acknowledge what was taken so far if it is a full batch or nothing more has arrived; without waiting."""
        if self._state.should_acknowledge(self._client._connection.has_line):
            self.acknowledge(wait=False)

    def close(self) -> None:
        """End the subscription."""
        if not self.ended:
            self._client.unsubscribe(self.subscription)
