"""The settings of PRoPHET."""

import enum
from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import CarrierSettings


class Forwarding(enum.StrEnum):
    """[RFC 6693 §3.6] Which neighbors B of a node A get a copy for a destination D."""

    GRTR = "GRTR"
    GTMX = "GTMX"
    GTHR = "GTHR"
    GRTR_PLUS = "GRTR+"
    GTMX_PLUS = "GTMX+"
    GRTR_SORT = "GRTRSort"
    GRTR_MAX = "GRTRMax"


class Queueing(enum.StrEnum):
    """[RFC 6693 §3.7] Which event is evicted from a full buffer."""

    FIFO = "FIFO"
    MOFO = "MOFO"
    MOPR = "MOPR"
    LINEAR_MOPR = "LinearMOPR"
    SHLI = "SHLI"
    LEPR = "LEPR"


class ProphetSettings(CarrierSettings, frozen=True):
    """The growth and aging of delivery predictabilities. Defaults are those of [RFC 6693 §3.3] where it names one; the
    README compares them with those of the ONE."""

    first: Annotated[
        float, Meta(gt=0, le=1, description="P_encounter_first: predictability of a node after the first encounter")
    ] = 0.5
    most: Annotated[float, Meta(gt=0, le=1, description="P_encounter_max: weight of an encounter after I_typ")] = 0.7
    # The RFC leaves the typical interval to the deployment; half an hour is what the ONE's second router takes.
    typical_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="I_typ: typical interval between encounters; one after a shorter time has a smaller weight",
        ),
    ] = 1800.0
    threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="P_first_threshold: below this a node is forgotten, and begins again with its next encounter",
        ),
    ] = 0.1
    beta: Annotated[float, Meta(ge=0, le=1, description="scaling of transitive predictabilities")] = 0.9
    gamma: Annotated[float, Meta(gt=0, le=1, description="aging: factor of a predictability per time unit")] = 0.999
    # The RFC leaves the unit to the deployment; the ONE's examples take 30 s.
    unit_s: Annotated[float, Meta(ge=0.001, le=1e9, description="the time unit of aging")] = 30.0
    delta: Annotated[float, Meta(ge=0, lt=1, description="a predictability grows to at most 1 - delta")] = 0.01
    exchange_s: Annotated[
        float, Meta(ge=0.01, le=86_400, description="how often neighbors that stay exchange routing information again")
    ] = 60.0
    forwarding: Annotated[Forwarding, Meta(description="forwarding strategy")] = Forwarding.GRTR
    queueing: Annotated[Queueing, Meta(description="queueing policy: what is evicted from a full buffer")] = (
        Queueing.FIFO
    )
    # The RFC leaves NF_max, FORW_thres and MF to the deployment. As many copies as spray_and_wait distributes.
    forwards: Annotated[
        int, Meta(ge=1, le=1_000_000, description="NF_max: with GTMX and GTMX+ a node forwards an event so often")
    ] = 8
    # Of nodes below it most are not met again: the encounter of a node begins with 0.5.
    forward_above: Annotated[
        float, Meta(ge=0, le=1, description="FORW_thres: with GTHR nodes above it get a copy in any case")
    ] = 0.5
    least_forwards: Annotated[
        int,
        Meta(
            ge=0, le=1_000_000, description="MF: with LEPR only events forwarded so often are evicted, if there are any"
        ),
    ] = 1
    destinations: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="nodes in the routing information base; the one with the smallest predictability is removed",
        ),
    ] = 4096
