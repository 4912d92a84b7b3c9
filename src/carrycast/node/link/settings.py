"""How hard a link tries, and what it costs."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard to try. The defaults give up after 3 s in all, when discovery by default gives up on a neighbor too."""

    ack_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="wait for an acknowledgement while it is not known how long one takes")
    ] = 0.2
    retries: Annotated[int, Meta(ge=0, le=20, description="how often an unacknowledged frame is sent again")] = 3
    window: Annotated[
        int, Meta(ge=1, le=512, description="the most unacknowledged frames to one neighbor, however fast it answers")
    ] = 256
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="frames that may wait, all neighbors together")] = 4096
    cost: Annotated[
        Literal["fixed", "measured"], Meta(description="whether links cost `cost_s` or the time that probes take")
    ] = "fixed"
    cost_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="cost of a link; 500 bytes take this long at 6 Mbit/s, the slowest rate of 802.11g",
        ),
    ] = 0.0007
