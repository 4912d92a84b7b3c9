"""First contact (Jain, Fall and Patra, SIGCOMM 2004): a single copy of each event, which its carrier forwards to the
first neighbor that has not carried it."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import NodeId
from carrycast.core.parts import BufferedEvent, CarrierSettings, CopyRule, CopyShare, ReplicatingCarrierProtocol
from carrycast.core.protocol import Host, Port


class SingleCopyRule(CopyRule):
    """The carrier of an event forwards its only copy."""

    __slots__ = ()

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """All copies, that is one; none while the copy is in transit."""
        return CopyShare(copies, 0)


class FirstContact(ReplicatingCarrierProtocol):
    """A random walk of each event, which delivers it to every interested node that it meets."""

    name = "first_contact"
    summary = "a single copy of each event, forwarded to the first neighbor that has not carried it"
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"again_s": (2.0, 60.0)}

    def __init__(self, node: NodeId, settings: CarrierSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng, SingleCopyRule())
