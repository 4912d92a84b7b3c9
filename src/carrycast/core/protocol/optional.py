"""Optional interfaces of protocols. A protocol class inherits those it supports."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from carrycast.core.model import Advertisement, Event, EventId, NodeId, Processor, Request, RequestId
from carrycast.core.protocol.port import Place, Token
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message


class Advertises(ABC):
    """Uses the advertisements of local applications."""

    @abstractmethod
    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        """A local application advertises that it will publish, or stores, events of a filter."""

    @abstractmethod
    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        """The advertisement ends."""


class AnswersRequests(ABC):
    """Retrieves stored events: `port.answer` returns each to the requesting application."""

    @abstractmethod
    def on_request(self, now: float, request: Request) -> None:
        """A local application requests stored events. The request stays open until it is answered, its patience expires
        or it is canceled."""

    @abstractmethod
    def on_request_canceled(self, now: float, request: RequestId) -> None:
        """The application canceled the request; `port.close_request` need not follow."""


class KeepsEvents(ABC):
    """Keeps published events until their leases expire and forwards them at later contacts (store-carry-forward)."""

    @property
    @abstractmethod
    def log(self) -> RetentionLog | None:
        """The retention log in the durable store; None if events are only in memory."""

    @property
    @abstractmethod
    def room(self) -> Usage:
        """The capacity for events that may be evicted: their number, and their bytes in a log."""

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
    """Runs processors on the path of events. Their code runs in the environment, never in a handler."""

    serves_subscriptions: ClassVar[bool] = False
    """Whether the protocol applies the processor that a subscription names to the events that its filter selects, and
    delivers the results. Other protocols are refused with such subscriptions."""

    @abstractmethod
    def on_processor(self, now: float, processor: Processor) -> None:
        """This node can run a processor."""

    @abstractmethod
    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of `port.process`; exactly one for each call. `error` is empty if the call succeeded."""


class UsesRouter(ABC):
    """Sends through a router (`port.route`), and may name a default router."""

    router: ClassVar[str | Mapping[str, object]] = ""
    """The default router: a name, `name/variant` or a table. Without a default, the scenario names one. A variant may
    name another under the key `router`."""

    @abstractmethod
    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        """A routed message has arrived."""

    @abstractmethod
    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        """The router could not deliver a message of this node."""


def log_of(protocol: object) -> RetentionLog | None:
    """The retention log of a protocol; None if it has none."""
    return protocol.log if isinstance(protocol, KeepsEvents) else None


def serves_processors(protocol: type) -> bool:
    """Whether a protocol supports subscriptions that name a processor."""
    return issubclass(protocol, RunsProcessors) and protocol.serves_subscriptions


INTERFACES: tuple[type[ABC], ...] = (
    Advertises,
    AnswersRequests,
    AcknowledgesReplicas,
    KeepsEvents,
    RunsProcessors,
    UsesRouter,
)
