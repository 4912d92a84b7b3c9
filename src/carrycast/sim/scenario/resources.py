"""What a message costs the node that gets it, as a scenario writes it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.utilization import DEFAULT_WINDOW_S, LoadWindow


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[service]` of a scenario: a node looks at one message of its protocol at a time, and the others wait."""

    time_s: Annotated[float, Meta(ge=0, le=3600)]
    """How long it takes for one."""
    queue: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000
    """How many may wait; what comes then is dropped (`service_queue_full`)."""


class EnergySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class ComputerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[computer]` of a scenario."""

    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    """What each node has for events and calls of processors; without it nodes do not know of any."""
    # A processor that selects what processors make multiplies events at every stage, by its results and its nodes. So
    # many take minutes and up to a gigabyte.
    max_derived_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100_000
    """Events that processors may make in a run; one that makes more ends with an error that says so."""
