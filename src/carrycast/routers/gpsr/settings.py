"""The settings of GPSR. [GPSR00] is Karp and Kung, MobiCom 2000; [gpsr-ns2] are the defaults of its ns-2 code."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Capability, Settings


class GpsrSettings(Settings, frozen=True):
    """Beacons, planarization, forwarding, bounds, and extensions beyond the paper."""

    # [GPSR00 §3.2] tries 1, 1.5 and 3 s, and recommends none; [gpsr-ns2] has 0.5 s.
    beacon_s: Annotated[float, Meta(ge=0.001, le=3600, description="beacon interval B, on average")] = 1.0
    # [GPSR00 §2.1] Uniform between 0.5 B and 1.5 B.
    beacon_jitter: Annotated[
        float, Meta(ge=0, lt=1, description="fraction of B by which a beacon may come early or late")
    ] = 0.5
    # [GPSR00 §2.1] 4.5 B: three times the longest interval.
    expiry: Annotated[
        float, Meta(ge=1, le=100, description="time-out of a neighbor that is not heard, in multiples of B")
    ] = 4.5
    piggyback: Annotated[
        bool, Meta(description="packets carry the position of their sender too, and receivers use it")
    ] = True
    # [GPSR00 §2.1] On, by promiscuous mode; but not every environment lets a node overhear packets for others.
    overhear: Annotated[
        bool, Meta(description="positions in packets for other nodes are used too, where nodes can overhear them")
    ] = False
    # [GPSR00 §2.1] All nodes in range overhear packets, so each packet replaces a beacon. Without overhearing only the
    # receiver gets the position, and other neighbors would lose a busy node. The expiry allows for one skipped beacon,
    # which makes 3 B at most.
    suppress_beacons: Annotated[
        bool,
        Meta(description="a sent packet replaces the next beacon; never two in a row, unless packets are overheard"),
    ] = False
    # [GPSR00 §2.2] Either; the RNG has fewer edges and so longer paths.
    planarization: Annotated[
        Literal["gabriel", "rng"], Meta(description="the planar graph: Gabriel graph or relative neighborhood graph")
    ] = "gabriel"
    recovery: Annotated[
        Literal["perimeter", "none"],
        Meta(description="forwarding where no neighbor is nearer: perimeter mode, or none"),
    ] = "perimeter"
    # [GPSR00] forwards by positions alone. The position of a destination in the neighbor table may be outdated.
    direct: Annotated[
        bool, Meta(description="a packet for a neighbor is sent to it directly, whatever position it is addressed to")
    ] = True
    # [gpsr-ns2] 32 to 128 hops in perimeter mode; if neighbors see different graphs, a tour may never end.
    max_hops: Annotated[int, Meta(ge=1, le=10_000, description="hops after which a packet is dropped")] = 64
    # [GPSR00] handles neither duplicates nor loops, but neighbors with different tables cause loops frequently.
    stop_loops: Annotated[
        bool, Meta(description="a packet in a loop is dropped when it is recognized, not after max_hops")
    ] = True
    # Longer than a packet takes for 64 hops through queues of 50 frames at 2 Mb/s.
    seen_s: Annotated[
        float, Meta(gt=0, le=3600, description="how long a packet is remembered, to recognize duplicates and loops")
    ] = 30.0
    max_seen: Annotated[int, Meta(ge=1, le=10_000_000, description="packets that are remembered in that time")] = 8192
    # No radio of this kind has a longer range.
    max_range_m: Annotated[
        float, Meta(gt=0, le=1e9, description="a beacon or packet from farther away is rejected")
    ] = 10_000.0
    max_neighbors: Annotated[int, Meta(ge=1, le=1_000_000, description="entries of the neighbor table")] = 1024
    # Beyond the paper.
    dead_reckoning: Annotated[
        bool, Meta(description="beacons carry the velocity, and neighbors extrapolate the position")
    ] = False
    beacon_skips: Annotated[
        int,
        Meta(
            ge=0, le=20, description="beacons in a row that may be skipped while neighbors estimate the position well"
        ),
    ] = 0

    def needs(self) -> frozenset[Capability]:
        velocity = {Capability.VELOCITY} if self.dead_reckoning else set()
        overhearing = {Capability.OVERHEARING} if self.overhear else set()
        return frozenset(velocity | overhearing)

    @property
    def expiry_s(self) -> float:
        """How long a neighbor stays in the table without being heard."""
        return self.expiry * self.beacon_s * (1 + self.beacon_skips)
