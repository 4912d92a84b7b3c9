"""Probes: what is measured of a whole network at one moment, by somebody who sees all of it.

A protocol offers probes of its own state by name (`Protocol.probes`), and a simulated run samples those that it is
asked for. They look and change nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol.host import GlobalView

if TYPE_CHECKING:
    from carrycast.core.protocol.machine import Protocol


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A network at one moment."""

    time_s: float
    protocols: Mapping[NodeId, "Protocol"]
    """The protocol of each node that is up, by id."""
    roles: Mapping[str, Sequence[NodeId]]
    view: GlobalView


Probe: TypeAlias = Callable[[Snapshot], float | None]
"""From a `Snapshot` to a number, or None where there is none right now."""
