"""A client of a node, as the node sees it: its questions are answered, its events sent as far as it reads them.

Clients are not trusted with the node's memory or time: lines, subscriptions and what waits for a slow reader are all
bounded.
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
from carrycast.node.api.client_publishing import ClientPublisher, refused
from carrycast.node.api.consumer import Delivery, Reader
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
    question_number,
)
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.api.notifications import answer_of, delivery_of
from carrycast.node.api.outbound_queue import Kind, OutboundQueue
from carrycast.node.api.token import looks_like_http
from carrycast.node.link.moderation import Moderation
from carrycast.node.runtime.application_host import Forget
from carrycast.node.storage.group_commit import OnCommitted

MAX_CLIENT_SUBSCRIPTIONS = 256
MAX_CLIENT_QUESTIONS = 64
"""Requests and commands that a client has open, and its advertisements."""
MAX_TOGETHER = 64
"""Events published together: then it is looked at again whether the node is busy."""
MAX_UNANSWERED_BYTES = 1 << 16
"""Of answers that a client has not read: then it is not heard until it has."""

MAX_LAST_S = 60.0
"""How long the ends of its requests are waited for, for who has said all it wants to. Who has hung up looks alike."""
LAST_S = 10.0
"""For who has said all it wants to and still reads what it asked for."""

_decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)

CHUNK_BYTES = 1 << 16


class LineTooLongError(Exception):
    """Somebody sends more than a line may have."""


async def lines(reader: asyncio.StreamReader, transport: asyncio.BaseTransport) -> AsyncIterator[list[bytes]]:
    """Every whole line, those together that came together, until the other side is gone; what it had not ended by then
    is none."""
    assert isinstance(transport, asyncio.ReadTransport)
    # Not the pieces that it came in: of a line that comes byte by byte they would take forty times as much.
    begun = bytearray()
    moderation = Moderation()
    more: list[bytes] = []
    while True:
        pause_s = moderation.pause_s(time.monotonic(), len(more))
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
        begun += first
        if len(begun) > MAX_LINE_BYTES:
            raise LineTooLongError
        if more:
            yield [bytes(begun), *more[:-1]]
            begun = bytearray(more[-1])


class ClientRequests:
    """Answers go to the client as far as it reads; the end says so if some were dropped."""

    def __init__(self, node: NodeInterface, outlet: OutboundQueue) -> None:
        self._node = node
        self._outlet = outlet
        self._open: dict[object, Forget] = {}
        self._all_over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def request(self, question: RetrieveRequest) -> None:
        """Ask for stored events; a UserError says what is wrong."""
        mark, over, all_said = object(), False, True
        kind = Kind.HELD

        def answered(event: Event, hops: int) -> None:
            nonlocal all_said
            if not self._outlet.tell(event, kind, partial(answer_of, question.id, event, hops)):
                self._node.note_drop("client_slow")
                all_said = False

        def closed(complete: bool) -> None:
            nonlocal over
            over = True
            self._open.pop(mark, None)
            self._all_over.set()
            self._outlet.say_in_turn(partial(RequestClosed, id=question.id, complete=complete and all_said))

        forget = self._node.request(question.filter, question.patience_s, answered, closed)
        # What was answered so far the node holds itself.
        kind = Kind.ASKED
        # It may be over already: a protocol that stores nothing says so at once.
        if not over:
            self._open[mark] = forget

    async def all_over(self) -> None:
        """Wait until none is open: each ends with its patience."""
        while self._open:
            self._all_over.clear()
            await self._all_over.wait()

    def forget(self) -> None:
        """The client is gone."""
        for forget in self._open.values():
            forget()


class ClientSession:
    """One connection to a node, and what it has open there."""

    def __init__(self, node: NodeInterface, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._node = node
        self._reader = reader
        self._writer = writer
        self._outlet = OutboundQueue(writer)
        self._subscriptions: dict[SubscriptionId, None] = {}
        self._lapsed: deque[SubscriptionId] = deque(maxlen=MAX_CLIENT_SUBSCRIPTIONS)
        """Those that have ended by themselves: what the client still says of them is no mistake."""
        self._open: dict[object, Forget] = {}
        """Commands that are still to be answered, what the client advertises, and that it watches."""
        self._requests = ClientRequests(node, self._outlet)
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._owed = 0
        """Answers that wait for the disk; those to publications are counted apart."""
        self._say = self._outlet.say
        self._publishing = ClientPublisher(node, self._say)
        self.silent = True
        """Whether it has not said anything yet."""
        self._curtailed: set[SubscriptionId] = set()
        """Of whose history some was dropped here, because the client does not read."""
        self._wishes = 0
        """Which version of the node's subscriptions it was told of, if it watches."""

    async def serve(self) -> None:
        """Answer until the client leaves or breaks a limit."""
        try:
            async for several in lines(self._reader, self._writer.transport):
                self.silent = False
                self._heard_s = self._loop.time()
                together: list[PublishRequest] = []
                for line in several:
                    question = self._understood(line)
                    if isinstance(question, PublishRequest) and self._has_room(len(together)):
                        together.append(question)
                        continue
                    # What was asked first is answered first.
                    self._publishing.publish(together)
                    together = []
                    # A client that asks without reading the answers waits here, not in the node's memory.
                    if self._outlet.said_bytes > MAX_UNANSWERED_BYTES:
                        await self._outlet.drain()
                    if question is None:
                        return
                    await self._serve(question)
                self._publishing.publish(together)
                if self._outlet.unread_bytes > MAX_UNANSWERED_BYTES:
                    await self._outlet.drain()
            # Who has said all it wants to may still read what it asked for.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._requests.all_over(), MAX_LAST_S)
            if self._outlet.waits:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._outlet.caught_up(), LAST_S)
        except LineTooLongError:
            self._say(ErrorResponse(message=f"a line has at most {MAX_LINE_BYTES} bytes", wrong_use=True))
        except ConnectionError:
            return
        finally:
            for subscription in self._subscriptions:
                self._node.detach(subscription)
            for forget in self._open.values():
                forget()
            self._requests.forget()
            self._outlet.close()

    def _has_room(self, together: int) -> bool:
        """Whether one more event may be published together with so many."""
        return together < MAX_TOGETHER and not self._node.is_busy(together)

    @property
    def idle_s(self) -> float:
        """For how long it has neither said anything nor anything open."""
        owed = self._outlet.unread_bytes or self._outlet.waits or self._owed > 0 or self._publishing.owed > 0
        return (
            0.0
            if self._subscriptions or self._open or len(self._requests) or owed
            else self._loop.time() - self._heard_s
        )

    def refuse(self, message: str) -> None:
        """Turn it away, with a word."""
        self._say(ErrorResponse(message=message, wrong_use=False))
        self._outlet.close()

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()

    def _understood(self, line: bytes) -> AnyRequest | ErrorResponse | None:
        """What a line asks, or why it asks nothing; None if this is no client, and was told so."""
        try:
            return _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if looks_like_http(line):
                self._say(ErrorResponse(message="this is no web server", wrong_use=True))
                return None
            return ErrorResponse(id=question_number(line), message=f"not understood: {error}", wrong_use=True)

    async def _serve(self, question: AnyRequest | ErrorResponse) -> None:
        if isinstance(question, ErrorResponse):
            self._say(question)
        elif isinstance(question, PublishRequest):
            await self._publishing.publish_when_there_is_room(question)
        else:
            if isinstance(question, RetrieveRequest) or (isinstance(question, SubscribeRequest) and question.history):
                await self._outlet.caught_up()
            reply = self._answer(question)
            if reply is not None:
                self._say(reply)

    def _answer(self, question: AnyRequest) -> AnyResponse | None:
        """What to say at once; None if the answer comes later."""
        try:
            return self._serve_question(question)
        except Exception as error:
            return refused(question, error)

    def _serve_question(self, question: AnyRequest) -> AnyResponse | None:
        node = self._node
        if isinstance(question, AcknowledgeRequest):
            self._check_subscription(question.subscription)
            told = self._when_saved(question, lambda: AcknowledgeResponse(id=question.id))
            try:
                node.acknowledge(question.subscription, question.positions, told)
            except UserError:
                self._owed -= 1
                raise
            return None
        if isinstance(question, SubscribeRequest):
            if len(self._subscriptions) >= MAX_CLIENT_SUBSCRIPTIONS:
                raise UserError(f"a client has at most {MAX_CLIENT_SUBSCRIPTIONS} subscriptions")
            subscription = node.subscribe(
                question.filter,
                Reader(
                    partial(self._deliver, question.history),
                    question.acknowledge,
                    flow=self._outlet,
                    ended=partial(self._on_ended, question.name is not None),
                    history=self._on_history if question.history else None,
                    gap=self._on_gap,
                ),
                question.name,
                question.lease_s or FOREVER_S,
                question.attributes,
                question.processor,
                question.state,
                question.history,
            )
            self._subscriptions[subscription] = None
            return SubscribeResponse(id=question.id, subscription=subscription)
        if isinstance(question, UnsubscribeRequest):
            self._check_subscription(question.subscription)
            node.unsubscribe(question.subscription)
            self._subscriptions.pop(question.subscription, None)
            self._curtailed.discard(question.subscription)
            return UnsubscribeResponse(id=question.id)
        if isinstance(question, AdvertiseRequest):
            self._check_open()
            self._open[object()] = node.advertise(question.filter, question.stored)
            return AdvertiseResponse(id=question.id)
        if isinstance(question, RetrieveRequest):
            self._check_open()
            self._requests.request(question)
            return None
        if isinstance(question, CommandRequest):
            self._command(question)
            return None
        if isinstance(question, MoveRequest):
            node.move(question.position, question.velocity)
            return MoveResponse(id=question.id)
        if isinstance(question, WatchRequest):
            return self._watch(question)
        assert isinstance(question, StatusRequest)
        return msgspec.structs.replace(node.status(), id=question.id)

    def _when_saved(self, question: AnyRequest, answer: Callable[[], AnyResponse]) -> OnCommitted:
        """Answers a question when its writes are on the disk, or says that they are not."""

        def saved(lost: WorkError | None) -> None:
            self._say_later(
                answer() if lost is None else ErrorResponse(id=question.id, message=str(lost), wrong_use=False)
            )

        self._owed += 1
        return saved

    def _check_subscription(self, subscription: SubscriptionId) -> None:
        if subscription not in self._subscriptions and subscription not in self._lapsed:
            raise UserError(f"this client has no subscription {subscription}")

    def _check_open(self) -> None:
        if len(self._open) + len(self._requests) >= MAX_CLIENT_QUESTIONS:
            raise UserError(f"a client has at most {MAX_CLIENT_QUESTIONS} requests, commands and advertisements open")

    def _watch(self, question: WatchRequest) -> WatchResponse:
        recorder = self._node.recorder
        feed = recorder.feed
        if WatchRequest not in self._open:
            self._check_open()
            feed.watch()
            self._open[WatchRequest] = feed.leave
        after = feed.next if question.after is None else question.after
        missed, found, following = feed.after(after)
        changed, self._wishes = self._wishes != feed.version, feed.version
        return WatchResponse(
            id=question.id,
            time_s=recorder.time_s(),
            next=following,
            missed=missed,
            sightings=found,
            frames=feed.frames,
            subscriptions=feed.wishes() if question.after is None or changed else None,
            holds=feed.held() if question.after is None else None,
        )

    def _command(self, question: CommandRequest) -> None:
        self._check_open()
        mark = object()

        def replied(body: bytes) -> None:
            self._open.pop(mark, None)
            self._say(CommandResponse(id=question.id, body=msgspec.json.decode(body, type=dict[str, object])))

        # Applications never reply before whoever told them something has returned.
        body = msgspec.json.encode(question.body)
        self._open[mark] = self._node.command(question.application, question.verb, body, replied)

    def _deliver(self, history: bool, subscription: SubscriptionId, delivery: Delivery) -> None:
        if delivery.position is not None:
            # Of a named subscription the rest waits in the store.
            self._say(delivery_of(subscription, delivery))
            return
        kind = Kind.HELD if delivery.held else Kind.ASKED if history else Kind.NEWS
        if not self._outlet.tell(delivery.event, kind, partial(self._delivered, subscription, delivery)):
            self._node.note_drop("client_slow")
            self._curtailed.add(subscription)

    def _on_history(self, subscription: SubscriptionId, complete: bool) -> None:
        def made() -> AnyResponse | None:
            if subscription not in self._subscriptions:
                return None
            return RequestClosed(subscription=subscription, complete=complete and subscription not in self._curtailed)

        # After what has come for it.
        self._outlet.say_in_turn(made)

    def _delivered(self, subscription: SubscriptionId, delivery: Delivery) -> AnyResponse | None:
        """Nothing, of a subscription that the client has ended while this waited."""
        return delivery_of(subscription, delivery) if subscription in self._subscriptions else None

    def _on_gap(self, subscription: SubscriptionId, reason: str) -> None:
        self._outlet.say_in_turn(lambda: GapNotification(subscription=subscription, reason=reason))

    def _on_ended(self, named: bool, subscription: SubscriptionId) -> None:
        # After what has come for it. Of a named one nothing waits here, but acknowledgements are refused from now on.
        if named:
            self._say(self._unsubscribed(subscription))
        else:
            self._outlet.say_in_turn(partial(self._unsubscribed, subscription))

    def _unsubscribed(self, subscription: SubscriptionId) -> UnsubscribeResponse:
        self._subscriptions.pop(subscription, None)
        self._curtailed.discard(subscription)
        self._lapsed.append(subscription)
        return UnsubscribeResponse(subscription=subscription)

    def _say_later(self, reply: AnyResponse) -> None:
        self._owed -= 1
        self._say(reply)
