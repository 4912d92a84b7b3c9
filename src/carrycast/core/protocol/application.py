"""Applications as pure state machines: the same object reacts in the simulator and on a live node.

Applications run above the stack and do what any client does: publish, subscribe, advertise and request stored events.
An application refers to its subscriptions, advertisements, requests and timers by keys that it chooses; the host
assigns the ids. As for a protocol, port calls are carried out after the handler has returned, and handlers default to
nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import ClassVar, TypeAlias

from carrycast.core.model import FOREVER_S, Event, NodeId, Scalar
from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.core.protocol.host import Capability, Host
from carrycast.core.protocol.machine import Settings
from carrycast.core.protocol.port import Fact

Key: TypeAlias = str
"""An application's own name for one of its subscriptions, advertisements, requests or timers."""


class ApplicationPort(ABC):
    """The calls that an application may make."""

    __slots__ = ()

    @abstractmethod
    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes = b"",
        lease_s: float = FOREVER_S,
        access: str | None = None,
    ) -> None:
        """Publish an event with a new id."""

    @abstractmethod
    def subscribe(self, key: Key, filter: str) -> None:
        """Subscribe: `on_event` is called for each event. A subscription under the same key is replaced."""

    @abstractmethod
    def unsubscribe(self, key: Key) -> None:
        """End a subscription; an unknown key is ignored."""

    @abstractmethod
    def advertise(self, key: Key, filter: str, stored: bool = False) -> None:
        """Advertise that events of a filter will be published here, or (`stored`) are stored here."""

    @abstractmethod
    def unadvertise(self, key: Key) -> None:
        """End an advertisement; an unknown key is ignored."""

    @abstractmethod
    def request(self, key: Key, filter: str, patience_s: float = 10.0, elsewhere: bool = False) -> None:
        """Request stored events: `on_answer` for each, then exactly one `on_closed`, unless the key is used again.

        `elsewhere`: ask other nodes even if this node stores such events itself.
        """

    @abstractmethod
    def set_timer(self, key: Key, delay_s: float) -> None:
        """Call `on_timer(key)` after a delay; an armed key is replaced."""

    @abstractmethod
    def cancel_timer(self, key: Key) -> None:
        """Disarm a timer; an unknown key is ignored."""

    @abstractmethod
    def perform(self, token: int, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        """Perform a management action on the node: "set" a setting or "run" a command. `on_performed` reports the
        outcome, exactly once."""

    @abstractmethod
    def reply(self, command: int, body: bytes) -> None:
        """Answer a command; exactly one answer per command."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """Record a fact in the trace."""


class Application:
    """A state machine above the protocol. After a crash it is a new object; only its durable store survives."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    settings_type: ClassVar[type[Settings]] = Settings
    needs: ClassVar[frozenset[Capability]] = frozenset()

    node: NodeId
    port: ApplicationPort
    host: Host
    rng: Random

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        self.node = node
        self.port = port
        self.host = host
        self.rng = rng

    def on_start(self, now: float) -> None:
        """The node is up."""

    def on_stop(self, now: float) -> None:
        """The node stops cleanly; the application's subscriptions and advertisements end."""

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        """An event for a subscription."""

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        """A stored event for a request."""

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        """The request is closed: no more answers follow. `complete` if every matching stored event was returned."""

    def on_timer(self, now: float, key: Key) -> None:
        """A timer has fired."""

    def on_performed(self, now: float, token: int, error: str) -> None:
        """The outcome of a management action; `error` is empty if it succeeded."""

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """A command from a client of the node; `port.reply(command, ...)` answers it."""
        self.port.reply(command, b'{"error":"this application takes no commands"}')


def applications() -> dict[str, type[Application]]:
    """All applications by name."""
    return {name: find_application(name) for name in plugin_names("services")}


def find_application(name: str) -> type[Application]:
    """Return the class of an application. For an unknown name, the UserError lists the known ones."""
    return find_plugin("services", name)
