"""Effects as values: the calls of a port, in order.

The node runtime runs handlers against a `BufferedPort` and carries out the effects after the handler has returned, so
a handler that raises has no effect. Tests read the same values: `assert port.take() == [Broadcast(message)]`.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from carrycast.core.model import Event, EventId, NodeId, ProcessorId, RequestId, SubscriptionId
from carrycast.core.protocol.port import Fact, Interface, Place, Port, TimerKey, Token
from carrycast.core.wire import Message


class Send(msgspec.Struct, frozen=True, gc=False):
    """`port.send`"""

    target: NodeId
    message: Message
    via: Interface | None = None
    token: Token | None = None


class Broadcast(msgspec.Struct, frozen=True, gc=False):
    """`port.broadcast`"""

    message: Message
    on: Interface | None = None


class SendRouted(msgspec.Struct, frozen=True, gc=False):
    """`port.route`"""

    target: NodeId | Place
    message: Message


class SendRoutedEach(msgspec.Struct, frozen=True, gc=False):
    """`port.route_each`"""

    targets: tuple[NodeId | Place, ...]
    message: Message


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """`port.set_timer`"""

    key: TimerKey
    delay_s: float


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """`port.cancel_timer`"""

    key: TimerKey


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """`port.deliver`"""

    subscription: SubscriptionId
    event: Event
    hops: int


class AnswerRequest(msgspec.Struct, frozen=True, gc=False):
    """`port.answer`"""

    request: RequestId
    event: Event
    hops: int


class CloseRequest(msgspec.Struct, frozen=True, gc=False):
    """`port.close_request`"""

    request: RequestId
    complete: bool


class CloseHistory(msgspec.Struct, frozen=True, gc=False):
    """`port.close_history`"""

    subscription: SubscriptionId
    complete: bool


class AcknowledgeReplica(msgspec.Struct, frozen=True, gc=False):
    """`port.acknowledge_replica`"""

    event: EventId
    neighbor: NodeId


class Process(msgspec.Struct, frozen=True, gc=False):
    """`port.process`"""

    processor: ProcessorId
    state: bytes
    events: tuple[Event, ...]
    token: Token


class Note(msgspec.Struct, frozen=True, gc=False):
    """`port.note`"""

    fact: Fact


Effect: TypeAlias = (
    Send
    | Broadcast
    | SendRouted
    | SendRoutedEach
    | SetTimer
    | CancelTimer
    | Deliver
    | AnswerRequest
    | CloseRequest
    | CloseHistory
    | AcknowledgeReplica
    | Process
    | Note
)


class BufferedPort(Port):
    """Queues effects until they are taken."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """Everything since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def send(self, target: NodeId, message: Message, via: Interface | None = None, token: Token | None = None) -> None:
        self._effects.append(Send(target, message, via, token))

    def broadcast(self, message: Message, on: Interface | None = None) -> None:
        self._effects.append(Broadcast(message, on))

    def route(self, target: NodeId | Place, message: Message) -> None:
        self._effects.append(SendRouted(target, message))

    def route_each(self, targets: Sequence[NodeId | Place], message: Message) -> None:
        self._effects.append(SendRoutedEach(tuple(targets), message))

    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        self._effects.append(SetTimer(key, delay_s))

    def cancel_timer(self, key: TimerKey) -> None:
        self._effects.append(CancelTimer(key))

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self._effects.append(Deliver(subscription, event, hops))

    def answer(self, request: RequestId, event: Event, hops: int) -> None:
        self._effects.append(AnswerRequest(request, event, hops))

    def close_request(self, request: RequestId, complete: bool) -> None:
        self._effects.append(CloseRequest(request, complete))

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        self._effects.append(CloseHistory(subscription, complete))

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._effects.append(AcknowledgeReplica(event, neighbor))

    def process(self, processor: ProcessorId, state: bytes, events: Sequence[Event], token: Token) -> None:
        self._effects.append(Process(processor, state, tuple(events), token))

    def note(self, fact: Fact) -> None:
        self._effects.append(Note(fact))


class RecordingPort(BufferedPort):
    """A buffered port for tests."""

    __slots__ = ()

    def take_messages(self) -> list[Message]:
        """The messages sent, broadcast or routed, in order; other effects are discarded."""
        return [
            effect.message
            for effect in self.take()
            if isinstance(effect, Send | Broadcast | SendRouted | SendRoutedEach)
        ]
