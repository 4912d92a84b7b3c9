"""What a scenario may say of the disk radio."""

from typing import Annotated

import msgspec
from msgspec import Meta


class DiskRadio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="model", tag="disk"):
    """Settings of the disk radio."""

    range_m: Annotated[float, Meta(gt=0, le=1e9, description="two nodes are linked up to this distance")] = 250.0
    delay_s: Annotated[float, Meta(ge=0, le=3600, description="from the end of a transmission to its reception")] = (
        0.001
    )
    rate_bps: (
        Annotated[float, Meta(ge=1, le=1e12, description="bits per second; without it frames take no time")] | None
    ) = None
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="frames that may wait for the one being sent")] = 50
    loss: Annotated[float, Meta(ge=0, lt=1, description="probability that a receiver misses a frame")] = 0.0
    retries: Annotated[int, Meta(ge=0, le=100, description="how often a lost unicast is repeated")] = 3
