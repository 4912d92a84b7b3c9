"""The state of the CSMA radio for each node and each transmission.

A set of nodes is an integer with one bit for each node (`NodeSet`). The intersection of two of them takes as long as
one addition, whatever the number of nodes in them; that of two sets takes as long as the smaller one.
"""

import enum
from collections import deque

from carrycast.core.model import NodeId
from carrycast.sim.radio.medium import Frame, Reach

NodeSet = int
"""A set of nodes: bit n is set if node n is in it."""

NEVER = 1 << 62
"""Later than the end of any run."""
LONG_AGO_US = -(1 << 62)


def list_nodes(nodes: NodeSet) -> list[NodeId]:
    """The nodes of a set in ascending order."""
    listed = []
    while nodes:
        bit = nodes & -nodes
        listed.append(bit.bit_length() - 1)
        nodes ^= bit
    return listed


class FrameKind(enum.IntEnum):
    """The kinds of 802.11 frames."""

    BROADCAST = 0
    DATA = 1
    ACK = 2
    RTS = 3
    CTS = 4


class CsmaStation:
    """The transmitter of one node.

    While it contends for the medium, its backoff either counts down, and it will send at `access_us`, or is frozen.
    Then `access_us` is NEVER, and the station is in `frozen` of a transmission that it senses.
    """

    __slots__ = (
        "access_us",
        "bit",
        "epoch",
        "failure",
        "group",
        "heard",
        "idle_from_us",
        "long_retries",
        "nav_us",
        "node",
        "queue",
        "rts_answered",
        "short_retries",
        "slots",
        "window",
    )

    def __init__(self, node: NodeId, window: int) -> None:
        self.node = node
        self.bit: NodeSet = 1 << node
        """The set of this node alone."""
        self.queue: deque[Frame] = deque()
        """The frames to send; the first is being sent."""
        self.epoch = 0
        """The number of crashes. Transmissions of an earlier epoch have no outcome."""
        self.nav_us = LONG_AGO_US
        """The end of the reservation of the medium by others (network allocation vector)."""
        self.reset(window)
        self.slots = 0
        """The remaining slots of the backoff; with an empty queue they count from `idle_from_us` on."""
        self.idle_from_us = 0
        self.access_us = NEVER
        self.group: list[CsmaStation] | None = None
        """The stations that share one queue entry for their next access."""

    def reset(self, window: int) -> None:
        """Reset the contention window and the retry counters for a new frame."""
        self.window = window
        self.short_retries = 0
        self.long_retries = 0
        self.heard = 0
        """The attempt at which the target received the frame; 0 if it has not."""
        self.rts_answered = False
        self.failure = ""

    def withdraw(self, target: NodeId | None) -> list[Frame]:
        """Remove the frames for a target that are queued behind the frame being sent, in order."""
        first, *behind = self.queue
        waited = [frame for frame in behind if frame.target == target]
        if waited:
            self.queue = deque([first, *(frame for frame in behind if frame.target != target)])
        return waited


class Transmission:
    """A transmission with the nodes that can receive it, sense it, and are interfered with by it.

    `reach` has the receivers as a tuple too.
    """

    __slots__ = (
        "collided",
        "eifs_nodes",
        "end_us",
        "epoch",
        "frame",
        "frozen",
        "interfered",
        "kind",
        "owner",
        "reach",
        "receivers",
        "sender",
        "sending",
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
        reach: Reach,
        sensed: NodeSet,
        interfered: NodeSet,
    ) -> None:
        self.kind = kind
        self.sender = sender
        self.owner = owner
        """The station whose frame is exchanged, also if the other side sends the answer."""
        self.epoch = owner.epoch
        self.frame = frame
        self.start_us = start_us
        self.end_us = end_us
        self.reach = reach
        """The nodes within range when it began."""
        self.receivers: NodeSet = reach.bits
        self.sensed = sensed
        self.interfered = interfered
        self.frozen: NodeSet = 0
        """The stations that wait for its end."""
        self.collided: NodeSet = 0
        """The receivers at which it collides with another transmission."""
        self.sending: NodeSet = 0
        """Those of `collided` that were sending meanwhile."""
        self.eifs_nodes: NodeSet = 0
        """The nodes that received it with errors and wait EIFS, set at its end. `sending` nodes are not among them."""
