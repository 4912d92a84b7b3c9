"""A client of a node on the same machine, for asyncio. It stays: if the node goes away it connects again.

async with connect_async("node.sock") as client:
    await client.publish({"road": "A1", "speed": 31}, level="stored")
    async for event in client.subscribe("speed > 30", name="logger"):
        print(event.attributes)

Questions are on their way together: whoever awaits many publications at once waits for all of them once.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import msgspec

from carrycast.core.model import EventId, Scalar, SubscriptionId
from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.aio_deliveries import AsyncDeliveries
from carrycast.node.api.arguments import (
    AddressLike,
    FilterLike,
    Payload,
    filter_text,
    plain_address,
    plain_attributes,
    plain_lease,
    publication,
)
from carrycast.node.api.asking import ANSWER_S, HELD_S, published, publishing_s, refusal
from carrycast.node.api.deliveries import Delivery, HistoryEnd, HistoryListener, delivered_event
from carrycast.node.api.messages import (
    MAX_LINE_BYTES,
    MAX_REPLY_BYTES,
    AnyResponse,
    ApiRequest,
    Busy,
    DeliveryNotification,
    ErrorResponse,
    GapNotification,
    Level,
    PublishResponse,
    RequestClosed,
    Status,
    StatusRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from carrycast.node.api.token import first_line, split_token
from carrycast.node.link.socket_address import SocketAddress, parse_socket_address

RETRY_S = 0.2
"""Between two attempts to reach a node that is away."""
MAX_OPEN = 256
"""Questions without an answer; more wait here."""

_decoder: msgspec.json.Decoder[AnyResponse] = msgspec.json.Decoder(AnyResponse)
_encode = msgspec.json.Encoder().encode
A = TypeVar("A", bound=AnyResponse)


class AsyncClient:
    """A client that connects again whenever it has to. All of it belongs to one event loop.

    A request whose connection is lost raises `ConnectionLostError`: it is not known whether the node has served it.
    Subscriptions go on: a named one where it was, another with the events from then on.
    """

    def __init__(self, address: AddressLike, patience_s: float = 30.0) -> None:
        """`patience_s` is how long a question waits for a node that is away."""
        self.address = plain_address(address)
        self._patience_s = patience_s
        self._asked = 0
        self._open: dict[int, asyncio.Future[AnyResponse]] = {}
        self._room = asyncio.Semaphore(MAX_OPEN)
        self._streams: dict[AsyncDeliveries, None] = {}
        self._by_id: dict[SubscriptionId, AsyncDeliveries] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._why = "it has not been tried yet"
        self._said: str | None = None
        """With what word the node hung up."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "AsyncClient":
        # An address that is none is said at once.
        _place(self.address)
        self._task = asyncio.create_task(self._stay())
        try:
            await self._present()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; subscriptions without a name end, and whoever waits for one is told so."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            # Whoever waits for the node waits in vain.
            self._connected.set()
        for stream in self._streams:
            stream.end()
        self._streams.clear()

    async def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: Payload = b"",
        lease_s: float | None = None,
        access: FilterLike | None = None,
        level: Level = "accepted",
        copies: int = 1,
        patience_s: float = HELD_S,
        busy: Busy = "wait",
    ) -> EventId:
        """Publish an event, as `Client.publish` does."""
        id = self.number()
        question = publication(id, attributes, payload, lease_s, access, level, copies, patience_s, busy)
        return published(question, await self.ask(question, PublishResponse, publishing_s(question)))

    def subscribe(
        self,
        filter: FilterLike = "",
        name: str | None = None,
        lease_s: float | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        history: bool = False,
        on_history: HistoryListener | None = None,
    ) -> AsyncDeliveries:
        """Subscribe, before anything that is asked after this; the events come by `async for`. With a name the
        subscription outlives this client, and what is not acknowledged comes again. With history, stored events from
        before come too; `AsyncDeliveries.history_complete` and `on_history` tell whether they were all."""
        question = SubscribeRequest(
            filter=filter_text(filter),
            name=name,
            lease_s=plain_lease(lease_s),
            attributes=plain_attributes(attributes or {}),
            history=history,
            acknowledge=name is not None,
        )
        stream = AsyncDeliveries(self, question, on_history)
        self._streams[stream] = None
        if self._writer is not None:
            self._begin(stream)
        return stream

    async def unsubscribe(self, stream: AsyncDeliveries) -> None:
        """End a subscription, named or not. A node that is away is waited for if it keeps the subscription."""
        if stream in self._streams and (self._writer is not None or stream.question.name is not None):
            await self._until(stream.known)
        self._streams.pop(stream, None)
        id = stream.subscription
        stream.end()
        if id is not None:
            self._by_id.pop(id, None)
            await self.ask(UnsubscribeRequest(id=self.number(), subscription=id), UnsubscribeResponse)

    async def status(self) -> Status:
        """How the node is."""
        return await self.ask(StatusRequest(id=self.number()), Status)

    async def ask(self, question: ApiRequest, expected: type[A], patience_s: float = ANSWER_S) -> A:
        """Send a request. A UserError or WorkError refuses it; ConnectionLostError says that the connection is lost."""
        async with self._room:
            await self._present()
            answered = self.send(question)
            try:
                reply = await asyncio.wait_for(answered, patience_s)
            except TimeoutError:
                raise WorkError(f"the node at {self.address} does not answer") from None
            finally:
                self._open.pop(question.id, None)
        if isinstance(reply, ErrorResponse):
            raise refusal(reply)
        if not isinstance(reply, expected):
            raise WorkError(f"what answers at {self.address} is no node of carrycast")
        return reply

    def send(self, question: ApiRequest) -> "asyncio.Future[AnyResponse]":
        """Send a question now, if the node is there; its answer."""
        line = _encode(question) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"at most {MAX_LINE_BYTES} bytes fit through the control channel, not {len(line)}")
        answered: asyncio.Future[AnyResponse] = asyncio.get_running_loop().create_future()
        if self._writer is None:
            answered.set_exception(ConnectionLostError(f"the node at {self.address} is away"))
        else:
            self._open[question.id] = answered
            self._writer.write(line)
        return answered

    def number(self) -> int:
        """Of the next question."""
        self._asked += 1
        return self._asked

    async def _present(self) -> None:
        """Wait until the node is there; a WorkError if it does not come."""
        if self._task is not None:
            await self._until(self._connected)
        if self._task is None:
            raise WorkError("this client is closed")

    async def _until(self, event: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(event.wait(), self._patience_s)
        except TimeoutError:
            raise WorkError(f"no node answers at {self.address}: {self._why}; is `carrycast node` running?") from None

    async def _stay(self) -> None:
        while True:
            try:
                reader, writer = await _connected(self.address)
            except (OSError, UserError) as error:
                # The token file too may be away for a moment.
                self._why = getattr(error, "strerror", None) or str(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._said = None
            self._writer = writer
            for stream in self._streams:
                self._begin(stream)
            self._connected.set()
            try:
                while True:
                    self._take(await reader.readuntil(b"\n"))
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                await asyncio.sleep(RETRY_S)
            finally:
                self._lose(writer)

    def _lose(self, writer: asyncio.StreamWriter) -> None:
        self._writer = None
        self._connected.clear()
        writer.transport.abort()
        self._by_id.clear()
        gone = "is gone, and has not answered" if self._said is None else f"hung up: {self._said}"
        for answered in self._open.values():
            if not answered.done():
                answered.set_exception(ConnectionLostError(f"the node at {self.address} {gone}"))
        self._open.clear()
        for stream in self._streams:
            stream.on_lost()

    def _begin(self, stream: AsyncDeliveries) -> None:
        stream.asked = self.number()
        question = msgspec.structs.replace(stream.question, id=stream.asked)
        # Answered in order, so before the first delivery; nobody awaits it.
        self.send(question).add_done_callback(lambda answered: self._on_begun(stream, answered))

    def _on_begun(self, stream: AsyncDeliveries, answered: "asyncio.Future[AnyResponse]") -> None:
        if answered.cancelled() or answered.exception() is not None:
            return
        reply = answered.result()
        if isinstance(reply, ErrorResponse):
            self._streams.pop(stream, None)
            stream.end(refusal(reply))

    def _take(self, line: bytes) -> None:
        try:
            reply = _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConnectionError(f"what answers at {self.address} is no node of carrycast: {error}") from None
        if isinstance(reply, DeliveryNotification):
            stream = self._by_id.get(reply.subscription)
            if stream is not None:
                stream.on_delivery(Delivery(delivered_event(reply), reply.position, reply.again))
            return
        if isinstance(reply, GapNotification):
            stream = self._by_id.get(reply.subscription)
            if stream is not None:
                stream.on_gap(reply.reason)
            return
        if isinstance(reply, RequestClosed) and reply.subscription is not None:
            stream = self._by_id.get(reply.subscription)
            if stream is not None:
                stream.on_history_end(HistoryEnd(reply.complete))
            return
        if isinstance(reply, UnsubscribeResponse) and reply.subscription is not None:
            stream = self._by_id.pop(reply.subscription, None)
            if stream is not None:
                self._streams.pop(stream, None)
                stream.on_lapsed()
            return
        if isinstance(reply, ErrorResponse) and reply.id == 0:
            self._said = reply.message
        answered = self._open.pop(reply.id, None)
        if isinstance(reply, SubscribeResponse):
            self._on_subscribed(reply)
        if answered is not None and not answered.done():
            answered.set_result(reply)

    def _on_subscribed(self, reply: SubscribeResponse) -> None:
        for stream in self._streams:
            if stream.asked == reply.id:
                stream.on_subscribed(reply.subscription)
                self._by_id[reply.subscription] = stream


def _place(address: str) -> tuple[str | None, SocketAddress | str]:
    """The token that a node is told first, if it needs one, and its port or the path of its socket."""
    token, place = split_token(address)
    return token, parse_socket_address(place) if re.search(r":[0-9]+$", place) else place


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    token, place = _place(address)
    if isinstance(place, str):
        return await asyncio.open_unix_connection(place, limit=MAX_REPLY_BYTES)
    reader, writer = await asyncio.open_connection(*place, limit=MAX_REPLY_BYTES)
    if token is not None:
        writer.write(first_line(token))
    return reader, writer
