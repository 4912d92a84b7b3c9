"""`[energy]` of a scenario: what batteries hold and what costs how much.

The defaults are those of a small 802.11 card, measured by Feeney and Nilsson (INFOCOM 2001): per byte 1.9 uJ to send
and 0.5 uJ to receive, and 0.84 W idle.
"""

from typing import Annotated

import msgspec
from msgspec import Meta


class Energy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[energy]` of a scenario."""

    battery_j: Annotated[
        float, Meta(gt=0, le=1e12, description="what a full battery holds; 18 kJ is a phone's of 5 Wh")
    ] = 18_000.0
    charge_min: Annotated[float, Meta(ge=0, le=1, description="nodes start with a random charge from this ...")] = 1.0
    charge_max: Annotated[float, Meta(ge=0, le=1, description="... to this share of it")] = 1.0
    idle_w: Annotated[float, Meta(ge=0, le=1e6, description="power of doing nothing")] = 0.84
    send_j_per_byte: Annotated[float, Meta(ge=0, le=1e3)] = 1.9e-6
    receive_j_per_byte: Annotated[float, Meta(ge=0, le=1e3)] = 0.5e-6

    def __post_init__(self) -> None:
        if self.charge_min > self.charge_max:
            raise ValueError("charge_min must not exceed charge_max")
