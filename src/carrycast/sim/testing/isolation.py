"""One state machine alone with a `RecordingPort`, for tests of its handlers one by one."""

from random import Random

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity
from carrycast.core.protocol import (
    Capability,
    DurableStore,
    GlobalView,
    Host,
    Place,
    Protocol,
    RecordingPort,
    Router,
    RouterUpcalls,
)
from carrycast.core.stacks import select_protocol, select_router
from carrycast.core.wire import Parcel
from carrycast.sim.engine import MemoryStore


class IsolatedHost(Host):
    """A node that has a durable store and knows nothing else. What a test wants it to know, it overrides."""

    def __init__(self) -> None:
        self.offers = frozenset({Capability.DURABLE_STORE})
        self.roles = ()
        self.incarnation = 0
        self._store = MemoryStore()

    def position(self, now: float) -> Position:
        raise _unknown(Capability.POSITION)

    def velocity(self, now: float) -> Velocity:
        raise _unknown(Capability.VELOCITY)

    def load(self, now: float) -> float:
        raise _unknown(Capability.LOAD)

    def free_memory_bytes(self, now: float) -> int:
        raise _unknown(Capability.MEMORY)

    def energy(self, now: float) -> float:
        raise _unknown(Capability.ENERGY)

    def directory(self, role: str) -> tuple[NodeId, ...]:
        raise _unknown(Capability.DIRECTORY)

    @property
    def area(self) -> Area:
        raise _unknown(Capability.AREA)

    def road_map(self) -> RoadMap:
        raise _unknown(Capability.MAP)

    @property
    def store(self) -> DurableStore:
        return self._store

    @property
    def global_view(self) -> GlobalView:
        raise _unknown(Capability.GLOBAL_VIEW)

    @property
    def processors(self) -> tuple[Processor, ...]:
        return ()


def _unknown(capability: Capability) -> TypeError:
    return TypeError(f"a lone host does not know its {capability}")


def isolate_protocol(
    name: str, node: NodeId = 0, host: Host | None = None, seed: int = 1, **settings: object
) -> tuple[Protocol, RecordingPort]:
    """A protocol by name with its settings, started at time 0, and the port that writes down what it does."""
    kind, chosen = select_protocol({"name": name, **settings}, "alone")
    port = RecordingPort()
    protocol = kind(node, chosen, port, host or IsolatedHost(), Random(seed))
    protocol.on_start(0.0)
    return protocol, port


class RecordedUpcalls(RouterUpcalls):
    """What a router told the layer above: packets as (origin, body, hops), and what it gave up on."""

    def __init__(self) -> None:
        self.packets: list[tuple[NodeId, bytes, int]] = []
        self.given_up: list[tuple[NodeId | Place, bytes]] = []

    def deliver_packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        self.packets.append((origin, parcel.body, hops))

    def report_unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        self.given_up.append((target, parcel.body))


def isolate_router(
    name: str, node: NodeId = 0, host: Host | None = None, seed: int = 1, **settings: object
) -> tuple[Router, RecordingPort, RecordedUpcalls]:
    """A router by name with its settings, started at time 0, its port, and what it tells the layer above."""
    kind, chosen = select_router({"name": name, **settings}, "alone")
    port, told = RecordingPort(), RecordedUpcalls()
    router = kind(node, chosen, port, host or IsolatedHost(), Random(seed), told)
    router.on_start(0.0)
    return router, port, told
