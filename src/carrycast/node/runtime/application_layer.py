"""What a node's stack tells whatever stands above it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from carrycast.core.model import Event, EventId, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol.effects import Process

if TYPE_CHECKING:
    from carrycast.node.security.event_signatures import Signatures


class ApplicationLayer(ABC):
    """What stands above the stack."""

    @abstractmethod
    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event for a local application."""

    @abstractmethod
    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        """A stored event for a local application; False if none asked."""

    @abstractmethod
    def close_request(self, request: RequestId, complete: bool) -> bool:
        """No more will come; False if none asked."""

    @abstractmethod
    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        """What was stored before a subscription has been delivered, all of it if `complete`."""

    @abstractmethod
    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor holds an event that an application wants to be held."""

    @abstractmethod
    def process(self, job: Process, refused: str = "") -> None:
        """User code is to be run, or has to be answered for why it is not."""


class VerifiedApplicationLayer(ApplicationLayer):
    """Between the stack and what stands above it."""

    def __init__(self, inner: ApplicationLayer, signatures: "Signatures", dropped: Callable[[str], None]) -> None:
        self._inner = inner
        self._signatures = signatures
        self._dropped = dropped

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        if self._counts(event):
            self._inner.deliver(subscription, self._signatures.plain(event), hops)

    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        # Who gets nothing of an answer has had it: the request stands.
        return self._inner.answer(request, self._signatures.plain(event), hops) if self._counts(event) else True

    def close_request(self, request: RequestId, complete: bool) -> bool:
        return self._inner.close_request(request, complete)

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        self._inner.close_history(subscription, complete)

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._inner.acknowledge_replica(event, neighbor)

    def process(self, job: Process, refused: str = "") -> None:
        # Who asked waits for an outcome, whatever it is; and that is where the reason is told.
        refused = refused or next(filter(None, map(self._signatures.flaw, job.events)), "")
        events = job.events if refused else tuple(map(self._signatures.plain, job.events))
        self._inner.process(Process(job.processor, job.state, events, job.token), refused)

    def _counts(self, event: Event) -> bool:
        flaw = self._signatures.flaw(event)
        if flaw is not None:
            self._dropped(flaw)
        return flaw is None
