"""The interface of a node that the client API and the gateways use."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from carrycast.core.model import Event, EventId, Position, ProcessorId, Scalar, SubscriptionId, Velocity
from carrycast.errors import UserError, WorkError
from carrycast.node.api.durable_subscription import Consumer
from carrycast.node.api.messages import Status
from carrycast.node.api.subscriptions import Listener
from carrycast.node.recorder import NodeRecorder
from carrycast.node.runtime import Cancel, OnReply, PublicationRequest, RequiredCopies
from carrycast.node.storage import OnCommitted


class NodeInterface(Protocol):
    """A running node, as its servers use it. `LiveNode` documents the methods."""

    @property
    def recorder(self) -> NodeRecorder: ...

    def is_busy(self, more: int = 0) -> bool: ...

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes,
        lease_s: float,
        access: str | None,
        on_stored: OnCommitted | None,
        copies: RequiredCopies | None,
    ) -> EventId: ...

    def publish_all(self, publications: Sequence[PublicationRequest]) -> list[EventId | UserError | WorkError]: ...

    def subscribe(
        self,
        filter: str,
        listener: Listener | Consumer | None,
        name: str | None,
        lease_s: float,
        attributes: Mapping[str, Scalar] | None,
        processor: ProcessorId | None,
        state: bytes,
        history: bool,
    ) -> SubscriptionId: ...

    def acknowledge(
        self, subscription: SubscriptionId, positions: list[int], on_committed: OnCommitted | None
    ) -> None: ...

    def unsubscribe(self, subscription: SubscriptionId) -> bool: ...

    def detach(self, subscription: SubscriptionId) -> None: ...

    def advertise(self, filter: str, stored: bool) -> Cancel: ...

    def request(
        self,
        filter: str,
        patience_s: float,
        on_answer: Callable[[Event, int], None],
        on_closed: Callable[[bool], None],
    ) -> Cancel: ...

    def command(self, application: str, verb: str, body: bytes, on_reply: OnReply) -> Cancel: ...

    def move(self, position: Position | None, velocity: Velocity) -> None: ...

    def status(self) -> Status: ...

    def note_drop(self, reason: str) -> None: ...
