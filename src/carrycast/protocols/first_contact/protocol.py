"""First contact: one copy of each event wanders from node to node, to the first neighbor that has not had it."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.parts.carried import CarrySettings
from carrycast.core.parts.carrier import CountingCarrier
from carrycast.core.parts.share import Rule, Share
from carrycast.core.protocol import Host, Port


class TheOnlyCopy(Rule):
    """Whoever carries an event gives it away."""

    __slots__ = ()

    def share(self, now: float, stored: Stored, copies: int, neighbor: NodeId, wanted: bool) -> Share:
        """All there is; while a copy is under way there is none."""
        return Share(copies, 0)


class FirstContact(CountingCarrier):
    """A random walk of each event, which leaves one with every subscriber that it passes."""

    name = "first_contact"
    summary = "one copy of each event, handed to the first neighbor that has not had it"

    def __init__(self, node: NodeId, settings: CarrySettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, TheOnlyCopy())
