"""The settings of MaxProp."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import CarrierSettings


class MaxPropSettings(CarrierSettings, frozen=True):
    """The weight of a meeting, acknowledgements, and the size of the table."""

    alpha: Annotated[
        float, Meta(gt=0, le=1000, description="weight of a meeting against all earlier ones; the paper's is 1")
    ] = 1.0
    acks: Annotated[bool, Meta(description="whether nodes pass on acknowledgements of deliveries")] = True
    # As often as PRoPHET's neighbors exchange routing information again.
    exchange_s: Annotated[
        float, Meta(ge=0.01, le=86_400, description="how often neighbors that stay exchange records again")
    ] = 60.0
    nodes: Annotated[
        int, Meta(ge=1, le=100_000, description="nodes whose records are kept; the one updated first is removed")
    ] = 4096
