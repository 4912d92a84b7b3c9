"""Direct delivery: a publisher keeps its events until it meets who wants them, and nobody carries for others."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.carrier import CarrierProtocol
from carrycast.core.parts.carrier_buffer import CarrierSettings
from carrycast.core.parts.copies import CopyRule, CopyShare
from carrycast.core.protocol import Host, Port


class NoCopies(CopyRule):
    """Nobody carries an event but its publisher."""

    __slots__ = ()

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """Whoever wants the event gets it for itself."""
        return CopyShare(0, copies)


class Direct(CarrierProtocol):
    """One transmission of an event for each subscriber that its publisher meets."""

    name = "direct"
    summary = "a publisher keeps its events until it meets who wants them"

    def __init__(self, node: NodeId, settings: CarrierSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, NoCopies())
