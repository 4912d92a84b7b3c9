"""Direct delivery: a publisher keeps its events until it meets who wants them, and nobody carries for others."""

from random import Random

from driftcast.model import NodeId
from driftcast.parts.buffer import Stored
from driftcast.parts.carried import CarrySettings
from driftcast.parts.carrier import Carrier
from driftcast.parts.share import Rule, Share
from driftcast.protocol import Host, Port


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
