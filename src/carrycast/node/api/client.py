"""A client of a node on the same machine, for plain synchronous Python.

with connect("node.sock") as client:
    client.publish({"road": "A1", "speed": 31})
    for event in client.subscribe("speed > 30"):
        print(event.attributes)
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    plain_attributes,
    plain_bytes,
    plain_lease,
    plain_number,
    plain_pair,
    publication,
)
from carrycast.node.api.asking import ANSWER_S, HELD_S, published, publishing_s, refusal
from carrycast.node.api.connection import Connection
from carrycast.node.api.deliveries import (
    Arrivals,
    Deliveries,
    Delivery,
    HistoryListener,
    delivered_event,
    put_where_it_waits,
)
from carrycast.node.api.messages import (
    MAX_POSITIONS,
    AcknowledgeRequest,
    AcknowledgeResponse,
    AdvertiseRequest,
    AdvertiseResponse,
    AnyRequest,
    AnyResponse,
    Busy,
    CommandRequest,
    CommandResponse,
    ErrorResponse,
    Level,
    MoveRequest,
    MoveResponse,
    PublishRequest,
    PublishResponse,
    RequestClosed,
    RetrievedEvent,
    RetrieveRequest,
    Status,
    StatusRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
    WatchRequest,
    WatchResponse,
)

__all__ = ["Client", "Deliveries", "Delivery", "ConnectionLostError", "connect"]

RETRY_S = 0.05
AHEAD = 256
"""Events on their way to a node that has not answered for them. Their answers are short and fit any socket's buffer, so
a node never waits for a client that is still sending."""

_decoder: msgspec.json.Decoder[AnyResponse] = msgspec.json.Decoder(AnyResponse)
_encode = msgspec.json.Encoder().encode
A = TypeVar("A", bound=AnyResponse)


def connect(address: AddressLike, patience_s: float = 0.0) -> "Client":
    """A client of the node whose control channel is at `address`: the path of its socket, or `127.0.0.1:port`.

    A node that has just been started needs a moment: with patience, it is waited for.
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
    """A connection to a node. Not for several threads at once; each may have a client of its own."""

    def __init__(self, address: AddressLike) -> None:
        self._connection = Connection(plain_address(address))
        self._waiting: dict[SubscriptionId, Arrivals] = {}
        self._early: dict[int, AnyResponse] = {}
        """Answers to what was asked later than that of which the answer is waited for."""
        self._settling: dict[int, SubscriptionId] = {}
        """What acknowledgements are about that nobody waits for."""
        self._answers: dict[int, list[Event]] = {}
        """Of the requests that are open."""
        self._asked = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; subscriptions without a name end."""
        self._connection.close()

    def publish(
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
        """Publish an event; its id, when the node has it (`accepted`) or has it on its disk (`stored`), or when besides
        so many neighbors hold it (`held`): a WorkError if they do not in time, though it stays published. A node that
        cannot keep up is waited for, or refuses (a WorkError). A payload that is a `str` is encoded as UTF-8."""
        id = self._number()
        question = publication(id, attributes, payload, lease_s, access, level, copies, patience_s, busy)
        self._send(question)
        return self._published(question)

    def publish_all(
        self,
        events: Iterable[tuple[Mapping[str, Scalar], Payload]],
        lease_s: float | None = None,
        access: FilterLike | None = None,
        level: Level = "accepted",
        copies: int = 1,
        patience_s: float = HELD_S,
    ) -> Iterator[EventId]:
        """Publish many, each with its attributes and payload; their ids, in order. The next go out before the node has
        answered for the last, so that this is as fast as the node is."""
        open_: deque[PublishRequest] = deque()
        for pair in events:
            attributes, payload = attributes_and_payload(pair)
            id = self._number()
            question = publication(id, attributes, payload, lease_s, access, level, copies, patience_s)
            self._send(question)
            open_.append(question)
            while len(open_) >= AHEAD:
                yield self._published(open_.popleft())
        while open_:
            yield self._published(open_.popleft())

    def _published(self, question: PublishRequest) -> EventId:
        return published(question, self._answer(question, PublishResponse, publishing_s(question)))

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
    ) -> "Deliveries":
        """Subscribe at once; the events come by iterating. With a name the subscription outlives this connection.

        With a processor the filter selects what it is given, from that state on, and what it makes is delivered.
        With history, stored events from before come first, or when they do; `Deliveries.history_complete` and
        `on_history`, called while events are taken, tell whether they were all. Events of a named one come again until
        they are acknowledged, as iterating does with each when it is asked for the next.
        """
        question = SubscribeRequest(
            id=self._number(),
            filter=filter_text(filter),
            name=name,
            lease_s=plain_lease(lease_s),
            attributes=plain_attributes(attributes or {}),
            processor=processor,
            state=plain_bytes(state, "state"),
            history=history,
            acknowledge=name is not None,
        )
        subscription = self._ask(question, SubscribeResponse).subscription
        self._waiting.setdefault(subscription, Arrivals()).on_history = on_history
        return Deliveries(self, subscription)

    def acknowledge(self, subscription: SubscriptionId, positions: Sequence[int], wait: bool = True) -> None:
        """These deliveries of a named subscription are not to come again. If it is waited for, they do not from then
        on, whatever is killed."""
        for first in range(0, len(positions), MAX_POSITIONS):
            part = list(positions[first : first + MAX_POSITIONS])
            question = AcknowledgeRequest(id=self._number(), subscription=subscription, positions=part)
            if not wait:
                self._settling[question.id] = subscription
            self._send(question)
            if wait:
                self._answer(question, AcknowledgeResponse)

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """End a subscription, named or not."""
        if not self.ended(subscription):
            self._ask(UnsubscribeRequest(id=self._number(), subscription=subscription), UnsubscribeResponse)
        self._waiting.pop(subscription, None)

    def move(self, position: tuple[float, float] | None, velocity: tuple[float, float] = (0.0, 0.0)) -> None:
        """Tell the node where it is, in meters, and how it moves, in meters per second; None if that is not known."""
        try:
            there = msgspec.convert(plain_pair(position), Position | None)
            moving = msgspec.convert(plain_pair(velocity), Velocity)
        except msgspec.ValidationError as error:
            raise UserError(f"position: {error}") from None
        self._ask(MoveRequest(id=self._number(), position=there, velocity=moving), MoveResponse)

    def status(self) -> Status:
        """How the node is."""
        return self._ask(StatusRequest(id=self._number()), Status)

    def watch(self, after: int | None = None) -> WatchResponse:
        """What happened to events at the node from a number on; without one it begins now."""
        return self._ask(WatchRequest(id=self._number(), after=after), WatchResponse)

    def advertise(self, filter: FilterLike = "", stored: bool = False) -> None:
        """Events of a filter will come, or (`stored`) the node is to keep them, while this connection lasts."""
        self._ask(AdvertiseRequest(id=self._number(), filter=filter_text(filter), stored=stored), AdvertiseResponse)

    def request(self, filter: FilterLike = "", patience_s: float = 10.0) -> tuple[list[Event], bool]:
        """The stored events of a filter, and whether they are all there are."""
        question = RetrieveRequest(
            id=self._number(), filter=filter_text(filter), patience_s=plain_number(patience_s, "patience_s")
        )
        self._answers[question.id] = []
        try:
            closed = self._ask(question, RequestClosed, ANSWER_S + question.patience_s)
        finally:
            found = self._answers.pop(question.id)
        return found, closed.complete

    def command(
        self, application: str, verb: str, body: Mapping[str, object] | None = None, patience_s: float = 0.0
    ) -> dict[str, object]:
        """Tell an application of the node to do something; what it says. A UserError if it refuses."""
        question = CommandRequest(id=self._number(), application=application, verb=verb, body=dict(body or {}))
        said = self._ask(question, CommandResponse, ANSWER_S + patience_s).body
        if "error" in said and "clashes" not in said:
            raise UserError(str(said["error"]))
        return said

    def next_delivery(self, subscription: SubscriptionId, timeout_s: float | None = None) -> Delivery | None:
        """The next delivery of a subscription, or None if none comes in time or ever."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            arrivals = self._waiting.get(subscription)
            if arrivals is None:
                return None
            if (delivery := arrivals.take()) is not None:
                return delivery
            if arrivals.ended:
                return None
            reply = self._read(deadline)
            if reply is None:
                return None
            if isinstance(reply, ErrorResponse):
                raise WorkError(f"the node at {self._connection.address} hung up: {reply.message}")

    def waits(self, subscription: SubscriptionId) -> bool:
        """Whether a delivery may be here already."""
        arrivals = self._waiting.get(subscription)
        return (arrivals is not None and arrivals.waits()) or self._connection.ready

    def history_complete(self, subscription: SubscriptionId) -> bool | None:
        """What `Deliveries.history_complete` tells."""
        arrivals = self._waiting.get(subscription)
        if arrivals is None:
            return None
        arrivals.waits()
        return arrivals.history_complete

    def missed(self, subscription: SubscriptionId) -> int:
        """How many events of a subscription came while too many waited here to be taken."""
        arrivals = self._waiting.get(subscription)
        return 0 if arrivals is None else arrivals.missed

    def gaps(self, subscription: SubscriptionId) -> list[str]:
        """Why results of a subscription did not go on where they were, each time."""
        arrivals = self._waiting.get(subscription)
        return [] if arrivals is None else list(arrivals.gaps)

    def ended(self, subscription: SubscriptionId) -> bool:
        """Whether the node has said that its lease is over."""
        arrivals = self._waiting.get(subscription)
        return arrivals is not None and arrivals.ended

    def _number(self) -> int:
        self._asked += 1
        return self._asked

    def _ask(self, question: AnyRequest, expected: type[A], patience_s: float = ANSWER_S) -> A:
        self._send(question)
        return self._answer(question, expected, patience_s)

    def _send(self, question: AnyRequest) -> None:
        self._connection.send(_encode(question))

    def _answer(self, question: AnyRequest, expected: type[A], patience_s: float = ANSWER_S) -> A:
        deadline = time.monotonic() + patience_s
        while True:
            reply = self._early.pop(question.id, None) or self._read(deadline)
            if reply is None:
                raise WorkError(f"the node at {self._connection.address} does not answer")
            if isinstance(reply, ErrorResponse) and reply.id in (0, question.id):
                raise refusal(reply)
            if isinstance(reply, expected) and reply.id == question.id:
                return reply
            if isinstance(reply, PublishResponse | ErrorResponse) and reply.id > question.id:
                # A refusal overtakes publications that wait for the disk.
                self._early[reply.id] = reply

    def _read(self, deadline: float) -> AnyResponse | None:
        """The next reply, with deliveries put where they wait; None at the deadline."""
        line = self._connection.receive(deadline)
        if line is None:
            return None
        try:
            reply = _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise WorkError(f"what answers at {self._connection.address} is no node of carrycast: {error}") from None
        if isinstance(reply, RetrievedEvent) and reply.id in self._answers:
            self._answers[reply.id].append(delivered_event(reply))
        put_where_it_waits(reply, self._waiting)
        about = self._settling.pop(reply.id, None)
        if about is not None and isinstance(reply, ErrorResponse) and self.ended(about):
            # What was on its way when the lease ended; whoever reads that one is told by its end.
            return self._read(deadline)
        return reply
