"""What a message costs the node that gets it, as a scenario writes it."""

from typing import Annotated

import msgspec
from msgspec import Meta


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[service]` of a scenario: a node looks at one message of its protocol at a time, and the others wait."""

    time_s: Annotated[float, Meta(ge=0, le=3600)]
    """How long it takes for one."""
    queue: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000
    """How many may wait; what comes then is dropped (`service_queue_full`)."""
