"""The retention contract: which events a node guarantees to keep, and for which reasons it may remove them.

A protocol with a durable store keeps its events in a retention log, bounded in bytes. Each event in it has a retention
level. Guaranteed events (`GUARANTEED`) leave the log only for a reason in `MAY_END`. Others are evicted to make room.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from carrycast.core.model import Event, EventId
from carrycast.errors import UserError, WorkError


class RetentionLevel(enum.StrEnum):
    """The retention level of an event."""

    STORED = "stored"
    """Published here at level `stored` or `held`."""
    ACCEPTED = "accepted"
    """Published here at level `accepted`."""
    CUSTODY = "custody"
    """Custody was transferred from another node, which deleted its copy: kept like `stored`."""
    CARRIED = "carried"
    """A copy of an event that the sender keeps too."""


GUARANTEED = frozenset({RetentionLevel.STORED, RetentionLevel.CUSTODY})
LEASE_EXPIRED = "lease_over"
CUSTODY_TAKEN = "custody"
"""Another node has confirmed, after its own commit, that the event is in its log."""
MAY_END = frozenset({LEASE_EXPIRED, CUSTODY_TAKEN})
"""The reasons for which a guaranteed event may leave a log."""


class Usage(NamedTuple):
    """A number of events and of bytes, of a log or of one level."""

    events: int = 0
    length_bytes: float = 0


UNBOUNDED = float("inf")


class RetentionLog(ABC):
    """The log of one protocol on one node, as seen by its host."""

    most_bytes: int
    """The size limit of all records together."""
    longest_s: float
    """The longest lease that is kept."""

    @abstractmethod
    def rejection(self, event: Event) -> UserError | WorkError | None:
        """Why the log cannot guarantee to keep an event until its lease expires; None if it can."""

    @abstractmethod
    def guarantee(self, id: EventId | None) -> None:
        """Guarantee the event that is published next; None: no longer."""

    @abstractmethod
    def level(self, id: EventId) -> RetentionLevel | None:
        """The retention level of an event; None if it is not in the log."""

    @abstractmethod
    def loaded_level(self, id: EventId) -> RetentionLevel | None:
        """The level that an event had in the log when the node started; until `finish_start`."""

    @abstractmethod
    def finish_start(self) -> None:
        """The protocol has processed the events found at the start."""

    @property
    @abstractmethod
    def usage(self) -> Mapping[RetentionLevel, Usage]:
        """The current contents of the log, by level."""

    @property
    @abstractmethod
    def full(self) -> str | None:
        """Why the log accepts hardly any more guaranteed events; None if there is room."""
