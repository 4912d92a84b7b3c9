"""What can be told to an epidemic node."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts.log import LOG_BYTES, LogBytes
from carrycast.core.protocol import Capability, Settings
from carrycast.protocols.epidemic.messages import MAX_IDS


class EpidemicSettings(Settings, frozen=True):
    """How much is kept for how long, and when a node asks or tells again."""

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
            description="how long past its lease an event is remembered: other copies may end a little later",
        ),
    ] = 60.0
    ask_again_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="an event asked for that does not come is asked for again, of another neighbor",
        ),
    ] = 10.0
    # A neighbor may have let go of what it told of. Where every third message is lost and none repeated, an ask and its
    # answer fail together more often than not, but twenty times in a row only once in 150,000.
    asks: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="after that many asks an event is given up until somebody tells of it anew"
        ),
    ] = 20
    window: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_IDS,
            description="events asked of one neighbor that have not come; it is asked for more when half of them have",
        ),
    ] = MAX_IDS
    tell_again_s: Annotated[
        float,
        Meta(ge=0.001, le=86_400, description="how often neighbors are told again of what they are not known to hold"),
    ] = 60.0
    durable: Annotated[bool, Meta(description="what is held and what was met is in the node's durable store")] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()
