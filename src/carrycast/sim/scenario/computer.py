"""`[computer]` of a scenario: what nodes can tell of the machine that they run on."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.utilization import DEFAULT_WINDOW_S, LoadWindow


class Computer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[computer]` of a scenario."""

    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    """What each node has for events and calls of processors; without it nodes do not know of any."""
    # A processor that selects what processors make multiplies events at every stage, by its results and its nodes. So
    # many take minutes and up to a gigabyte.
    max_derived_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100_000
    """Events that processors may make in a run; one that makes more ends with an error that says so."""
