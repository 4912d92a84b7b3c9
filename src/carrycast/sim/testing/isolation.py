"""One protocol or router alone with a `RecordingPort`, for tests of its handlers one by one."""

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
    """A host with a durable store and no other capability. A test overrides the methods that it needs."""

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
    """Make a protocol by name with its settings, started at time 0. The port records its effects."""
    kind, chosen = select_protocol({"name": name, **settings}, "alone")
    port = RecordingPort()
    protocol = kind(node, chosen, port, host or IsolatedHost(), Random(seed))
    protocol.on_start(0.0)
    return protocol, port


class RecordedUpcalls(RouterUpcalls):
    """Records the upcalls of a router: packets as (origin, body, hops), and packets that it gave up on."""

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
    """Make a router by name with its settings, started at time 0, with its port and its recorded upcalls."""
    kind, chosen = select_router({"name": name, **settings}, "alone")
    port, upcalls = RecordingPort(), RecordedUpcalls()
    router = kind(node, chosen, port, host or IsolatedHost(), Random(seed), upcalls)
    router.on_start(0.0)
    return router, port, upcalls
