"""A client of a node on the same machine, for asyncio. It reconnects whenever the node was away.

async with connect_async("node.sock") as client:
    await client.publish({"road": "A1", "speed": 31}, level="stored")
    async for event in client.subscribe("speed > 30", name="logger"):
        print(event.attributes)

Requests are pipelined: many publications that are awaited together take one round trip.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import TypeAlias, TypeVar

from carrycast.core.model import Event, EventId, Scalar, SubscriptionId
from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.arguments import AddressLike, FilterLike, Payload, plain_address, publish_request
from carrycast.node.api.client_core import (
    REPLICATION_S,
    RESPONSE_S,
    Acknowledgeable,
    ClientCore,
    Delivery,
    HistoryListener,
    SubscriptionState,
    publish_patience_s,
    published_id,
)
from carrycast.node.api.connection import parse_place
from carrycast.node.api.messages import (
    MAX_REPLY_BYTES,
    AcknowledgeResponse,
    AnyResponse,
    ApiRequest,
    Busy,
    Level,
    PublishResponse,
    Status,
    StatusRequest,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from carrycast.node.api.token import first_line

RETRY_S = 0.2
"""Between two attempts to connect."""
MAX_PENDING = 256
"""Requests without a response; more wait in the client."""

EventListener: TypeAlias = Callable[[Event], object] | Callable[[Event], Awaitable[object]]

R = TypeVar("R", bound=AnyResponse)


class AsyncClient:
    """A client that reconnects whenever it has to. It belongs to one event loop.

    A request whose connection is lost raises ConnectionLostError: whether the node has served it is unknown.
    Subscriptions continue: a named one where it was, another with the events from then on.
    """

    def __init__(self, address: AddressLike, patience_s: float = 30.0) -> None:
        """`patience_s` is how long a request waits for a node that is away."""
        self.address = plain_address(address)
        self._core = ClientCore(self.address)
        self._patience_s = patience_s
        self._room = asyncio.Semaphore(MAX_PENDING)
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._connect_error = "it has not been tried yet"
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "AsyncClient":
        # A wrong address is reported at once.
        parse_place(self.address)
        self._task = asyncio.create_task(self._run())
        try:
            await self._wait_connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; subscriptions without a name end, and so does iterating over any."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            # Requests that wait for the node fail.
            self._connected.set()
        self._core.close()

    async def publish(
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
        """Publish an event, as `Client.publish` does."""
        id = self._core.next_id()
        request = publish_request(id, attributes, payload, lease_s, access, level, copies, patience_s, busy)
        return published_id(request, await self.ask(request, PublishResponse, publish_patience_s(request)))

    def subscribe(
        self,
        filter: FilterLike = "",
        name: str | None = None,
        lease_s: float | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        history: bool = False,
        on_history: HistoryListener | None = None,
        on_event: EventListener | None = None,
    ) -> "AsyncDeliveries":
        """Subscribe, before any later request; the events come by `async for`. With a name the subscription outlives
        this client, and unacknowledged events are delivered again. With history, stored events from before are
        delivered too; `AsyncDeliveries.history_complete` and `on_history` tell whether they are complete.

        With `on_event` that function, or coroutine function, is called for each event, one after the other. An error
        that it raises ends the subscription and is raised by `AsyncDeliveries.close`."""
        state = self._core.subscribe(filter, name, lease_s, attributes, history, on_history)
        if self._writer is not None:
            self._writer.write(self._core.start_subscription(state)[1])
        deliveries = AsyncDeliveries(self, state)
        if on_event is not None:
            deliveries.start_listener(on_event)
        return deliveries

    async def unsubscribe(self, deliveries: "AsyncDeliveries") -> None:
        """End a subscription, named or not. If the node is away and keeps the subscription, it is waited for."""
        await deliveries.close()

    async def status(self) -> Status:
        """The status of the node."""
        return await self.ask(StatusRequest(id=self._core.next_id()), Status)

    async def ask(self, request: ApiRequest, expected: type[R], patience_s: float = RESPONSE_S) -> R:
        """Send any request; a UserError or WorkError if it fails, a ConnectionLostError if the connection is lost
        meanwhile."""
        async with self._room:
            await self._wait_connected()
            pending, line = self._core.start(request, expected)
            done = asyncio.Event()
            pending.on_done = done.set
            try:
                self._send(line)
                await asyncio.wait_for(done.wait(), patience_s)
            except TimeoutError:
                raise WorkError(f"the node at {self.address} does not answer") from None
            finally:
                self._core.abandon(pending)
        return pending.result()

    def _send(self, line: bytes) -> None:
        if self._writer is None:
            raise ConnectionLostError(f"the node at {self.address} is away")
        self._writer.write(line)

    async def _wait_connected(self) -> None:
        """Wait until the node is connected; a WorkError if it does not answer."""
        if self._task is not None:
            await self._wait(self._connected)
        if self._task is None:
            raise WorkError("this client is closed")

    async def _wait(self, event: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(event.wait(), self._patience_s)
        except TimeoutError:
            why = self._connect_error
            raise WorkError(f"no node answers at {self.address}: {why}; is `carrycast node` running?") from None

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await _open_connection(self.address)
            except (OSError, UserError) as error:
                # The token file may be missing for a moment, too.
                self._connect_error = getattr(error, "strerror", None) or str(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._writer = writer
            for line in self._core.on_connected():
                writer.write(line)
            self._connected.set()
            try:
                while True:
                    self._core.receive(await reader.readuntil(b"\n"))
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, WorkError):
                await asyncio.sleep(RETRY_S)
            finally:
                self._writer = None
                self._connected.clear()
                writer.transport.abort()
                self._core.on_disconnected()


class AsyncDeliveries(AsyncIterator[Event]):
    """The events of one subscription, by `async for`, over as many connections as it takes.

    With a name, iterating acknowledges the events before the one it is asked for: an event during which a program was
    killed is delivered again. Events taken by `next_event` or `next_delivery` are acknowledged by `acknowledge`.

    Leaving its context (`async with`) ends a subscription without a name. One with a name stays; what was taken is
    acknowledged, unless an error ends the block.
    """

    def __init__(self, client: AsyncClient, state: SubscriptionState) -> None:
        self._client = client
        self._state = state
        self._changed = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        state.on_change = self._changed.set

    async def __aenter__(self) -> "AsyncDeliveries":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A lost connection has ended the subscription, and must not hide the error that ends the block.
        with suppress(ConnectionLostError):
            if self._state.request.name is None:
                await self.close()
            elif error is None and not self.ended:
                await self.acknowledge()

    @property
    def subscription(self) -> SubscriptionId | None:
        """The id of the subscription, while the node is connected."""
        return self._state.id

    @property
    def ended(self) -> bool:
        """Whether no more events will arrive than are here already: it was closed, or its lease has expired."""
        return self._state.has_ended

    @property
    def missed(self) -> int:
        """Events that were dropped because too many were not taken."""
        return self._state.missed

    @property
    def gaps(self) -> list[str]:
        """Each time that results did not continue where they were, the reason."""
        return list(self._state.gaps)

    @property
    def history_complete(self) -> bool | None:
        """Whether all stored events from before have been taken; False if some are missing, None if it is not known
        yet or was not requested (`history`). A False becomes True if the rest arrives later."""
        self._state.has_event()
        return self._state.history_complete

    def __aiter__(self) -> "AsyncDeliveries":
        return self

    async def __anext__(self) -> Event:
        if self._state.should_acknowledge():
            core = self._client._core
            for request in core.acknowledge(self._state):
                self._client._send(core.send_and_forget(request))
        delivery = await self.next_delivery()
        if delivery is None:
            raise StopAsyncIteration
        return delivery.event

    async def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None if none arrives in time, or ever (`ended`)."""
        delivery = await self.next_delivery(timeout_s)
        return None if delivery is None else delivery.event

    def start_listener(self, on_event: EventListener) -> None:
        """Call a function for each event from now on, in place of iterating."""

        async def listen() -> None:
            async for event in self:
                result = on_event(event)
                if isawaitable(result):
                    await result

        self._listener = asyncio.create_task(listen())

    async def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """The next event and whether it may have been delivered before; None if none arrives in time, or ever."""
        state = self._state
        while (delivery := state.take()) is None:
            if state.error is not None:
                raise state.error
            if state.has_ended:
                return None
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), timeout_s)
            except TimeoutError:
                return None
        return delivery

    async def acknowledge(self, *events: Acknowledgeable) -> None:
        """Acknowledge these events, or all that were taken; they are not delivered again once this returns. Events that
        were taken before the connection was lost cannot be acknowledged: they are delivered again."""
        for request in self._client._core.acknowledge(self._state, events):
            await self._client.ask(request, AcknowledgeResponse)

    async def close(self) -> None:
        """End the subscription, named or not. If the node is away and keeps the subscription, it is waited for."""
        client, state = self._client, self._state
        listener, self._listener = self._listener, None
        if listener is not None and listener.done():
            # What it raised is raised here.
            await listener
        elif listener is not None and listener is not asyncio.current_task():
            listener.cancel()
        is_kept = client._writer is not None or state.request.name is not None
        if state in client._core.subscriptions and is_kept:
            while state.id is None and not state.has_ended:
                self._changed.clear()
                await client._wait(self._changed)
        client._core.remove(state)
        id, state.id = state.id, None
        state.end()
        if id is not None:
            await client.ask(UnsubscribeRequest(id=client._core.next_id(), subscription=id), UnsubscribeResponse)


async def _open_connection(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    token, place = parse_place(address)
    if isinstance(place, str):
        return await asyncio.open_unix_connection(place, limit=MAX_REPLY_BYTES)
    reader, writer = await asyncio.open_connection(*place, limit=MAX_REPLY_BYTES)
    if token is not None:
        writer.write(first_line(token))
    return reader, writer
