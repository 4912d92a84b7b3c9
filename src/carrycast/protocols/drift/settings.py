"""The settings of drift. One set serves every network: drift measures what differs between networks."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import LOG_BYTES, LogBytes, MaxStages, StreamAttributes
from carrycast.core.protocol import Capability, Settings


class DriftSettings(Settings, frozen=True):
    """Buffer and leases, backoffs, the Trickle timer of reconciliation, and multicast trees."""

    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="events kept beside stored ones; evicted first: those that a neighbor keeps, then the oldest",
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
            description="how long an event is remembered after its lease: other copies may expire a little later",
        ),
    ] = 60.0
    max_met: Annotated[
        int,
        Meta(
            ge=1, le=100_000_000, description="ids remembered; beyond that the one whose lease ends first is forgotten"
        ),
    ] = 50_000
    wait_s: Annotated[
        float,
        Meta(
            ge=1e-6,
            le=60,
            description="backoff before a rebroadcast that covers all neighbors; longer if it covers fewer",
        ),
    ] = 0.01
    offer_below: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="for fewer uncovered neighbors an event is offered before it is sent; 0: never",
        ),
    ] = 3
    contact_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="Imin of Trickle after a contact: the first hash is sent within it")
    ] = 0.5
    news_s: Annotated[
        float,
        Meta(ge=0.001, le=3600, description="Imin of Trickle after a new event: the first hash is sent within it"),
    ] = 2.0
    hash_max_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="Imax of Trickle: the longest interval between two hashes; each is four times the one before",
        ),
    ] = 60.0
    reply_s: Annotated[
        float,
        Meta(ge=0.001, le=3600, description="the longest backoff before the answer to a hash, a digest or an offer"),
    ] = 0.1
    path_after_s: Annotated[
        float,
        Meta(
            ge=0.001,
            le=86_400,
            description="how long links must be stable before a source builds a tree; doubles when a tree ends early",
        ),
    ] = 10.0
    path_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="an event goes by the tree if it takes at most this many links per node of the tree; 0: never",
        ),
    ] = 0.25
    asks: Annotated[int, Meta(ge=1, le=1_000_000, description="requests for the same event in a minute")] = 3
    answers: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="transmissions of the same event to a neighbor that claims to be missing it, in a minute",
        ),
    ] = 3
    stream_attributes: StreamAttributes = ("topic",)
    max_stages: MaxStages = 4
    durable: Annotated[bool, Meta(description="buffered events are in the node's durable store")] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()
