"""The system channel [002 §3.3, §3.5]: components post events, adaptors say in which they are interested."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.brokers import Brokers
from carrycast.protocols.overlay.clients import Clients
from carrycast.protocols.overlay.messages import Item
from carrycast.protocols.overlay.modulators import Modulators
from carrycast.protocols.overlay.monitor import ResourceMonitor
from carrycast.protocols.overlay.production import Productions
from carrycast.protocols.overlay.relocation import Relocation
from carrycast.protocols.overlay.rules import Found
from carrycast.protocols.overlay.station import Station


class LookedAround(NamedTuple):
    """A time event: the period is over, and these brokers were found near."""

    found: tuple[Found, ...]


class Propagated(NamedTuple):
    """A neighbor has passed on what is new to it."""

    origin: NodeId
    items: tuple[Item, ...]


class ClientReported(NamedTuple):
    """A client of this home has found a nearer broker."""

    client: NodeId
    broker: NodeId
    distance: float


class LoadSampled(NamedTuple):
    """The resource monitor has looked at this broker's load."""

    load: float


SystemEvent: TypeAlias = LookedAround | Propagated | ClientReported | LoadSampled


class Services(NamedTuple):
    """The basic components, as adaptors use them."""

    station: Station
    monitor: ResourceMonitor
    brokers: Brokers
    clients: Clients
    modulators: Modulators
    productions: Productions
    relocation: Relocation


class Adaptor(ABC):
    """One adaptation."""

    interests: ClassVar[tuple[type, ...]]
    """The events that it is told of."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @abstractmethod
    def process(self, now: float, event: SystemEvent) -> None:
        """React to an event."""


class SystemChannel:
    """Brings each event to those who are interested, in the order in which they registered."""

    def __init__(self) -> None:
        self._adaptors: list[Adaptor] = []

    def register(self, adaptor: Adaptor) -> None:
        """An adaptor wants to be told."""
        self._adaptors.append(adaptor)

    def post(self, now: float, event: SystemEvent) -> None:
        """Something has happened."""
        for adaptor in self._adaptors:
            if isinstance(event, adaptor.interests):
                adaptor.process(now, event)
