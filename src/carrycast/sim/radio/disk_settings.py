"""The settings of the disk radio in a scenario."""

from typing import Annotated, ClassVar

from msgspec import Meta

from carrycast.sim.radio.medium import Medium
from carrycast.sim.radio.radio import Radio, RadioContext


class DiskRadio(Radio, frozen=True, kw_only=True):
    """A radio without interference: every node within range receives."""

    name: ClassVar[str] = "disk"
    summary: ClassVar[str] = "every node within range receives; no interference"

    range_m: Annotated[float, Meta(gt=0, le=1e9, description="two nodes are linked up to this distance")] = 250.0
    delay_s: Annotated[
        float, Meta(ge=0, le=3600, description="time from the end of a transmission to its reception")
    ] = 0.001
    rate_bps: (
        Annotated[float, Meta(ge=1, le=1e12, description="bit rate; if absent, frames take no time and never queue")]
        | None
    ) = None
    queue: Annotated[
        int, Meta(ge=1, le=1_000_000, description="largest number of waiting frames; more are dropped as queue_full")
    ] = 50
    loss: Annotated[float, Meta(ge=0, lt=1, description="probability that a receiver misses a frame")] = 0.0
    retries: Annotated[int, Meta(ge=0, le=100, description="largest number of retransmissions of a lost unicast")] = 3

    def medium(self, context: RadioContext) -> Medium:
        """Create a `DiskMedium`. The import is here because its module imports this one."""
        from carrycast.sim.radio.disk import DiskMedium

        return DiskMedium(self, context.interface, context.nodes, context.scheduler, context.air, context.rng)
