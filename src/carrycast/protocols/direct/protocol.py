"""Direct delivery (Spyropoulos et al., SECON 2004; `DirectDelivery` in the ONE): a publisher carries its events until
it meets interested nodes. No other node carries them."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import NodeId
from carrycast.core.parts import BufferedEvent, CarrierProtocol, CarrierSettings, CopyRule, CopyShare
from carrycast.core.protocol import Host, Port


class DirectDeliveryRule(CopyRule):
    """Only the publisher of an event carries it."""

    __slots__ = ()

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """No copy to carry: an interested neighbor gets the event for itself only."""
        return CopyShare(0, copies)


class Direct(CarrierProtocol):
    """One transmission of an event for each interested node that its publisher meets."""

    name = "direct"
    summary = "a publisher carries its events until it meets interested nodes"
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"again_s": (2.0, 60.0)}

    def __init__(self, node: NodeId, settings: CarrierSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, DirectDeliveryRule())
