"""The settings of geographic broadcast. Defaults are the protocol constants of EN 302 636-4-1, annex H."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.protocol import Settings

Seconds = Annotated[float, Meta(ge=1e-6, le=3600)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]


class GeoBroadcastSettings(Settings, frozen=True):
    """Contention, the hop limit, and bounds."""

    min_s: Annotated[Seconds, Meta(description="itsGnCbfMinTime: contention of the node with the most progress")] = (
        0.001
    )
    max_s: Annotated[Seconds, Meta(description="itsGnCbfMaxTime: contention of a node without progress")] = 0.1
    max_distance_m: Annotated[
        float,
        Meta(gt=0, le=1e6, description="itsGnDefaultMaxCommunicationRange: the distance of the shortest contention"),
    ] = 1000.0
    hop_limit: Annotated[int, Meta(ge=1, le=255, description="itsGnDefaultHopLimit: transmissions of a packet")] = 10
    # A packet is on its way for at most hop_limit times max_s, and may wait in queues besides.
    seen_s: Annotated[Seconds, Meta(description="how long a packet is remembered, so that it is forwarded once")] = 60.0
    max_seen: Annotated[Room, Meta(description="packets that are remembered")] = 8192
    # [itsGnCbfPacketBufferSize] 256 kB: 256 packets of 1 kB.
    max_waiting: Annotated[Room, Meta(description="packets that contend at the same time")] = 256

    def __post_init__(self) -> None:
        if self.min_s > self.max_s:
            raise ValueError("min_s must not be above max_s")
