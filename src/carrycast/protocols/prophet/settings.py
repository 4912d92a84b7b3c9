"""The knobs of PRoPHET."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts.carrier_buffer import CarrierSettings


class ProphetSettings(CarrierSettings, frozen=True):
    """How predictability grows and ages. Defaults are those of [RFC 6693 §3.3] where it names one; the README
    has them beside those of the ONE."""

    first: Annotated[float, Meta(gt=0, le=1, description="predictability of a node met for the first time")] = 0.5
    most: Annotated[float, Meta(gt=0, le=1, description="weight of a meeting after the typical interval")] = 0.7
    # The RFC leaves the typical interval to the deployment; half an hour is what the ONE's second router takes.
    typical_s: Annotated[
        float, Meta(ge=0, le=1e9, description="interval between two meetings; one after less counts for less")
    ] = 1800.0
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="below this a node is forgotten, and begins again when it is met")
    ] = 0.1
    beta: Annotated[float, Meta(ge=0, le=1, description="what a predictability is worth at second hand")] = 0.9
    gamma: Annotated[float, Meta(gt=0, le=1, description="what is left of a predictability after a unit of time")] = (
        0.999
    )
    # The RFC leaves the unit to the deployment; the ONE's examples take 30 s.
    unit_s: Annotated[float, Meta(ge=0.001, le=1e9, description="the unit of time of aging")] = 30.0
    delta: Annotated[float, Meta(ge=0, lt=1, description="how far below 1 a predictability stays")] = 0.01
    exchange_s: Annotated[
        float, Meta(ge=0.01, le=86_400, description="how often neighbors that stay tell their predictabilities again")
    ] = 60.0
    destinations: Annotated[
        int, Meta(ge=1, le=100_000, description="nodes remembered; the least likely makes room")
    ] = 4096
