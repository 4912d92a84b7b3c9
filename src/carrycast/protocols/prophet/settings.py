"""The settings of PRoPHET."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import CarrierSettings


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
    destinations: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="nodes in the routing information base; the one with the smallest predictability is removed",
        ),
    ] = 4096
