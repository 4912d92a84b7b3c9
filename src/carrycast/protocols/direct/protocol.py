"""Direct delivery: a publisher keeps its events until it meets who wants them, and nobody carries for others."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.parts.carried import CarrySettings
from carrycast.core.parts.carrier import Carrier
from carrycast.core.parts.share import Rule, Share
from carrycast.core.protocol import Host, Port


class NoCopies(Rule):
    """Nobody carries an event but its publisher."""

    __slots__ = ()

    def share(self, now: float, stored: Stored, copies: int, neighbor: NodeId, wanted: bool) -> Share:
        """Whoever wants the event gets it for itself."""
        return Share(0, copies)


class Direct(Carrier):
    """One transmission of an event for each subscriber that its publisher meets."""

    name = "direct"
    summary = "a publisher keeps its events until it meets who wants them"

    def __init__(self, node: NodeId, settings: CarrySettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, NoCopies())
