"""The settings of GSR. [GSR03] is Lochert et al., IEEE Intelligent Vehicles 2003; it has no constants of its own."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.protocol import Settings

MAX_DETOURS = 16


class GsrSettings(Settings, frozen=True):
    """Beacons, detours, and bounds."""

    # As in GPSR, whose beacons GSR uses [GSR03, 3].
    beacon_s: Annotated[float, Meta(ge=0.001, le=3600, description="time between two beacons, on average")] = 1.0
    beacon_jitter: Annotated[
        float, Meta(ge=0, lt=1, description="fraction of beacon_s by which a beacon may come early or late")
    ] = 0.5
    expiry: Annotated[
        float, Meta(ge=1, le=100, description="time-out of a neighbor that is not heard, in multiples of beacon_s")
    ] = 4.5
    # Half of a wide street with its crossing.
    crossing_m: Annotated[
        float, Meta(ge=0, le=1e4, description="a node this near to a crossing is on it, and sends into the next street")
    ] = 30.0
    # [A-STAR] recovers by another path, and gives no number. Three sides of a block are a way around it.
    detours: Annotated[
        int, Meta(ge=0, le=MAX_DETOURS, description="other paths that a packet may take where a street is empty")
    ] = 3
    max_hops: Annotated[int, Meta(ge=1, le=255, description="hops after which a packet is dropped")] = 64
    # Longer than a packet takes for 64 hops through queues of 50 frames at 2 Mb/s.
    seen_s: Annotated[
        float, Meta(gt=0, le=3600, description="how long a delivered packet is remembered, to recognize duplicates")
    ] = 30.0
    max_seen: Annotated[int, Meta(ge=1, le=10_000_000, description="delivered packets that are remembered")] = 8192
    max_neighbors: Annotated[int, Meta(ge=1, le=1_000_000, description="entries of the neighbor table")] = 1024
