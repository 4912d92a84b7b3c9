"""The retention contract: what a node promised to keep, and for which reasons it may let go of it.

A protocol with a durable store keeps its events in a retention log, bounded in bytes. Each event in it has a level.
Promised events (`PROMISED`) leave the log only for a reason in `MAY_END`. The others make room for them.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from carrycast.core.model import Event, EventId
from carrycast.errors import UserError, WorkError


class Level(enum.StrEnum):
    """On which terms a node keeps an event."""

    STORED = "stored"
    """Published here at level `stored` or `held`."""
    ACCEPTED = "accepted"
    """Published here at level `accepted`."""
    CUSTODY = "custody"
    """Taken over from another node, which has let go of it: kept on the terms of `stored`."""
    CARRIED = "carried"
    """A copy of an event that another node keeps as well, or did when it sent it."""


PROMISED = frozenset({Level.STORED, Level.CUSTODY})
LEASE_END = "lease_over"
CUSTODY_TAKEN = "custody"
"""Another node has confirmed, after its own commit, that the event is in its log."""
MAY_END = frozenset({LEASE_END, CUSTODY_TAKEN})
"""The reasons for which a promised event may leave a log."""


class Usage(NamedTuple):
    """How many events, and how many bytes: of a log, or of one level in it."""

    events: int = 0
    length_bytes: float = 0


UNBOUNDED = float("inf")


class RetentionLog(ABC):
    """The log of one protocol on one node, as its host sees it."""

    most_bytes: int
    """Bytes that all records together may take."""
    longest_s: float
    """The longest lease that the protocol keeps an event for."""

    @abstractmethod
    def refusal(self, event: Event) -> UserError | WorkError | None:
        """Why an event cannot be promised to be kept until its lease ends; None if it can."""

    @abstractmethod
    def pledge(self, id: EventId | None) -> None:
        """The event that is published next is promised to be kept; None: no longer."""

    @abstractmethod
    def level(self, id: EventId) -> Level | None:
        """On which terms an event is kept; None if it is not in the log."""

    @abstractmethod
    def loaded(self, id: EventId) -> Level | None:
        """On which terms an event was kept when the node started, until `started`."""

    @abstractmethod
    def started(self) -> None:
        """What was kept before the start has been dealt with."""

    @property
    @abstractmethod
    def usage(self) -> Mapping[Level, Usage]:
        """What is in the log right now, by level."""

    @property
    @abstractmethod
    def full(self) -> str | None:
        """Why hardly any event can be promised to be kept; None if there is room."""
