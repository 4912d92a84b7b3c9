"""Spray and wait (Spyropoulos, Psounis and Raghavendra, WDTN 2005): a fixed number of copies of each event.

In the spray phase the copies are spread over as many nodes. In the wait phase each carrier keeps its copy until it
meets an interested node (direct delivery)."""

from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts import (
    MAX_COPIES,
    BufferedEvent,
    CarrierSettings,
    CopyRule,
    CopyShare,
    ReplicatingCarrierProtocol,
)
from carrycast.core.protocol import Host, Port


class SprayAndWaitSettings(CarrierSettings, frozen=True):
    """The number of copies of an event, and which nodes spray them."""

    # L in the paper. The ONE's example settings have 6 copies; 8 is the next number that halves to one.
    copies: Annotated[int, Meta(ge=1, le=MAX_COPIES, description="L: at most so many nodes carry an event")] = 8
    spray: Annotated[
        Literal["binary", "source"],
        Meta(description="binary: a node with copies gives half of them; source: the publisher gives one at a time"),
    ] = "binary"


def spray_binary(copies: int) -> CopyShare:
    """Binary spray: a node with n > 1 copies gives ⌊n/2⌋ to a node without a copy and keeps ⌈n/2⌉; with one copy it
    waits [Spyropoulos et al. 2005, section 3]."""
    given = copies // 2
    return CopyShare(given, copies - given)


def spray_from_source(copies: int, own: bool) -> CopyShare:
    """Source spray: the publisher gives one copy to each of the first nodes that it meets, and keeps the last
    [Spyropoulos et al. 2005, section 3]."""
    given = 1 if own and copies > 1 else 0
    return CopyShare(given, copies - given)


class SprayRule(CopyRule):
    """Binary spray or source spray."""

    __slots__ = ("_binary",)

    def __init__(self, spray: str) -> None:
        self._binary = spray == "binary"

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """Decide by the number of copies only."""
        return spray_binary(copies) if self._binary else spray_from_source(copies, own=stored.hops == 0)


class SprayAndWait(ReplicatingCarrierProtocol):
    """At most `copies` nodes carry an event, however many there are."""

    name = "spray_and_wait"
    summary = "a fixed number of copies of each event, which then wait for interested nodes"
    settings_type = SprayAndWaitSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"copies": (2, 4, 16, 32)}
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"source": {"spray": "source"}}

    def __init__(self, node: NodeId, settings: SprayAndWaitSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, SprayRule(settings.spray))
        self.copies = settings.copies
