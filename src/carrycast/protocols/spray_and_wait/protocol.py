"""Spray and wait: each event begins with a number of copies; they are spread, and then each waits for who wants it."""

from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.carrier import ReplicatingCarrierProtocol
from carrycast.core.parts.carrier_buffer import CarrierSettings
from carrycast.core.parts.copies import MAX_COPIES, CopyRule, CopyShare
from carrycast.core.protocol import Host, Port
from carrycast.protocols.spray_and_wait.rules import binary, from_source


class SprayAndWaitSettings(CarrierSettings, frozen=True):
    """How many copies there are of an event, and who spreads them."""

    # The ONE's example settings have 6 copies; 8 is the next number that halves to one.
    copies: Annotated[int, Meta(ge=1, le=MAX_COPIES, description="nodes that carry an event at the most")] = 8
    spray: Annotated[
        Literal["binary", "source"],
        Meta(description="who spreads: whoever has copies gives half of them, or the publisher gives one at a time"),
    ] = "binary"


class Spraying(CopyRule):
    """Half of the copies, or one from the publisher."""

    __slots__ = ("_binary",)

    def __init__(self, spray: str) -> None:
        self._binary = spray == "binary"

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """By the number of copies alone."""
        return binary(copies) if self._binary else from_source(copies, own=stored.hops == 0)


class SprayAndWait(ReplicatingCarrierProtocol):
    """At most `copies` nodes carry an event, however many there are."""

    name = "spray_and_wait"
    summary = "a fixed number of copies of each event, which then wait for who wants it"
    settings_type = SprayAndWaitSettings
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"source": {"spray": "source"}}

    def __init__(self, node: NodeId, settings: SprayAndWaitSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, Spraying(settings.spray))
        self.copies = settings.copies
