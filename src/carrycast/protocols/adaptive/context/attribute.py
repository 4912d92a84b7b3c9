"""What a context attribute is: something that can be observed at a node every period, 0 (bad) to 1 (good)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import ClassVar

from carrycast.core.model import NodeId
from carrycast.core.protocol import Capability, Host


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node can see of itself and around itself at the end of a period."""

    now: float
    host: Host
    neighbors: Set[NodeId]
    neighbors_before: Set[NodeId]
    """Those at the beginning of the period."""
    near: Collection[str]
    """The filters that neighbors subscribe to, and the known filters that those cover."""
    buffer_free: float
    """The unused share of the buffer."""


class ContextAttribute:
    """The base of all attributes."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    needs: ClassVar[frozenset[Capability]] = frozenset()
    """What the node's world must offer if the attribute has a weight."""


class HostAttribute(ContextAttribute, ABC):
    """An attribute of the node itself, the same for every interest."""

    @abstractmethod
    def observe(self, around: Surroundings) -> float | None:
        """The value for this period, or None if there is nothing to be seen: the prediction then stands."""


class InterestAttribute(ContextAttribute, ABC):
    """An attribute with a value for each interest."""

    @abstractmethod
    def observe(self, around: Surroundings) -> dict[str, float]:
        """The interests with a value above 0 in this period; it is 0 for all others."""
