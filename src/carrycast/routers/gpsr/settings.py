"""The knobs of GPSR. [GPSR00] is Karp and Kung, MobiCom 2000; [gpsr-ns2] the defaults of its ns-2 code."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Capability, Settings


class GpsrSettings(Settings, frozen=True):
    """Beacons, the planar graph, what is done with packets, and what goes beyond the paper."""

    # [GPSR00 §3.2] tries 1, 1.5 and 3 s, and recommends none; [gpsr-ns2] has 0.5 s.
    beacon_s: Annotated[float, Meta(ge=0.001, le=3600, description="mean time between two beacons, B")] = 1.0
    # [GPSR00 §2.1] Uniform between 0.5 B and 1.5 B.
    beacon_jitter: Annotated[
        float, Meta(ge=0, lt=1, description="share of B by which a beacon may come early or late")
    ] = 0.5
    # [GPSR00 §2.1] 4.5 B: three times the longest interval.
    expiry: Annotated[
        float, Meta(ge=1, le=100, description="a neighbor is forgotten after a silence of this many times B")
    ] = 4.5
    piggyback: Annotated[bool, Meta(description="positions travel with packets too, and who receives them learns")] = (
        True
    )
    # [GPSR00 §2.1] has it on; not every environment lets a node overhear packets for others.
    overhear: Annotated[
        bool, Meta(description="positions are also learned from packets for others, where nodes can hear those")
    ] = False
    # [GPSR00 §2.1] there all in reach overhear packets, so each stands for a beacon. Without that only their receiver
    # learns, and others would lose a node that is busy; one beacon in a row left out, 3 B at most, is in the expiry.
    suppress_beacons: Annotated[
        bool, Meta(description="a packet sent stands for the next beacon; never for two in a row, unless overheard")
    ] = False
    # [GPSR00 §2.2] Either; the RNG has fewer edges and so longer ways.
    planarization: Annotated[
        Literal["gabriel", "rng"], Meta(description="the rule that leaves out edges which might cross")
    ] = "gabriel"
    recovery: Annotated[
        Literal["perimeter", "none"],
        Meta(description="what to do where no neighbor is nearer: the right-hand rule, or nothing"),
    ] = "perimeter"
    # [GPSR00] forwards by positions alone; that a destination in the table is sent to is the obvious thing.
    direct: Annotated[
        bool, Meta(description="a packet for a node that is a neighbor is sent straight to it, wherever it was to be")
    ] = True
    # [gpsr-ns2] 32 to 128 hops in perimeter mode; where neighbors see different graphs a tour may never end.
    max_hops: Annotated[int, Meta(ge=1, le=10_000, description="a packet with so many hops is not sent on")] = 64
    # [GPSR00] knows neither copies nor circles, but neighbors with different views make circles all the time.
    stop_loops: Annotated[
        bool, Meta(description="a packet that goes in a circle is dropped there, not after all its hops")
    ] = True
    # Longer than 64 hops take through queues of 50 frames at 2 Mb/s.
    seen_s: Annotated[float, Meta(gt=0, le=3600, description="how long a packet that came by is remembered")] = 30.0
    max_seen: Annotated[int, Meta(ge=1, le=10_000_000, description="packets remembered in that time")] = 8192
    # No radio of this kind reaches farther.
    max_range_m: Annotated[
        float, Meta(gt=0, le=1e9, description="a neighbor that claims to be farther away is not believed")
    ] = 10_000.0
    max_neighbors: Annotated[int, Meta(ge=1, le=1_000_000, description="neighbors in the table")] = 1024
    # Beyond the paper.
    dead_reckoning: Annotated[
        bool, Meta(description="beacons tell the velocity, and neighbors are taken to have moved on with it")
    ] = False
    beacon_skips: Annotated[
        int,
        Meta(ge=0, le=20, description="beacons in a row left out while neighbors still know well enough; 0: none"),
    ] = 0
    # A tenth of the usual range of 250 m.
    beacon_error_m: Annotated[
        float, Meta(gt=0, le=1e6, description="how wrong neighbors may be about this node before it says a beacon")
    ] = 25.0

    def needs(self) -> frozenset[Capability]:
        reckoning = {Capability.VELOCITY} if self.dead_reckoning else set()
        hearing = {Capability.OVERHEARING} if self.overhear else set()
        return frozenset(reckoning | hearing)

    @property
    def expiry_s(self) -> float:
        """How long a neighbor is known without being heard."""
        return self.expiry * self.beacon_s * (1 + self.beacon_skips)
