"""The application layer above a node's stack: it receives the deliveries and the other upward effects of a protocol."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from carrycast.core.model import Event, EventId, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol import Process

if TYPE_CHECKING:
    from carrycast.node.security import EventSignatures


class ApplicationLayer(ABC):
    """The interface through which the stack calls applications."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """Deliver an event to a local application."""

    @abstractmethod
    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        """Deliver a stored event to the application that requested it; False if there is no such request."""

    @abstractmethod
    def close_request(self, request: RequestId, complete: bool) -> bool:
        """End a request; False if there is no such request."""

    @abstractmethod
    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        """The stored events from before a subscription have been delivered, all of them if `complete`."""

    @abstractmethod
    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor holds an event whose replicas are acknowledged."""

    @abstractmethod
    def process(self, job: Process, refused: str = "") -> None:
        """Run a processor, or report to the protocol why it was refused."""


class VerifiedApplicationLayer(ApplicationLayer):
    """The application layer of a node with keys: drops events without a valid signature, and removes signatures."""

    def __init__(self, inner: ApplicationLayer, signatures: "EventSignatures", on_drop: Callable[[str], None]) -> None:
        self._inner = inner
        self._signatures = signatures
        self._on_drop = on_drop

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        if self._is_verified(event):
            self._inner.deliver(subscription, self._signatures.strip(event), hops)

    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        # A dropped event is reported as taken, because the request exists.
        return self._inner.answer(request, self._signatures.strip(event), hops) if self._is_verified(event) else True

    def close_request(self, request: RequestId, complete: bool) -> bool:
        return self._inner.close_request(request, complete)

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        self._inner.close_history(subscription, complete)

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._inner.acknowledge_replica(event, neighbor)

    def process(self, job: Process, refused: str = "") -> None:
        # The protocol waits for an outcome, so a flaw is reported there.
        refused = refused or next(filter(None, map(self._signatures.verify, job.events)), "")
        events = job.events if refused else tuple(map(self._signatures.strip, job.events))
        self._inner.process(Process(job.processor, job.state, events, job.token), refused)

    def _is_verified(self, event: Event) -> bool:
        flaw = self._signatures.verify(event)
        if flaw is not None:
            self._on_drop(flaw)
        return flaw is None
