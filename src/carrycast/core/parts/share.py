"""Who carries copies of an event: the one decision in which protocols of carriers differ."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import Stored


class Share(NamedTuple):
    """How many copies a neighbor gets, and how many stay; with none left the event is no longer carried here."""

    given: int
    kept: int


class Rule(ABC):
    """What a protocol decides: how many copies of an event a neighbor is to carry."""

    __slots__ = ()

    @abstractmethod
    def share(self, now: float, stored: Stored, copies: int, neighbor: NodeId, wanted: bool) -> Share:
        """What a neighbor would get to carry. One that wants the event itself gets it, whatever is said here."""
