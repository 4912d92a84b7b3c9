"""One client of a node, on the server side: its requests are served, its events are sent as fast as it reads them.

Clients are not trusted with the node's memory or time: the length of a line, the number of subscriptions and requests,
and the size of the outbound queue are bounded.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import msgspec

from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.client_publishing import ClientPublisher, error_response
from carrycast.node.api.durable_subscription import Consumer, LocalDelivery
from carrycast.node.api.messages import (
    MAX_LINE_BYTES,
    AcknowledgeRequest,
    AcknowledgeResponse,
    AdvertiseRequest,
    AdvertiseResponse,
    AnyRequest,
    AnyResponse,
    CommandRequest,
    CommandResponse,
    ErrorResponse,
    GapNotification,
    MoveRequest,
    MoveResponse,
    PublishRequest,
    RequestClosed,
    RetrieveRequest,
    StatusRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
    WatchRequest,
    WatchResponse,
    read_request_id,
)
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.api.notifications import delivery_notification, retrieved_event
from carrycast.node.api.outbound_queue import OutboundQueue, QueuedKind
from carrycast.node.api.token import looks_like_http
from carrycast.node.link import InterruptModeration
from carrycast.node.runtime import Cancel
from carrycast.node.storage import OnCommitted

MAX_CLIENT_SUBSCRIPTIONS = 256
MAX_CLIENT_REQUESTS = 64
"""Open requests and commands of a client, and its advertisements."""
MAX_BATCH = 64
"""Events that are published in one batch; then it is checked again whether the node is busy."""
MAX_UNREAD_BYTES = 1 << 16
"""Of responses that a client has not read: no more requests are read until it has."""

MAX_LINGER_S = 60.0
"""A client that has closed its side may still wait for the end of its requests; one that has crashed looks the same."""
LINGER_S = 10.0
"""A client that has closed its side may still read its queued responses."""

_decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)

CHUNK_BYTES = 1 << 16


class LineTooLongError(Exception):
    """A client sent a line of more than MAX_LINE_BYTES."""


async def read_lines(reader: asyncio.StreamReader, transport: asyncio.BaseTransport) -> AsyncIterator[list[bytes]]:
    """Every complete line until the client disconnects; lines that arrived together come together."""
    assert isinstance(transport, asyncio.ReadTransport)
    # Joined, not as a list of chunks: for a line that arrives byte by byte that would take forty times the memory.
    partial_line = bytearray()
    moderation = InterruptModeration()
    more: list[bytes] = []
    while True:
        pause_s = moderation.choose_pause_s(time.monotonic(), len(more))
        try:
            if pause_s:
                transport.pause_reading()
                await asyncio.sleep(pause_s)
                transport.resume_reading()
            chunk = await reader.read(CHUNK_BYTES)
        except ConnectionError:
            return
        if not chunk:
            return
        first, *more = chunk.split(b"\n")
        partial_line += first
        if len(partial_line) > MAX_LINE_BYTES:
            raise LineTooLongError
        if more:
            yield [bytes(partial_line), *more[:-1]]
            partial_line = bytearray(more[-1])


class ClientRequests:
    """The requests for stored events that one client has open. If its queue is full, events are dropped, and the end of
    the request says that it is not complete."""

    def __init__(self, node: NodeInterface, queue: OutboundQueue) -> None:
        self._node = node
        self._queue = queue
        self._open: dict[object, Cancel] = {}
        self._some_closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def request(self, request: RetrieveRequest) -> None:
        """Request stored events; a UserError says what is wrong."""
        key, is_closed, all_sent = object(), False, True
        kind = QueuedKind.STORED

        def on_answer(event: Event, hops: int) -> None:
            nonlocal all_sent
            if not self._queue.enqueue_event(event, kind, partial(retrieved_event, request.id, event, hops)):
                self._node.note_drop("client_slow")
                all_sent = False

        def on_closed(complete: bool) -> None:
            nonlocal is_closed
            is_closed = True
            self._open.pop(key, None)
            self._some_closed.set()
            self._queue.enqueue(partial(RequestClosed, id=request.id, complete=complete and all_sent))

        cancel = self._node.request(request.filter, request.patience_s, on_answer, on_closed)
        # The answers so far are held by this node.
        kind = QueuedKind.REQUESTED
        # A protocol that stores nothing closes the request at once.
        if not is_closed:
            self._open[key] = cancel

    async def wait_closed(self) -> None:
        """Wait until none is open; each ends after its patience."""
        while self._open:
            self._some_closed.clear()
            await self._some_closed.wait()

    def cancel_all(self) -> None:
        """The client has disconnected."""
        for cancel in self._open.values():
            cancel()


class ClientSession:
    """One connection of a client, and its open subscriptions and requests."""

    def __init__(self, node: NodeInterface, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._node = node
        self._reader = reader
        self._writer = writer
        self._queue = OutboundQueue(writer)
        self._subscriptions: dict[SubscriptionId, None] = {}
        self._expired: deque[SubscriptionId] = deque(maxlen=MAX_CLIENT_SUBSCRIPTIONS)
        """Subscriptions whose leases have expired: requests that the client sent before it knew are no mistake."""
        self._open: dict[object, Cancel] = {}
        """Commands without a response yet, advertisements, and the event feed."""
        self._requests = ClientRequests(node, self._queue)
        self._loop = asyncio.get_running_loop()
        self._received_s = self._loop.time()
        self._pending = 0
        """Responses that wait for the disk, without those to publications."""
        self._send = self._queue.send
        self._publisher = ClientPublisher(node, self._send)
        self.silent = True
        """Whether it has not sent anything yet."""
        self._incomplete: set[SubscriptionId] = set()
        """Subscriptions with a history of which events were dropped, because the client does not read."""
        self._feed_version = 0
        """The version of the node's subscriptions that the client knows, if it watches."""

    async def serve(self) -> None:
        """Serve requests until the client disconnects or breaks a limit."""
        try:
            async for lines in read_lines(self._reader, self._writer.transport):
                self.silent = False
                self._received_s = self._loop.time()
                batch: list[PublishRequest] = []
                for line in lines:
                    request = self._decode(line)
                    if isinstance(request, PublishRequest) and self._has_room(len(batch)):
                        batch.append(request)
                        continue
                    # Responses come in the order of the requests.
                    self._publisher.publish(batch)
                    batch = []
                    # A client that sends requests without reading the responses waits here, not in the node's memory.
                    if self._queue.buffered_bytes > MAX_UNREAD_BYTES:
                        await self._queue.drain()
                    if request is None:
                        return
                    await self._serve(request)
                self._publisher.publish(batch)
                if self._queue.unread_bytes > MAX_UNREAD_BYTES:
                    await self._queue.drain()
            # The client has closed its side, and may still read.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._requests.wait_closed(), MAX_LINGER_S)
            if self._queue.is_waiting:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._queue.stored_sent(), LINGER_S)
        except LineTooLongError:
            self._send(ErrorResponse(message=f"a line has at most {MAX_LINE_BYTES} bytes", wrong_use=True))
        except ConnectionError:
            return
        finally:
            for subscription in self._subscriptions:
                self._node.detach(subscription)
            for cancel in self._open.values():
                cancel()
            self._requests.cancel_all()
            self._queue.close()

    def _has_room(self, batch: int) -> bool:
        """Whether one more event may be added to a batch of this size."""
        return batch < MAX_BATCH and not self._node.is_busy(batch)

    @property
    def idle_s(self) -> float:
        """For how long it has sent nothing while nothing was open."""
        pending = self._pending > 0 or self._publisher.pending > 0
        is_active = (
            self._subscriptions
            or self._open
            or len(self._requests)
            or self._queue.unread_bytes
            or self._queue.is_waiting
            or pending
        )
        return 0.0 if is_active else self._loop.time() - self._received_s

    def reject(self, message: str) -> None:
        """Close the connection, with a reason."""
        self._send(ErrorResponse(message=message, wrong_use=False))
        self._queue.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    def _decode(self, line: bytes) -> AnyRequest | ErrorResponse | None:
        """The request in a line, or the error response to it; None if this is a web browser, which was told so."""
        try:
            return _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if looks_like_http(line):
                self._send(ErrorResponse(message="this is no web server", wrong_use=True))
                return None
            return ErrorResponse(id=read_request_id(line), message=f"not understood: {error}", wrong_use=True)

    async def _serve(self, request: AnyRequest | ErrorResponse) -> None:
        if isinstance(request, ErrorResponse):
            self._send(request)
        elif isinstance(request, PublishRequest):
            await self._publisher.publish_when_ready(request)
        else:
            if isinstance(request, RetrieveRequest) or (isinstance(request, SubscribeRequest) and request.history):
                await self._queue.stored_sent()
            response = self._respond(request)
            if response is not None:
                self._send(response)

    def _respond(self, request: AnyRequest) -> AnyResponse | None:
        """The response to a request; None if it comes later."""
        try:
            return self._handle(request)
        except Exception as error:
            return error_response(request, error)

    def _handle(self, request: AnyRequest) -> AnyResponse | None:
        node = self._node
        if isinstance(request, AcknowledgeRequest):
            self._acknowledge(request)
            return None
        if isinstance(request, SubscribeRequest):
            return self._subscribe(request)
        if isinstance(request, UnsubscribeRequest):
            self._check_subscription(request.subscription)
            node.unsubscribe(request.subscription)
            self._subscriptions.pop(request.subscription, None)
            self._incomplete.discard(request.subscription)
            return UnsubscribeResponse(id=request.id)
        if isinstance(request, AdvertiseRequest):
            self._check_open()
            self._open[object()] = node.advertise(request.filter, request.stored)
            return AdvertiseResponse(id=request.id)
        if isinstance(request, RetrieveRequest):
            self._check_open()
            self._requests.request(request)
            return None
        if isinstance(request, CommandRequest):
            self._command(request)
            return None
        if isinstance(request, MoveRequest):
            node.move(request.position, request.velocity)
            return MoveResponse(id=request.id)
        if isinstance(request, WatchRequest):
            return self._watch(request)
        assert isinstance(request, StatusRequest)
        return msgspec.structs.replace(node.status(), id=request.id)

    def _subscribe(self, request: SubscribeRequest) -> SubscribeResponse:
        if len(self._subscriptions) >= MAX_CLIENT_SUBSCRIPTIONS:
            raise UserError(f"a client has at most {MAX_CLIENT_SUBSCRIPTIONS} subscriptions")
        subscription = self._node.subscribe(
            request.filter,
            Consumer(
                partial(self._deliver, request.history),
                request.acknowledge,
                flow=self._queue,
                on_ended=partial(self._on_ended, request.name is not None),
                on_history=self._on_history if request.history else None,
                on_gap=self._on_gap,
            ),
            request.name,
            request.lease_s or FOREVER_S,
            request.attributes,
            request.processor,
            request.state,
            request.history,
        )
        self._subscriptions[subscription] = None
        return SubscribeResponse(id=request.id, subscription=subscription)

    def _acknowledge(self, request: AcknowledgeRequest) -> None:
        self._check_subscription(request.subscription)
        then = self._respond_when_committed(request, lambda: AcknowledgeResponse(id=request.id))
        try:
            self._node.acknowledge(request.subscription, request.positions, then)
        except UserError:
            self._pending -= 1
            raise

    def _respond_when_committed(self, request: AnyRequest, make: Callable[[], AnyResponse]) -> OnCommitted:
        """Respond when the writes of a request are on the disk, or with an error if they are not."""

        def on_committed(error: WorkError | None) -> None:
            failed = None if error is None else ErrorResponse(id=request.id, message=str(error), wrong_use=False)
            self._pending -= 1
            self._send(failed or make())

        self._pending += 1
        return on_committed

    def _check_subscription(self, subscription: SubscriptionId) -> None:
        if subscription not in self._subscriptions and subscription not in self._expired:
            raise UserError(f"this client has no subscription {subscription}")

    def _check_open(self) -> None:
        if len(self._open) + len(self._requests) >= MAX_CLIENT_REQUESTS:
            raise UserError(f"a client has at most {MAX_CLIENT_REQUESTS} requests, commands and advertisements open")

    def _watch(self, request: WatchRequest) -> WatchResponse:
        recorder = self._node.recorder
        feed = recorder.feed
        if WatchRequest not in self._open:
            self._check_open()
            feed.add_watcher()
            self._open[WatchRequest] = feed.remove_watcher
        after = feed.next if request.after is None else request.after
        missed, found, following = feed.read_after(after)
        changed, self._feed_version = self._feed_version != feed.version, feed.version
        return WatchResponse(
            id=request.id,
            time_s=recorder.time_s(),
            next=following,
            missed=missed,
            events=found,
            frames=feed.frames,
            subscriptions=feed.list_subscriptions() if request.after is None or changed else None,
            holds=feed.list_stored_events() if request.after is None else None,
        )

    def _command(self, request: CommandRequest) -> None:
        self._check_open()
        key = object()

        def on_reply(body: bytes) -> None:
            self._open.pop(key, None)
            self._send(CommandResponse(id=request.id, body=msgspec.json.decode(body, type=dict[str, object])))

        # Applications never reply before this call has returned.
        body = msgspec.json.encode(request.body)
        self._open[key] = self._node.command(request.application, request.verb, body, on_reply)

    # Notifications.

    def _deliver(self, history: bool, subscription: SubscriptionId, delivery: LocalDelivery) -> None:
        if delivery.position is not None:
            # The rest of a durable subscription is in the store.
            self._send(delivery_notification(subscription, delivery))
            return
        kind = QueuedKind.STORED if delivery.in_store else QueuedKind.REQUESTED if history else QueuedKind.LIVE
        if not self._queue.enqueue_event(delivery.event, kind, partial(self._notify, subscription, delivery)):
            self._node.note_drop("client_slow")
            self._incomplete.add(subscription)

    def _notify(self, subscription: SubscriptionId, delivery: LocalDelivery) -> AnyResponse | None:
        """None if the client has ended the subscription while the event was queued."""
        return delivery_notification(subscription, delivery) if subscription in self._subscriptions else None

    def _on_history(self, subscription: SubscriptionId, complete: bool) -> None:
        def make() -> AnyResponse | None:
            if subscription not in self._subscriptions:
                return None
            return RequestClosed(subscription=subscription, complete=complete and subscription not in self._incomplete)

        # After the events of the history.
        self._queue.enqueue(make)

    def _on_gap(self, subscription: SubscriptionId, reason: str) -> None:
        self._queue.enqueue(lambda: GapNotification(subscription=subscription, reason=reason))

    def _on_ended(self, named: bool, subscription: SubscriptionId) -> None:
        # After the events of the subscription. Those of a named one are not queued, and its acknowledgements are
        # rejected from now on.
        if named:
            self._send(self._expire(subscription))
        else:
            self._queue.enqueue(partial(self._expire, subscription))

    def _expire(self, subscription: SubscriptionId) -> UnsubscribeResponse:
        self._subscriptions.pop(subscription, None)
        self._incomplete.discard(subscription)
        self._expired.append(subscription)
        return UnsubscribeResponse(subscription=subscription)
