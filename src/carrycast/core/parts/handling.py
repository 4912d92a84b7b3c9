"""What the user of an outbox or a channel says of its messages and its peers, and what it is told."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Interface
from carrycast.core.wire import Message


class Way(NamedTuple):
    """Over what a peer is reached: an interface, and the cost of that link if it is known."""

    interface: Interface | None
    cost_s: float | None = None


class Ways(ABC):
    """Over what peers can be reached; the user's knowledge of links or routes."""

    @abstractmethod
    def way(self, peer: NodeId) -> Way | None:
        """The best way to a peer, or None."""

    @abstractmethod
    def again(self, peer: NodeId, way: Way) -> Way | None:
        """The way for one more try of what failed on a way: perhaps the same; None if that is not worth it."""

    @abstractmethod
    def failed(self, peer: NodeId, way: Way) -> None:
        """A message could not be delivered over a way, whatever was tried."""


class Handling:
    """What the user of an outbox says of its messages. As it stands: nothing supersedes, all may wait."""

    def key(self, message: Message) -> Hashable:
        """Under what a later message may supersede this one; None if none does."""
        return None

    def supersedes(self, message: Message) -> Hashable:
        """The key of the messages that must not arrive after this one; None if there are none."""
        return self.key(message)

    def waits(self, message: Message) -> bool:
        """Whether it is tried again when a queue was full."""
        return True

    def moved(self, message: Message, before: Way, after: Way) -> Message:
        """The message as it has to read over another way."""
        return message


class GivenUp(NamedTuple):
    """A message that was not delivered, as far as can be known: it may have arrived all the same."""

    peer: NodeId
    message: Message
    cause: Failure
    lost: bool = False
    """Whether the last way to the peer went with it."""
