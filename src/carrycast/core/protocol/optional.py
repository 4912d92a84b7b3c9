"""What only some protocols do. A class declares it by inheriting the interface; the docs' table is made from that."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from carrycast.core.model import Advertisement, Event, EventId, NodeId, Processor, Request, RequestId
from carrycast.core.protocol.port import Place, Token
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message


class Advertises(ABC):
    """Makes use of advertisements by local applications."""

    @abstractmethod
    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """A local application states that it will publish, or keeps, events of a filter."""

    @abstractmethod
    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        """It no longer does."""


class AnswersRequests(ABC):
    """Retrieves stored events: `port.answer` brings each to the application that asked."""

    @abstractmethod
    def on_request(self, now: float, request: Request) -> None:
        """A local application asks for stored events. The request stays open until it is answered or its patience is
        over, or nobody waits for it any more."""

    @abstractmethod
    def on_request_canceled(self, now: float, request: RequestId) -> None:
        """Nobody waits for the answers any more; `port.close_request` need not follow."""


class KeepsEvents(ABC):
    """Holds what is published until its lease is over, whoever is in reach, and brings it to whom it meets."""

    @property
    @abstractmethod
    def log(self) -> RetentionLog | None:
        """What it holds, in the durable store when a handler has returned; None if it holds events in memory only."""

    @property
    @abstractmethod
    def room(self) -> Usage:
        """How many events, and of a log how many bytes, it holds of those that make room for others."""

    @property
    def durable(self) -> bool:
        """Whether events can be published at level `stored`."""
        return self.log is not None


class AcknowledgesReplicas(ABC):
    """Reports which neighbors hold a replica of an event, for publishers that wait until enough of them do."""

    @abstractmethod
    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        """The publisher of an event waits for `copies` replicas. The protocol calls `port.acknowledge_replica` once for
        each neighbor that holds the event, until that number is reached or the event is gone."""


class RunsProcessors(ABC):
    """Places processors on paths. Their code runs in the world, never in a handler."""

    serves_subscriptions: ClassVar[bool] = False
    """Whether it runs the processor that a subscription names on what its filter selects, and delivers what that makes.
    Others take no notice of it, and are refused with such subscriptions."""

    @abstractmethod
    def on_processor(self, now: float, processor: Processor) -> None:
        """This node can run a processor from now on."""

    @abstractmethod
    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of `port.process`; exactly one for each. `error` is empty when it went well."""


class UsesRouter(ABC):
    """Sends through a router beneath (`port.route`), and may say through which."""

    router: ClassVar[str | Mapping[str, object]] = ""
    """The router it brings along, as a name, `name/variant` or a table; without one a scenario has to name it. A
    variant may name another under the key `router`."""

    @abstractmethod
    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        """A routed message has arrived."""

    @abstractmethod
    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        """The router gave up on a message of this node's."""


def log_of(protocol: object) -> RetentionLog | None:
    """The retention log of a protocol, if it keeps events in the durable store."""
    return protocol.log if isinstance(protocol, KeepsEvents) else None


def serves_processors(protocol: type) -> bool:
    """Whether a subscription that names a processor is served."""
    return issubclass(protocol, RunsProcessors) and protocol.serves_subscriptions


INTERFACES: tuple[type[ABC], ...] = (
    Advertises,
    AnswersRequests,
    AcknowledgesReplicas,
    KeepsEvents,
    RunsProcessors,
    UsesRouter,
)
