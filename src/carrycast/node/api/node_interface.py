"""What the control channel asks of the node behind it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from carrycast.core.model import Event, EventId, Position, ProcessorId, Scalar, SubscriptionId, Velocity
from carrycast.errors import UserError, WorkError
from carrycast.node.api.consumer import Reader
from carrycast.node.api.messages import Status
from carrycast.node.api.subscribers import Listener
from carrycast.node.recorder import NodeRecorder
from carrycast.node.runtime.application_host import Forget, Replied
from carrycast.node.runtime.publisher import PublicationRequest
from carrycast.node.runtime.replication import RequiredCopies
from carrycast.node.storage.group_commit import OnCommitted


class NodeInterface(Protocol):
    """What the door asks of the node behind it."""

    @property
    def recorder(self) -> NodeRecorder: ...

    def is_busy(self, more: int = 0) -> bool: ...

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes,
        lease_s: float,
        access: str | None,
        stored: OnCommitted | None,
        copies: RequiredCopies | None,
    ) -> EventId: ...

    def publish_all(self, publications: Sequence[PublicationRequest]) -> list[EventId | UserError | WorkError]: ...

    def subscribe(
        self,
        filter: str,
        listener: Listener | Reader | None,
        name: str | None,
        lease_s: float,
        attributes: Mapping[str, Scalar] | None,
        processor: ProcessorId | None,
        state: bytes,
        history: bool,
    ) -> SubscriptionId: ...

    def acknowledge(self, subscription: SubscriptionId, positions: list[int], saved: OnCommitted | None) -> None: ...

    def unsubscribe(self, subscription: SubscriptionId) -> bool: ...

    def detach(self, subscription: SubscriptionId) -> None: ...

    def advertise(self, filter: str, stored: bool) -> Forget: ...

    def request(
        self,
        filter: str,
        patience_s: float,
        answered: Callable[[Event, int], None],
        closed: Callable[[bool], None],
    ) -> Forget: ...

    def command(self, application: str, verb: str, body: bytes, replied: Replied) -> Forget: ...

    def move(self, position: Position | None, velocity: Velocity) -> None: ...

    def status(self) -> Status: ...

    def note_drop(self, reason: str) -> None: ...
