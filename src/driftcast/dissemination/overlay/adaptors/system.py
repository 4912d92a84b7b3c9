"""The system channel [002 §3.3, §3.5]: components post events, adaptors say in which they are interested."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypeAlias

from driftcast.dissemination.overlay.brokers import Brokers
from driftcast.dissemination.overlay.clients import Clients
from driftcast.dissemination.overlay.messages import Item
from driftcast.dissemination.overlay.modulators import Modulators
from driftcast.dissemination.overlay.monitor import ResourceMonitor
from driftcast.dissemination.overlay.production import Productions
from driftcast.dissemination.overlay.relocation import Relocation
from driftcast.dissemination.overlay.rules import Found
from driftcast.dissemination.overlay.station import Station
from driftcast.model import NodeId


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
