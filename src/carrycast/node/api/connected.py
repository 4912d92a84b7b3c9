"""A client of a node, as the node sees it: its questions are answered, its events sent as far as it reads them.

Clients are not trusted with the node's memory or time: lines, subscriptions and what waits for a slow reader are all
bounded.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from carrycast.core.model import FOREVER_S, SubscriptionId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.client_requests import ClientRequests
from carrycast.node.api.consumer import Delivery, Reader
from carrycast.node.api.lines import LineTooLongError, lines
from carrycast.node.api.messages import (
    MAX_LINE_BYTES,
    Acknowledge,
    Acknowledged,
    Advertise,
    Advertised,
    AskStatus,
    AskStored,
    Closed,
    Command,
    Commanded,
    GapTold,
    Move,
    Moved,
    Publish,
    Question,
    Refused,
    Reply,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Watch,
    Watched,
    question_number,
)
from carrycast.node.api.outlet import Kind, Outlet
from carrycast.node.api.publishing import Publishing, refused
from carrycast.node.api.served import Served
from carrycast.node.api.token import looks_like_http
from carrycast.node.api.told import delivery_of
from carrycast.node.runtime.applications import Forget
from carrycast.node.runtime.saving import Saved

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

_decoder: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)


class ConnectedClient:
    """One connection to a node, and what it has open there."""

    def __init__(self, node: Served, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._node = node
        self._reader = reader
        self._writer = writer
        self._outlet = Outlet(writer)
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
        self._publishing = Publishing(node, self._say)
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
                together: list[Publish] = []
                for line in several:
                    question = self._understood(line)
                    if isinstance(question, Publish) and self._has_room(len(together)):
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
            self._say(Refused(message=f"a line has at most {MAX_LINE_BYTES} bytes", wrong_use=True))
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
        self._say(Refused(message=message, wrong_use=False))
        self._outlet.close()

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()

    def _understood(self, line: bytes) -> Question | Refused | None:
        """What a line asks, or why it asks nothing; None if this is no client, and was told so."""
        try:
            return _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if looks_like_http(line):
                self._say(Refused(message="this is no web server", wrong_use=True))
                return None
            return Refused(id=question_number(line), message=f"not understood: {error}", wrong_use=True)

    async def _serve(self, question: Question | Refused) -> None:
        if isinstance(question, Refused):
            self._say(question)
        elif isinstance(question, Publish):
            await self._publishing.publish_when_there_is_room(question)
        else:
            if isinstance(question, AskStored) or (isinstance(question, Subscribe) and question.history):
                await self._outlet.caught_up()
            reply = self._answer(question)
            if reply is not None:
                self._say(reply)

    def _answer(self, question: Question) -> Reply | None:
        """What to say at once; None if the answer comes later."""
        try:
            return self._serve_question(question)
        except Exception as error:
            return refused(question, error)

    def _serve_question(self, question: Question) -> Reply | None:
        node = self._node
        if isinstance(question, Acknowledge):
            self._check_subscription(question.subscription)
            told = self._when_saved(question, lambda: Acknowledged(id=question.id))
            try:
                node.acknowledge(question.subscription, question.positions, told)
            except UserError:
                self._owed -= 1
                raise
            return None
        if isinstance(question, Subscribe):
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
            return Subscribed(id=question.id, subscription=subscription)
        if isinstance(question, Unsubscribe):
            self._check_subscription(question.subscription)
            node.unsubscribe(question.subscription)
            self._subscriptions.pop(question.subscription, None)
            self._curtailed.discard(question.subscription)
            return Unsubscribed(id=question.id)
        if isinstance(question, Advertise):
            self._check_open()
            self._open[object()] = node.advertise(question.filter, question.stored)
            return Advertised(id=question.id)
        if isinstance(question, AskStored):
            self._check_open()
            self._requests.request(question)
            return None
        if isinstance(question, Command):
            self._command(question)
            return None
        if isinstance(question, Move):
            node.move(question.position, question.velocity)
            return Moved(id=question.id)
        if isinstance(question, Watch):
            return self._watch(question)
        assert isinstance(question, AskStatus)
        return msgspec.structs.replace(node.status(), id=question.id)

    def _when_saved(self, question: Question, answer: Callable[[], Reply]) -> Saved:
        """Answers a question when its writes are on the disk, or says that they are not."""

        def saved(lost: WorkError | None) -> None:
            self._say_later(answer() if lost is None else Refused(id=question.id, message=str(lost), wrong_use=False))

        self._owed += 1
        return saved

    def _check_subscription(self, subscription: SubscriptionId) -> None:
        if subscription not in self._subscriptions and subscription not in self._lapsed:
            raise UserError(f"this client has no subscription {subscription}")

    def _check_open(self) -> None:
        if len(self._open) + len(self._requests) >= MAX_CLIENT_QUESTIONS:
            raise UserError(f"a client has at most {MAX_CLIENT_QUESTIONS} requests, commands and advertisements open")

    def _watch(self, question: Watch) -> Watched:
        record = self._node.record
        sight = record.sight
        if Watch not in self._open:
            self._check_open()
            sight.watch()
            self._open[Watch] = sight.leave
        after = sight.next if question.after is None else question.after
        missed, found, following = sight.after(after)
        changed, self._wishes = self._wishes != sight.version, sight.version
        return Watched(
            id=question.id,
            time_s=record.time_s(),
            next=following,
            missed=missed,
            sightings=found,
            frames=sight.frames,
            subscriptions=sight.wishes() if question.after is None or changed else None,
            holds=sight.held() if question.after is None else None,
        )

    def _command(self, question: Command) -> None:
        self._check_open()
        mark = object()

        def replied(body: bytes) -> None:
            self._open.pop(mark, None)
            self._say(Commanded(id=question.id, body=msgspec.json.decode(body, type=dict[str, object])))

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
        def made() -> Reply | None:
            if subscription not in self._subscriptions:
                return None
            return Closed(subscription=subscription, complete=complete and subscription not in self._curtailed)

        # After what has come for it.
        self._outlet.say_in_turn(made)

    def _delivered(self, subscription: SubscriptionId, delivery: Delivery) -> Reply | None:
        """Nothing, of a subscription that the client has ended while this waited."""
        return delivery_of(subscription, delivery) if subscription in self._subscriptions else None

    def _on_gap(self, subscription: SubscriptionId, reason: str) -> None:
        self._outlet.say_in_turn(lambda: GapTold(subscription=subscription, reason=reason))

    def _on_ended(self, named: bool, subscription: SubscriptionId) -> None:
        # After what has come for it. Of a named one nothing waits here, but acknowledgements are refused from now on.
        if named:
            self._say(self._unsubscribed(subscription))
        else:
            self._outlet.say_in_turn(partial(self._unsubscribed, subscription))

    def _unsubscribed(self, subscription: SubscriptionId) -> Unsubscribed:
        self._subscriptions.pop(subscription, None)
        self._curtailed.discard(subscription)
        self._lapsed.append(subscription)
        return Unsubscribed(subscription=subscription)

    def _say_later(self, reply: Reply) -> None:
        self._owed -= 1
        self._say(reply)
