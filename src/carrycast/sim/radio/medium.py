"""What every radio model has in common: frames in, receptions and outcomes out.

A medium knows who is linked with whom and carries frames between nodes. It knows no protocol: a message is to it an
object of some size.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from carrycast.core.model import Failure, NodeId
from carrycast.core.wire import Layer, Message


class Scheduler(ABC):
    """The clock and queue that a medium lives in."""

    __slots__ = ()

    now_us: int

    @abstractmethod
    def at(self, time_us: int, action: Callable[[object], None], argument: object) -> None:
        """Call `action(argument)` at a time."""


class Frame:
    """One transmission on its way.

    `target` is None for a broadcast. `attempts` counts how often it goes on the air, and `lost` says that the last of
    them was in vain too; the medium sets both.
    """

    copies: int = 1
    """How many messages it stands for."""

    __slots__ = ("attempts", "encoded", "interface", "layer", "lost", "message", "sender", "sent_us", "target", "token")

    def __init__(
        self,
        sender: NodeId,
        target: NodeId | None,
        layer: Layer,
        message: Message,
        encoded: bytes,
        token: int | None,
        sent_us: int,
        interface: str = "radio",
    ) -> None:
        self.sender = sender
        self.target = target
        self.layer = layer
        self.message = message
        self.encoded = encoded
        self.token = token
        self.sent_us = sent_us
        self.interface = interface
        self.attempts = 1
        self.lost = False

    @property
    def unicast(self) -> bool:
        """Whether it is for one node and no others."""
        return self.target is not None


class UnicastBatch(Frame):
    """The same message to several nodes, one transmission each, for a medium that carries them all in the same time."""

    __slots__ = ("copies", "targets")

    def __init__(
        self,
        sender: NodeId,
        targets: Sequence[NodeId],
        layer: Layer,
        message: Message,
        encoded: bytes,
        sent_us: int,
        interface: str,
    ) -> None:
        super().__init__(sender, None, layer, message, encoded, None, sent_us, interface)
        self.targets = tuple(targets)
        self.copies = len(targets)

    @property
    def unicast(self) -> bool:
        """Each of them is for one."""
        return True

    def to(self, target: NodeId) -> Frame:
        """The one to this node."""
        return Frame(self.sender, target, self.layer, self.message, self.encoded, None, self.sent_us, self.interface)


class Reach:
    """Who hears a node right now. Made once per change of its links and shared by its transmissions until the next."""

    __slots__ = ("_ids", "nodes", "packed")

    def __init__(self, nodes: tuple[NodeId, ...]) -> None:
        self.nodes = nodes
        self._ids: frozenset[NodeId] | None = None
        self.packed = struct.pack(f"<{len(nodes)}q", *nodes)

    @property
    def ids(self) -> frozenset[NodeId]:
        """The same as a set; made when first asked for."""
        if self._ids is None:
            self._ids = frozenset(self.nodes)
        return self._ids


class MediumUpcalls(ABC):
    """The callbacks by which a medium reports frames."""

    __slots__ = ()

    @abstractmethod
    def on_received(self, frame: Frame, reach: Reach) -> None:
        """A frame is heard by everybody in `reach` (perhaps nobody), now."""

    @abstractmethod
    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        """What became of a unicast: told once, after `received`; None if it arrived.

        Of one without a token only that its target could not be reached.
        """

    def on_unreachable(self, frames: Sequence[Frame]) -> None:
        """A neighbor could not be reached: the outcome of the frame that was tried, and of those that waited for it.

        All of them have left the queue by then. What never was on the air has been said to be lost.
        """
        for frame in frames:
            self.on_outcome(frame, Failure.UNREACHABLE)

    @abstractmethod
    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        """A node that should have heard a frame did not, or a frame never left its sender."""

    @abstractmethod
    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        """Nodes that could read a unicast meant for another. Told only by a medium that is `promiscuous`."""

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        """Several nodes that should have heard a frame did not, for one reason."""
        for node in nodes:
            self.on_lost(frame, node, reason)


class Topology:
    """Who is linked with whom: in range, both nodes up, and the link not cut."""

    __slots__ = ("_alone", "_contacts", "_cut", "_reach", "_up", "version")

    def __init__(self, nodes: int) -> None:
        self.version = 0
        """Another one after each change, so that whoever looks at all links need not look again for nothing."""
        self._contacts: list[dict[NodeId, None]] = [{} for _ in range(nodes)]
        self._up = [True] * nodes
        self._cut: dict[tuple[NodeId, NodeId], int] = {}
        """How many things stand between two nodes."""
        self._reach: list[Reach | None] = [None] * nodes
        self._alone = [Reach((node,)) for node in range(nodes)]

    def alone(self, node: NodeId) -> Reach:
        """The node and nobody else: who hears a unicast."""
        return self._alone[node]

    def reach(self, node: NodeId) -> Reach:
        """Everybody who hears the node, in the order in which their contacts began."""
        reach = self._reach[node]
        if reach is None:
            up, cut = self._up, self._cut
            heard: list[NodeId] = []
            if up[node]:
                heard = [other for other in self._contacts[node] if up[other]]
                if cut:
                    heard = [other for other in heard if (min(node, other), max(node, other)) not in cut]
            reach = self._reach[node] = Reach(tuple(heard))
        return reach

    def linked(self, a: NodeId, b: NodeId) -> bool:
        """Whether two nodes hear each other."""
        up = self._up
        if b not in self._contacts[a] or not up[a] or not up[b]:
            return False
        return not self._cut or (min(a, b), max(a, b)) not in self._cut

    def within(self, node: NodeId, others: Sequence[NodeId]) -> Reach:
        """Those of several nodes that hear a node."""
        ids = self.reach(node).ids
        return Reach(tuple([other for other in others if other in ids]))

    def set_contact(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Two nodes come into range or leave it."""
        if up:
            self._contacts[a][b] = None
            self._contacts[b][a] = None
        else:
            self._contacts[a].pop(b, None)
            self._contacts[b].pop(a, None)
        self._reach[a] = self._reach[b] = None
        self.version += 1

    def set_node(self, node: NodeId, up: bool) -> None:
        """A node goes down or comes back."""
        self._up[node] = up
        self.version += 1
        self._reach[node] = None
        for other in self._contacts[node]:
            self._reach[other] = None

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Something stands between two nodes, or no longer does. Several things may: each has to go."""
        pair = (min(a, b), max(a, b))
        left = self._cut.get(pair, 0) + (1 if cut else -1)
        assert left >= 0, "a cut ends that never began"
        if left:
            self._cut[pair] = left
        else:
            del self._cut[pair]
        self._reach[a] = self._reach[b] = None
        self.version += 1


class Medium(ABC):
    """Carries frames over one interface."""

    interface: str
    topology: Topology
    promiscuous: bool = False
    """Whether somebody wants to know who else could read a unicast."""

    @abstractmethod
    def transmit(self, frame: Frame) -> None:
        """Take a frame from its sender. A full queue drops it, with a reason."""

    def transmit_each(self, volley: UnicastBatch) -> None:
        """Take the frames to several nodes, in their order."""
        for target in volley.targets:
            self.transmit(volley.to(target))

    @abstractmethod
    def cost_s(self) -> float:
        """The expected time to move a packet of 500 bytes over a link."""
