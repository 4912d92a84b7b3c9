"""Applications as pure state machines: the same object reacts in the simulator and on a live node.

They stand above the stack and see what any client sees: they publish, subscribe, advertise and ask for stored events.
What they name they name themselves, by a word (`key`); ids are the host's affair. As with a protocol, calls of the port
are commands that are carried out when the handler has returned, and handlers default to nothing.
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
"""An application's own name for a subscription, an advertisement, a request or a timer of its."""


class ApplicationPort(ABC):
    """What an application may do."""

    __slots__ = ()

    @abstractmethod
    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes = b"",
        lease_s: float = FOREVER_S,
        access: str | None = None,
    ) -> None:
        """An event with a new id."""

    @abstractmethod
    def subscribe(self, key: Key, filter: str) -> None:
        """`on_event` follows for each event; a key that is in use is another subscription from now on."""

    @abstractmethod
    def unsubscribe(self, key: Key) -> None:
        """End it; one that is not there is no mistake."""

    @abstractmethod
    def advertise(self, key: Key, filter: str, stored: bool = False) -> None:
        """Events of a filter will come from here, or (`stored`) are to be kept here for later."""

    @abstractmethod
    def unadvertise(self, key: Key) -> None:
        """No longer; one that is not there is no mistake."""

    @abstractmethod
    def request(self, key: Key, filter: str, patience_s: float = 10.0, elsewhere: bool = False) -> None:
        """Ask for stored events: `on_answer` for each, then exactly one `on_closed`, unless the key is used again.

        `elsewhere`: of other nodes, even if this one keeps such events itself.
        """

    @abstractmethod
    def set_timer(self, key: Key, delay_s: float) -> None:
        """Call `on_timer(key)` after a delay; an armed key is replaced."""

    @abstractmethod
    def cancel_timer(self, key: Key) -> None:
        """Disarm; one that is not armed is no mistake."""

    @abstractmethod
    def act(self, token: int, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        """Do something to the node itself: "set" one of its settings, "run" one of its commands. `on_acted` brings the
        outcome, exactly once."""

    @abstractmethod
    def reply(self, command: int, body: bytes) -> None:
        """The answer to a command, exactly one."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """A named fact for the trace."""


class Application:
    """Something that runs on a node and reacts. After a crash it is a new object; its durable store is as it was."""

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
        """The node stops cleanly; what the application subscribed to and advertised ends with it."""

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        """An event for a subscription."""

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        """A stored event for a request."""

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        """No more answers will come; `complete` if these were all there are."""

    def on_timer(self, now: float, key: Key) -> None:
        """A timer has run out."""

    def on_acted(self, now: float, token: int, error: str) -> None:
        """What was to be done to the node is done; `error` is empty when it went well, else why not."""

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """Somebody at the node wants something; `port.reply(command, ...)` answers."""
        self.port.reply(command, b'{"error":"this application takes no commands"}')


def applications() -> dict[str, type[Application]]:
    """Every application there is, by name."""
    return {name: application_named(name) for name in plugin_names("services")}


def application_named(name: str) -> type[Application]:
    """An application's class; a UserError names those there are."""
    return find_plugin("services", name)
