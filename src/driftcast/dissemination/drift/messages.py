"""What drift nodes say to each other. All of it is broadcast, so whoever hears it learns from it."""

from typing import Annotated

from msgspec import Meta

from driftcast.model import EventId
from driftcast.wire import EventMessage, Message

NAME_BYTES = 2
MAX_NAMES = 1024
"""Neighbors that one frame names; who has more names the first of them, and the rest is told twice."""

MAX_RUNS_BYTES = 8192
"""Of one digest; what is longer travels in parts."""

Runs = Annotated[bytes, Meta(max_length=MAX_RUNS_BYTES)]
"""Ids, as `runs.py` packs them."""

Name = Annotated[int, Meta(ge=0, lt=1 << (8 * NAME_BYTES))]
"""A node's short name: the last two bytes of its id."""


class Data(EventMessage, frozen=True, gc=False, tag=1):
    """One event, and the short names of all who should hear this very frame."""

    names: Annotated[bytes, Meta(max_length=NAME_BYTES * MAX_NAMES)] = b""

    def __post_init__(self) -> None:
        if len(self.names) % NAME_BYTES:
            raise ValueError("half a name")


class Offer(Message, frozen=True, gc=False, tag=2):
    """These I hold: who lacks one may want it."""

    runs: Runs


class Hash(Message, frozen=True, gc=False, tag=3):
    """All that I have met, in 32 bits."""

    value: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Digest(Message, frozen=True, gc=False, tag=4):
    """All that I have met of the ids from `low` to `high`, and which of it I hold no longer."""

    met: Runs
    gone: Runs = b""
    low: EventId | None = None
    high: EventId | None = None


class Want(Message, frozen=True, gc=False, tag=5):
    """These I lack. `of`: who is known to hold them and answers first; any other holder if it does not."""

    runs: Runs
    of: Name
