"""What a state machine may know of its node: it declares what it reads, and a world without it says so at loading."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity
from carrycast.core.model.wall import Wall
from carrycast.core.wire import Codec, decoder_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Capability(enum.StrEnum):
    """Something a world may or may not offer to the protocols in it."""

    POSITION = "position"
    VELOCITY = "velocity"
    AREA = "area"
    """The rectangle in which nodes move, the same for all."""
    MAP = "map"
    """The roads on which they move, the same for all."""
    LOAD = "load"
    MEMORY = "memory"
    ENERGY = "energy"
    DURABLE_STORE = "durable store"
    DIRECTORY = "directory"
    """Who has which role, known to everybody beforehand."""
    NODE_NAMES = "names of nodes"
    """Nodes have names, which their configurations give them; in a scenario they have numbers alone."""
    CALENDAR = "calendar"
    """The date and the time of day, as right as the node's clock is."""
    OVERHEARING = "overhearing"
    """Frames that are meant for others; a router that declares it is told (`on_overheard`)."""
    DISTANCES = "distances"
    """How many hops it is to others, as the router beneath counts them. The router offers it, not the world."""
    NODE_ROUTES = "routes to nodes"
    """The router beneath brings packets to a node wherever it is, by its id alone."""
    PLACE_ROUTES = "routes to places"
    """The router beneath brings packets to whoever is at a position."""
    GLOBAL_VIEW = "global view"
    """What no real node can know; the simulator alone offers it, for bounds and "best" schemes."""


HopsTo: TypeAlias = Callable[[float, NodeId], int | None]
"""How a router tells how far it is to a node."""


class DurableStore(ABC):
    """Bytes by key that outlive a crash. Each layer of each node sees a store of its own."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; it is durable before anything that the handler does is seen outside of the node."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Forget a key; one that is not there is no mistake."""

    @abstractmethod
    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        """Everything whose key begins so, ordered by key."""


class GlobalView(ABC):
    """The whole network at this moment; for oracles in the simulator only."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Another number after each change of a link, over whatever interface; who has computed something from links
        computes it again when this has changed, and not before."""

    @abstractmethod
    def neighbors(self, node: NodeId) -> Iterable[NodeId]:
        """Who is linked with a node right now, over whatever interface."""

    @abstractmethod
    def hops(self) -> "NDArray[np.int16]":
        """The length of the shortest path from each node (row) to each (column); -1 where there is none.

        The same array, which cannot be written to, until a link changes.
        """

    @abstractmethod
    def position(self, node: NodeId) -> Position | None:
        """Where any node is right now; None while it is absent."""


class Host(ABC):
    """One node, seen by its protocol. Every reading is sampled at `now`, the node's own clock."""

    offers: frozenset[Capability]
    name: str = ""
    """What people call the node; empty where nodes have numbers alone."""
    roles: tuple[str, ...]
    """What the scenario or the node's config has this node be."""
    incarnation: int
    """Grows with each start of the node, so that counters that begin anew can be told from old ones; below 2^31."""
    _hops_to: HopsTo | None = None
    _codec: Codec | None = None

    def attach_router(self, offers: frozenset[Capability], hops_to: HopsTo) -> None:
        """The stack has put a router beneath the layer that this is told to, and the router offers so much."""
        self.offers |= offers
        if Capability.DISTANCES in offers:
            self._hops_to = hops_to

    def set_codec(self, codec: Codec) -> None:
        """The stack says how messages of the layer are read that this is told to."""
        self._codec = codec

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        """How a machine reads, as one of some kinds, bytes of others that it has put together itself. A world that
        judges messages before a machine sees them judges these too, so they are read by nothing else. Whatever the
        bytes are, the only exception is DecodeError."""
        return decoder_of(kinds) if self._codec is None else self._codec.decoder(kinds)

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """How many hops it is to a node as the router beneath knows it (`Capability.DISTANCES`), 0 to the own; None if
        it knows no way right now. To ask makes it look for none."""
        if self._hops_to is None:
            raise TypeError(
                "there is no router here that counts hops; a protocol that reads them declares it in `needs`"
            )
        return self._hops_to(now, target)

    @abstractmethod
    def position(self, now: float) -> Position | None:
        """Where the node is (`Capability.POSITION`); None while it is nowhere, as a vehicle that is not on the map."""

    @abstractmethod
    def velocity(self, now: float) -> Velocity | None:
        """How it moves (`Capability.VELOCITY`); None while it is nowhere."""

    @abstractmethod
    def load(self, now: float) -> float:
        """The share of the last seconds in which it worked, 0 to 1 (`Capability.LOAD`); its own work alone."""

    @abstractmethod
    def free_memory_bytes(self, now: float) -> int:
        """How much memory is left to it (`Capability.MEMORY`)."""

    @abstractmethod
    def energy(self, now: float) -> float:
        """What is left of its battery, 0 to 1 (`Capability.ENERGY`)."""

    @abstractmethod
    def directory(self, role: str) -> tuple[NodeId, ...]:
        """The nodes of a role (`Capability.DIRECTORY`); "all" is the role that every node has."""

    def calendar(self, now: float) -> Wall:
        """The date and the time of day (`Capability.CALENDAR`). Nodes compare it with what people wrote, never with
        each other's."""
        raise LookupError("this node has no calendar")

    @property
    @abstractmethod
    def area(self) -> Area:
        """The ground that nodes move on (`Capability.AREA`)."""

    @abstractmethod
    def road_map(self) -> RoadMap:
        """The roads they move on (`Capability.MAP`); the same value at every call."""

    @property
    @abstractmethod
    def store(self) -> DurableStore:
        """What outlives a crash (`Capability.DURABLE_STORE`)."""

    @property
    @abstractmethod
    def global_view(self) -> GlobalView:
        """What no real node can know (`Capability.GLOBAL_VIEW`)."""

    @property
    @abstractmethod
    def processors(self) -> tuple[Processor, ...]:
        """The processors whose functions this node can run."""
