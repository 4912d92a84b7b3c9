"""Context attributes: the observations that make a node a good carrier [004 §3].

An attribute is a class with a name, by which the setting `weights` refers to it, and a value from 0 (bad) to 1 (good)
in every period. A new attribute is added to `ATTRIBUTES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import ClassVar

from carrycast.core.model import NodeId
from carrycast.core.protocol import Capability, Host
from carrycast.protocols.adaptive.rules import change_degree


@dataclass(frozen=True, slots=True)
class ObservedContext:
    """The observations of a node about itself and its neighbors at the end of a period."""

    now: float
    host: Host
    neighbors: Set[NodeId]
    neighbors_before: Set[NodeId]
    """The neighbors at the beginning of the period."""
    neighbor_filters: Collection[str]
    """The filters that neighbors subscribe to, and the known filters that those cover."""
    buffer_free: float
    """The unused share of the buffer."""


class ContextAttribute:
    """The base of all attributes."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    needs: ClassVar[frozenset[Capability]] = frozenset()
    """The capabilities that the node's environment must offer if the attribute has a weight."""


class HostAttribute(ContextAttribute, ABC):
    """An attribute of the node itself, the same for every interest."""

    @abstractmethod
    def observe(self, context: ObservedContext) -> float | None:
        """The value of this period, or None if there is no observation: the prediction then stays."""


class InterestAttribute(ContextAttribute, ABC):
    """An attribute with a value for each interest."""

    @abstractmethod
    def observe(self, context: ObservedContext) -> dict[str, float]:
        """The interests with a value above 0 in this period; it is 0 for all others."""


class ChangeDegree(HostAttribute):
    """[004 §3, eq. 6] The change of the neighbors: a node that meets many others has more chances to forward."""

    name = "change_degree"
    summary = "the share of neighbors that came or went in the last period"

    def observe(self, context: ObservedContext) -> float | None:
        return change_degree(context.neighbors_before, context.neighbors)


class Colocation(InterestAttribute):
    """[004 §3] 1 for the interests of subscribers among the neighbors, else 0: a node that met some will meet some
    again."""

    name = "colocation"
    summary = "whether a subscriber of the interest is a neighbor"

    def observe(self, context: ObservedContext) -> dict[str, float]:
        return dict.fromkeys(context.neighbor_filters, 1.0)


class FreeBuffer(HostAttribute):
    """[004 §3] The unused share of the buffer: whether the node can carry an event at all."""

    name = "free_buffer"
    summary = "the unused share of the buffer"

    def observe(self, context: ObservedContext) -> float | None:
        return context.buffer_free


class ResidualEnergy(HostAttribute):
    """[004 §3] The rest of the battery: a carrier must stay alive long enough to meet others."""

    name = "residual_energy"
    summary = "the share of the battery that is left"
    needs = frozenset({Capability.ENERGY})

    def observe(self, context: ObservedContext) -> float | None:
        return min(1.0, max(0.0, context.host.energy(context.now)))


ATTRIBUTES: dict[str, type[ContextAttribute]] = {
    kind.name: kind for kind in (ChangeDegree, Colocation, FreeBuffer, ResidualEnergy)
}
"""All context attributes by name."""
