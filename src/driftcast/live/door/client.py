"""A client of a node on the same machine, for plain synchronous Python.

with connect("node.sock") as client:
    client.publish({"road": "A1", "speed": 31})
    for event in client.subscribe("speed > 30"):
        print(event.attributes)
"""

import math
import re
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

import msgspec

from driftcast.errors import UserError, WorkError
from driftcast.live.door.messages import (
    MAX_LINE_BYTES,
    Advertise,
    Advertised,
    Answered,
    AskStatus,
    AskStored,
    Closed,
    Command,
    Commanded,
    Delivered,
    Move,
    Moved,
    Publish,
    Published,
    Question,
    Refused,
    Reply,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Watch,
    Watched,
)
from driftcast.live.link.address import parse_address
from driftcast.model import FOREVER_S, Event, EventId, Position, ProcessorId, Scalar, SubscriptionId, Velocity

CONNECT_S = 5.0
ANSWER_S = 30.0
"""A node that has not answered by then hangs: an answer needs no network."""
CHUNK_BYTES = 1 << 16
RETRY_S = 0.05
AHEAD = 64
"""Events on their way to a node that has not answered for them. Their answers are short and fit any socket's buffer, so
a node never waits for a client that is still sending."""

_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_encode = msgspec.json.Encoder().encode
A = TypeVar("A", bound=Reply)


class LostError(WorkError):
    """A connection that stood is gone, and the node perhaps with it."""


def connect(address: str, patience_s: float = 0.0) -> "Client":
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

    def __init__(self, address: str) -> None:
        self._address = address
        self._received = bytearray()
        self._lines: deque[bytes] = deque()
        self._waiting: dict[SubscriptionId, deque[Event]] = {}
        self._answers: dict[int, list[Event]] = {}
        """Of the requests that are open."""
        self._asked = 0
        try:
            self._socket = _connected(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WorkError(f"no node answers at {address} ({reason}); is `driftcast node` running there?") from None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; subscriptions without a name end."""
        self._socket.close()

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes = b"",
        lease_s: float | None = None,
        access: str | None = None,
    ) -> EventId:
        """Publish an event; its id."""
        question = self._publication(attributes, payload, lease_s, access)
        return self._ask(question, Published).event

    def publish_all(
        self,
        events: Iterable[tuple[Mapping[str, Scalar], bytes]],
        lease_s: float | None = None,
        access: str | None = None,
    ) -> Iterator[EventId]:
        """Publish many, each with its attributes and payload; their ids, in order. The next go out before the node has
        answered for the last, so that this is as fast as the node is."""
        open_: deque[Publish] = deque()
        for attributes, payload in events:
            question = self._publication(attributes, payload, lease_s, access)
            self._send(question)
            open_.append(question)
            while len(open_) >= AHEAD:
                yield self._answer(open_.popleft(), Published).event
        while open_:
            yield self._answer(open_.popleft(), Published).event

    def subscribe(
        self,
        filter: str = "",
        name: str | None = None,
        lease_s: float | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
        history: bool = False,
    ) -> "Deliveries":
        """Subscribe at once; the events come by iterating. With a name the subscription outlives this connection.

        With a processor the filter selects what it is given, from that state on, and what it makes is delivered.
        With history, stored events from before come first, or when they do.
        """
        question = Subscribe(
            id=self._number(),
            filter=filter,
            name=name,
            lease_s=_lease(lease_s),
            attributes=dict(attributes or {}),
            processor=processor,
            state=state,
            history=history,
        )
        subscription = self._ask(question, Subscribed).subscription
        self._waiting.setdefault(subscription, deque())
        return Deliveries(self, subscription)

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """End a subscription, named or not."""
        self._ask(Unsubscribe(id=self._number(), subscription=subscription), Unsubscribed)
        self._waiting.pop(subscription, None)

    def move(self, position: tuple[float, float] | None, velocity: tuple[float, float] = (0.0, 0.0)) -> None:
        """Tell the node where it is, in meters, and how it moves, in meters per second; None if that is not known."""
        try:
            there = msgspec.convert(position, Position | None)
            moving = msgspec.convert(velocity, Velocity)
        except msgspec.ValidationError as error:
            raise UserError(f"position: {error}") from None
        self._ask(Move(id=self._number(), position=there, velocity=moving), Moved)

    def status(self) -> Status:
        """How the node is."""
        return self._ask(AskStatus(id=self._number()), Status)

    def watch(self, after: int | None = None) -> Watched:
        """What happened to events at the node from a number on; without one it begins now."""
        return self._ask(Watch(id=self._number(), after=after), Watched)

    def advertise(self, filter: str = "", stored: bool = False) -> None:
        """Events of a filter will come, or (`stored`) the node is to keep them, while this connection lasts."""
        self._ask(Advertise(id=self._number(), filter=filter, stored=stored), Advertised)

    def request(self, filter: str = "", patience_s: float = 10.0) -> tuple[list[Event], bool]:
        """The stored events of a filter, and whether they are all there are."""
        question = AskStored(id=self._number(), filter=filter, patience_s=patience_s)
        self._answers[question.id] = []
        try:
            closed = self._ask(question, Closed, ANSWER_S + patience_s)
        finally:
            found = self._answers.pop(question.id)
        return found, closed.complete

    def command(
        self, application: str, verb: str, body: Mapping[str, object] | None = None, patience_s: float = 0.0
    ) -> dict[str, object]:
        """Tell an application of the node to do something; what it says. A UserError if it refuses."""
        question = Command(id=self._number(), application=application, verb=verb, body=dict(body or {}))
        said = self._ask(question, Commanded, ANSWER_S + patience_s).body
        if "error" in said and "clashes" not in said:
            raise UserError(str(said["error"]))
        return said

    def next_event(self, subscription: SubscriptionId, timeout_s: float | None = None) -> Event | None:
        """The next event of a subscription, or None if none comes in time."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            waiting = self._waiting.get(subscription)
            if waiting is None:
                return None
            if waiting:
                return waiting.popleft()
            reply = self._read(deadline)
            if reply is None:
                return None
            if isinstance(reply, Refused):
                raise WorkError(f"the node at {self._address} hung up: {reply.message}")

    def _publication(
        self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float | None, access: str | None
    ) -> Publish:
        return Publish(
            id=self._number(), attributes=dict(attributes), payload=payload, lease_s=_lease(lease_s), access=access
        )

    def _number(self) -> int:
        self._asked += 1
        return self._asked

    def _ask(self, question: Question, expected: type[A], patience_s: float = ANSWER_S) -> A:
        self._send(question)
        return self._answer(question, expected, patience_s)

    def _send(self, question: Question) -> None:
        line = _encode(question) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"at most {MAX_LINE_BYTES} bytes fit through the control channel, not {len(line)}")
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.sendall(line)
        except OSError as error:
            raise LostError(f"the node at {self._address} is gone: {error.strerror or error}") from None

    def _answer(self, question: Question, expected: type[A], patience_s: float = ANSWER_S) -> A:
        deadline = time.monotonic() + patience_s
        while True:
            reply = self._read(deadline)
            if reply is None:
                raise WorkError(f"the node at {self._address} does not answer")
            if isinstance(reply, Refused) and reply.id in (0, question.id):
                raise UserError(reply.message) if reply.wrong_use else WorkError(reply.message)
            if isinstance(reply, expected) and reply.id == question.id:
                return reply

    def _read(self, deadline: float) -> Reply | None:
        """The next reply, with deliveries put where they wait; None at the deadline."""
        while not self._lines:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                return None
            try:
                self._socket.settimeout(None if math.isinf(wait_s) else wait_s)
                chunk = self._socket.recv(CHUNK_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise LostError(f"the node at {self._address} is gone: {error.strerror or error}") from None
            if not chunk:
                raise LostError(f"the node at {self._address} hung up")
            self._received += chunk
            *lines, rest = self._received.split(b"\n")
            self._received = rest
            self._lines.extend(bytes(line) for line in lines)
        try:
            reply = _decoder.decode(self._lines.popleft())
        except (msgspec.MsgspecError, ValueError) as error:
            raise WorkError(f"what answers at {self._address} is no node of driftcast: {error}") from None
        if isinstance(reply, Answered) and reply.id in self._answers:
            self._answers[reply.id].append(_event(reply))
        if isinstance(reply, Delivered):
            self._waiting.setdefault(reply.subscription, deque()).append(_event(reply))
        return reply


class Deliveries(Iterator[Event]):
    """The events of one subscription, as they come. Iterating waits for ever; `next_event` has a limit."""

    def __init__(self, client: Client, subscription: SubscriptionId) -> None:
        self.subscription = subscription
        self._client = client

    def __next__(self) -> Event:
        event = self._client.next_event(self.subscription)
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None if none comes in time."""
        return self._client.next_event(self.subscription, timeout_s)

    def close(self) -> None:
        """End the subscription."""
        self._client.unsubscribe(self.subscription)


def _connected(address: str) -> socket.socket:
    if re.search(r":[0-9]+$", address):
        return socket.create_connection(parse_address(address), CONNECT_S)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(CONNECT_S)
        connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


def _lease(lease_s: float | None) -> float | None:
    if lease_s is not None and not lease_s > 0:
        raise UserError("a lease is longer than 0 s")
    return None if lease_s is None or math.isinf(lease_s) else lease_s


def _event(delivered: Delivered | Answered) -> Event:
    lease_s = FOREVER_S if delivered.lease_s is None else delivered.lease_s
    derived = tuple(delivered.derived_from) if isinstance(delivered, Delivered) else ()
    return Event(
        delivered.event, delivered.attributes, delivered.payload, delivered.time_s, lease_s, derived_from=derived
    )
