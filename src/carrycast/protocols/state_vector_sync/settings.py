"""The settings of state vector sync."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import CarrierSettings
from carrycast.protocols.state_vector_sync.messages import MAX_ENTRIES


class StateVectorSyncSettings(CarrierSettings, frozen=True):
    """The two periods of the specification, and the size of a state vector."""

    # [SVS §4.1] 30 s, random +-10 %.
    sync_s: Annotated[
        float, Meta(ge=0.01, le=86_400, description="time between two sync interests while neighbors agree")
    ] = 30.0
    # [SVS §4.4] 200 ms, random +-50 %: many times the delay between nodes of a group. A node must have time to hear an
    # interest of a neighbor, which waits for the channel.
    suppression_hops: Annotated[
        float,
        Meta(gt=0, le=100_000, description="suppression interval, in times that a packet takes on the slowest link"),
    ] = 10.0
    # A complete vector of a hundred publishers fits.
    entries: Annotated[
        int, Meta(ge=1, le=MAX_ENTRIES, description="entries in one interest; of more, those updated last are sent")
    ] = 128
    # As many as fit in one frame of most radios. Broadcasts are not acknowledged, and of many fragments one is lost.
    broadcast_bytes: Annotated[
        int,
        Meta(ge=0, le=1 << 21, description="payload up to which an event for several neighbors is broadcast"),
    ] = 1400
    sources: Annotated[
        int, Meta(ge=1, le=1_000_000, description="publishers in the state vector; the one updated first is removed")
    ] = 65_536

    def __post_init__(self) -> None:
        if self.durable:
            raise ValueError("durable: state_vector_sync does not keep events across restarts; leave it out")
