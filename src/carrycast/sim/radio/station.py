"""What the contended radio keeps for each node, and for each transmission on the air."""

import enum
from collections import deque

from carrycast.core.model import NodeId
from carrycast.sim.radio.medium import Frame

NEVER = 1 << 62
"""Later than any simulation lasts."""
LONG_AGO_US = -(1 << 62)


class FrameKind(enum.IntEnum):
    """What is on the air."""

    BROADCAST = 0
    DATA = 1
    ACK = 2
    RTS = 3
    CTS = 4


class CsmaStation:
    """One node's sender.

    While it contends for the medium it either counts down, and would send at `access_us`, or it is frozen: then
    `access_us` is NEVER, and a transmission that it senses knows that it waits.
    """

    __slots__ = (
        "access_us",
        "asked",
        "epoch",
        "failure",
        "group",
        "heard",
        "long_tries",
        "nav_us",
        "node",
        "queue",
        "rested_us",
        "slots",
        "tries",
        "window",
    )

    def __init__(self, node: NodeId, window: int) -> None:
        self.node = node
        self.queue: deque[Frame] = deque()
        """What it has to send; the first is being sent."""
        self.epoch = 0
        """Counts crashes: what began before one concerns nobody after it."""
        self.nav_us = LONG_AGO_US
        """Until when others have reserved the medium."""
        self.reset(window)
        self.slots = 0
        """The backoff that is left: of the frame being sent or, with an empty queue, from `rested_us` on."""
        self.rested_us = 0
        self.access_us = NEVER
        self.group: list[CsmaStation] | None = None
        """Those whose next access one queue entry stands for."""

    def reset(self, window: int) -> None:
        """A new frame begins with a clean slate."""
        self.window = window
        self.tries = 0
        self.long_tries = 0
        self.heard = 0
        """At which attempt the target got the frame; 0 if it has not."""
        self.asked = False
        self.failure = ""

    def withdraw(self, target: NodeId | None) -> list[Frame]:
        """Take out what waits for a node behind the frame being sent, in its order."""
        first, *behind = self.queue
        waited = [frame for frame in behind if frame.target == target]
        if waited:
            self.queue = deque([first, *(frame for frame in behind if frame.target != target)])
        return waited


class Transmission:
    """Something on the air: who hears it, who senses it, whose receptions it spoils, and what spoils it."""

    __slots__ = (
        "blast",
        "deaf",
        "end_us",
        "epoch",
        "frame",
        "frozen",
        "garbled",
        "kind",
        "owner",
        "puzzled",
        "readers",
        "sender",
        "sensed",
        "start_us",
    )

    def __init__(
        self,
        kind: FrameKind,
        sender: NodeId,
        owner: CsmaStation,
        frame: Frame,
        start_us: int,
        end_us: int,
        readers: frozenset[NodeId],
        sensed: frozenset[NodeId],
        blast: frozenset[NodeId],
    ) -> None:
        self.kind = kind
        self.sender = sender
        self.owner = owner
        """Whose frame this is about, also where the other side answers."""
        self.epoch = owner.epoch
        self.frame = frame
        self.start_us = start_us
        self.end_us = end_us
        self.readers = readers
        """Who is within range of it."""
        self.sensed = sensed
        self.blast = blast
        self.frozen: set[NodeId] = set()
        """Who waits for its end."""
        self.garbled: frozenset[NodeId] = _NOBODY
        """Who is in reach and cannot read it."""
        self.deaf: frozenset[NodeId] = _NOBODY
        """Who of them was sending meanwhile."""
        self.puzzled: frozenset[NodeId] = _NOBODY
        """Who listened and could not read it, known from its end on: they wait EIFS, the deaf do not."""


_NOBODY: frozenset[NodeId] = frozenset()
