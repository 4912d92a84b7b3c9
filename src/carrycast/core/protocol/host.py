"""The state of a node that its state machines can read. A machine declares the capabilities that it needs, and an
environment without them rejects it."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity, WallTime
from carrycast.core.wire import Codec, decoder_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Capability(enum.StrEnum):
    """Something that an environment may offer to protocols."""

    POSITION = "position"
    VELOCITY = "velocity"
    AREA = "area"
    """The rectangle in which nodes move, the same for all."""
    MAP = "map"
    """The roads on which nodes move, the same for all."""
    LOAD = "load"
    MEMORY = "memory"
    ENERGY = "energy"
    DURABLE_STORE = "durable store"
    DIRECTORY = "directory"
    """The nodes of each role, known to all nodes in advance."""
    NODE_NAMES = "names of nodes"
    """Nodes have configured names; in a scenario they only have numbers."""
    CALENDAR = "calendar"
    """The date and time of day, as accurate as the node's clock."""
    OVERHEARING = "overhearing"
    """Promiscuous mode: frames addressed to other nodes are passed to the router (`on_overheard`)."""
    DISTANCES = "distances"
    """Hop counts to other nodes. Offered by the router, not by the environment."""
    NODE_ROUTES = "routes to nodes"
    """The router delivers packets to a node by its id alone."""
    PLACE_ROUTES = "routes to places"
    """The router delivers packets to a node at a position (geographic routing)."""
    AREA_ROUTES = "routes to areas"
    """The router delivers packets to all nodes in an area (geographic broadcast)."""
    GLOBAL_VIEW = "global view"
    """The state of the whole network. Only the simulator offers it, for oracles and upper bounds."""


HopsTo: TypeAlias = Callable[[float, NodeId], int | None]
"""A router's hop count to a node at a time, or None."""


class DurableStore(ABC):
    """A key-value store that survives a crash. Each layer of each node has its own."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Store a value. It is durable before any effect of the handler is visible outside the node."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Delete a key; an unknown key is ignored."""

    @abstractmethod
    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        """All entries whose key has a prefix, ordered by key."""


class GlobalView(ABC):
    """The whole network at this moment; for oracles in the simulator only."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Changes with every link change on any interface, so that results computed from links can be cached."""

    @abstractmethod
    def neighbors(self, node: NodeId) -> Iterable[NodeId]:
        """The current neighbors of a node, over any interface."""

    @abstractmethod
    def hops(self) -> "NDArray[np.int16]":
        """The shortest path length in hops from each node (row) to each node (column); -1 if there is no path.

        The same read-only array until a link changes.
        """

    @abstractmethod
    def position(self, node: NodeId) -> Position | None:
        """The current position of any node; None while it is absent."""


class Host(ABC):
    """A node as its protocol sees it. Readings are sampled at `now`, the node's own clock."""

    offers: frozenset[Capability]
    name: str = ""
    """The node's configured name; empty in a scenario."""
    roles: tuple[str, ...]
    """The node's roles, from the scenario or its configuration."""
    incarnation: int
    """Increases with each start of the node, which tells counters of different starts apart; below 2^31."""
    _hops_to: HopsTo | None = None
    _codec: Codec | None = None

    def attach_router(self, offers: frozenset[Capability], hops_to: HopsTo) -> None:
        """Called by the stack: a router with these capabilities runs below the protocol."""
        self.offers |= offers
        if Capability.DISTANCES in offers:
            self._hops_to = hops_to

    def set_codec(self, codec: Codec) -> None:
        """Called by the stack: the codec of this layer's messages."""
        self._codec = codec

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        """A decoder for messages that the protocol reassembled from fragments. An environment that verifies messages,
        as a node with keys does, verifies these too, so a protocol decodes received bytes only through it. The decoder
        raises only DecodeError."""
        return decoder_of(kinds) if self._codec is None else self._codec.decoder(kinds)

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """The router's hop count to a node (`Capability.DISTANCES`), 0 for this node; None if there is no route.
        Starts no route discovery."""
        if self._hops_to is None:
            raise TypeError(
                "there is no router here that counts hops; a protocol that reads them declares it in `needs`"
            )
        return self._hops_to(now, target)

    @abstractmethod
    def position(self, now: float) -> Position | None:
        """The position (`Capability.POSITION`); None while the node is absent, as a vehicle off the map."""

    @abstractmethod
    def velocity(self, now: float) -> Velocity | None:
        """The velocity (`Capability.VELOCITY`); None while the node is absent."""

    @abstractmethod
    def load(self, now: float) -> float:
        """The utilization over the last seconds, 0 to 1 (`Capability.LOAD`); only the node's own work counts."""

    @abstractmethod
    def free_memory_bytes(self, now: float) -> int:
        """The memory that is left (`Capability.MEMORY`)."""

    @abstractmethod
    def energy(self, now: float) -> float:
        """The state of charge of the battery, 0 to 1 (`Capability.ENERGY`)."""

    @abstractmethod
    def directory(self, role: str) -> tuple[NodeId, ...]:
        """The nodes of a role (`Capability.DIRECTORY`); every node has the role "all"."""

    def calendar(self, now: float) -> WallTime:
        """The date and time of day (`Capability.CALENDAR`). Compared with times that people wrote, never with another
        node's clock."""
        raise LookupError("this node has no calendar")

    @property
    @abstractmethod
    def area(self) -> Area:
        """The rectangle in which nodes move (`Capability.AREA`)."""

    @abstractmethod
    def road_map(self) -> RoadMap:
        """The roads on which nodes move (`Capability.MAP`); the same value at every call."""

    @property
    @abstractmethod
    def store(self) -> DurableStore:
        """The durable store (`Capability.DURABLE_STORE`)."""

    @property
    @abstractmethod
    def global_view(self) -> GlobalView:
        """The whole network (`Capability.GLOBAL_VIEW`)."""

    @property
    @abstractmethod
    def processors(self) -> tuple[Processor, ...]:
        """The processors that this node can run."""
