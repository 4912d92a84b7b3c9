"""The limited resources of nodes in a scenario: service time, energy, memory."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.utilization import DEFAULT_WINDOW_S, LoadWindow


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[service]` of a scenario: a node processes one message of its protocol at a time, and the others wait."""

    time_s: Annotated[float, Meta(ge=0, le=3600)]
    """How long a node processes one message."""
    queue: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000
    """How many messages may wait; more are dropped as `service_queue_full`."""


class EnergySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[energy]` of a scenario: the batteries of the nodes, for protocols that read them and radios that need them."""

    battery_j: Annotated[
        float, Meta(gt=0, le=1e12, description="energy of a full battery; 18 kJ is that of a phone with 5 Wh")
    ] = 18_000.0
    charge_min: Annotated[
        float,
        Meta(ge=0, le=1, description="smallest share that is full at the start"),
    ] = 1.0
    charge_max: Annotated[float, Meta(ge=0, le=1, description="largest such share; nodes draw theirs")] = 1.0
    idle_w: Annotated[float, Meta(ge=0, le=1e6, description="power that an idle node draws")] = 0.84
    send_j_per_byte: Annotated[float, Meta(ge=0, le=1e3)] = 1.9e-6
    """The energy that sending a byte takes."""
    receive_j_per_byte: Annotated[float, Meta(ge=0, le=1e3)] = 0.5e-6
    """The energy that receiving a byte takes."""
    send_w: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    """The power of sending, over the airtime of frames. It replaces `send_j_per_byte` for radios with a rate."""
    receive_w: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    """The power of receiving, over the airtime of frames. It replaces `receive_j_per_byte` for radios with a rate."""
    enforced: bool = False
    """Whether a node with an empty battery stops to send and to receive; its frames are dropped as `battery_empty`."""

    def __post_init__(self) -> None:
        if self.charge_min > self.charge_max:
            raise ValueError("charge_min must not exceed charge_max")


class ComputerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[computer]` of a scenario: the resources of the machine that a node runs on."""

    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    """The memory of each node for events and calls of processors. Without it nodes know no free memory."""
    # A processor whose filter selects the output of processors multiplies events at every stage. 100,000 derived events
    # take minutes and up to a gigabyte.
    max_derived_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100_000
    """How many events processors may derive in a run. A run that derives more ends with an error."""
