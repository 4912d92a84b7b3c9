"""The knobs of drift. One set serves every network: what differs between networks is measured, not configured."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts.log import LOG_BYTES, LogBytes
from carrycast.core.parts.processing import MaxStages, StreamAttributes
from carrycast.core.protocol import Capability, Settings


class DriftSettings(Settings, frozen=True):
    """How much is kept for how long, how long nodes wait for each other, and when they compare what they have met."""

    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="events kept beside stored ones; what a neighbor is called to keep makes room, then the oldest",
        ),
    ] = 10_000
    max_lease_s: Annotated[
        float, Meta(gt=0, description="no event is kept for longer; at level stored a longer lease is refused")
    ] = 3600.0
    seen_grace_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="how long past its lease an event is remembered: other copies may end a little later",
        ),
    ] = 60.0
    max_met: Annotated[
        int,
        Meta(
            ge=1, le=100_000_000, description="ids remembered; without room the one whose lease ends first is forgotten"
        ),
    ] = 50_000
    wait_s: Annotated[
        float,
        Meta(
            ge=1e-6,
            le=60,
            description="the wait of a relay that reaches all its neighbors; who reaches fewer waits longer",
        ),
    ] = 0.01
    offer_below: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="for fewer neighbors than that an event is offered before it is sent; 0: never",
        ),
    ] = 3
    contact_s: Annotated[float, Meta(ge=0.001, le=3600, description="how soon after a contact a hash is said")] = 0.5
    news_s: Annotated[float, Meta(ge=0.001, le=3600, description="how soon after a new event a hash is said")] = 2.0
    hash_max_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="the longest time between two hashes; each is four times the one before",
        ),
    ] = 60.0
    reply_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="the longest wait of an answer to a hash, a digest or an offer")
    ] = 0.1
    path_after_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="how long no link may have changed before a source bets on paths; doubles with each lost bet",
        ),
    ] = 10.0
    path_max_s: Annotated[float, Meta(ge=0.001, le=1e9, description="the longest such time")] = 3600.0
    path_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="paths are used if they have at most so many links for each node that was asked; 0: never",
        ),
    ] = 0.25
    asks: Annotated[
        int, Meta(ge=1, le=1_000_000, description="an event is asked for that often in a minute, no more")
    ] = 3
    answers: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="an event is sent to the same neighbor on its word that often in a minute, no more",
        ),
    ] = 3
    stream_attributes: StreamAttributes = ("topic",)
    max_stages: MaxStages = 4
    durable: Annotated[bool, Meta(description="what is held is in the node's durable store")] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()
