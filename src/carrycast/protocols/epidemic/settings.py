"""The settings of epidemic routing."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import LOG_BYTES, LogBytes
from carrycast.core.protocol import Capability, Settings
from carrycast.protocols.epidemic.messages import MAX_IDS


class EpidemicSettings(Settings, frozen=True):
    """Buffer and leases, and when requests and summary vectors are repeated."""

    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="events kept beside stored ones; the oldest arrival makes room",
        ),
    ] = 10_000
    max_lease_s: Annotated[
        float, Meta(gt=0, description="no event is kept for longer; at level stored a longer lease is refused")
    ] = 3600.0
    seen_grace_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="how long an event is remembered after its lease: other copies may expire a little later",
        ),
    ] = 60.0
    ask_again_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="an event that does not arrive in this time is requested again, from another neighbor",
        ),
    ] = 10.0
    # A neighbor may have evicted an event that it advertised. Where every third message is lost and none is repeated,
    # a request and its answer fail more often than not, but twenty times in a row only once in 150,000.
    asks: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="after this many requests an event is given up until a neighbor advertises it again",
        ),
    ] = 20
    window: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_IDS,
            description="events in flight from one neighbor; more are requested when half of them have arrived",
        ),
    ] = MAX_IDS
    tell_again_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="how often neighbors are sent again the ids of events that they are not known to hold",
        ),
    ] = 60.0
    durable: Annotated[
        bool, Meta(description="buffered events and ids of seen events are in the node's durable store")
    ] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()
