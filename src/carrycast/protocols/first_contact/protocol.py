"""First contact: one copy of each event wanders from node to node, to the first neighbor that has not had it."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.carrier import ReplicatingCarrierProtocol
from carrycast.core.parts.carrier_buffer import CarrierSettings
from carrycast.core.parts.copies import CopyRule, CopyShare
from carrycast.core.protocol import Host, Port


class TheOnlyCopy(CopyRule):
    """Whoever carries an event gives it away."""

    __slots__ = ()

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """All there is; while a copy is under way there is none."""
        return CopyShare(copies, 0)


class FirstContact(ReplicatingCarrierProtocol):
    """A random walk of each event, which leaves one with every subscriber that it passes."""

    name = "first_contact"
    summary = "one copy of each event, handed to the first neighbor that has not had it"

    def __init__(self, node: NodeId, settings: CarrierSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, TheOnlyCopy())
