"""What a node's stack tells whatever stands above it."""

from abc import ABC, abstractmethod

from carrycast.core.model import Event, EventId, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol.effects import Process


class Applications(ABC):
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
