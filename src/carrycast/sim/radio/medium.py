"""The interface of media, which carry frames between linked nodes and report receptions and outcomes.

A medium knows nothing of protocols: a message is an object with a size.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from carrycast.core.model import Failure, NodeId
from carrycast.core.wire import Layer, Message

Places = Callable[[Iterable[NodeId]], list[tuple[float, float]]]
"""Returns the current positions of nodes, in meters."""


class Scheduler(ABC):
    """The clock and the event queue that a medium uses."""

    __slots__ = ()

    now_us: int

    @abstractmethod
    def at(self, time_us: int, action: Callable[[object], None], argument: object) -> None:
        """Call `action(argument)` at a time."""


class Frame:
    """A message that a medium carries.

    `target` is None for a broadcast. `attempts` counts its transmissions, and `lost` says whether the last one failed
    too; the medium sets both. A medium that knows it also sets `airtime_us`, the time on the air of these attempts and
    of their acknowledgements.
    """

    copies: int = 1
    """The number of unicasts that the frame stands for."""

    __slots__ = (
        "airtime_us",
        "attempts",
        "encoded",
        "interface",
        "layer",
        "lost",
        "message",
        "sender",
        "sent_us",
        "target",
        "token",
    )

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
        self.airtime_us: int | None = None

    @property
    def unicast(self) -> bool:
        """Whether the frame has one target."""
        return self.target is not None


class UnicastBatch(Frame):
    """One message to several nodes, one transmission each, for a medium on which all take the same time."""

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
        """True: each frame of the batch has one target."""
        return True

    def to(self, target: NodeId) -> Frame:
        """The frame to one of the targets."""
        return Frame(self.sender, target, self.layer, self.message, self.encoded, None, self.sent_us, self.interface)


class Reach:
    """The nodes that receive a node's frames now. It is shared by all transmissions until a link changes."""

    __slots__ = ("_bits", "_ids", "nodes", "packed")

    def __init__(self, nodes: tuple[NodeId, ...]) -> None:
        self.nodes = nodes
        self._bits = -1
        self._ids: frozenset[NodeId] | None = None
        self.packed = struct.pack(f"<{len(nodes)}q", *nodes)

    @property
    def ids(self) -> frozenset[NodeId]:
        """The nodes as a set, created at the first access."""
        if self._ids is None:
            self._ids = frozenset(self.nodes)
        return self._ids

    @property
    def bits(self) -> int:
        """The nodes as an integer, in which bit n stands for node n; created at the first access."""
        if self._bits < 0:
            self._bits = 0
            for node in self.nodes:
                self._bits |= 1 << node
        return self._bits


class MediumUpcalls(ABC):
    """The callbacks by which a medium reports frames."""

    __slots__ = ()

    @abstractmethod
    def on_received(self, frame: Frame, reach: Reach) -> None:
        """All nodes in `reach`, possibly none, receive a frame now."""

    @abstractmethod
    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        """The outcome of a unicast, reported once, after `on_received`; None if it arrived.

        For a unicast without a token, only `UNREACHABLE` is reported.
        """

    def on_unreachable(self, frames: Sequence[Frame]) -> None:
        """A neighbor could not be reached: the outcome of the frame that was tried and of the frames queued behind it.

        All of them have left the queue. The frames that were never transmitted have been reported by `on_lost`.
        """
        for frame in frames:
            self.on_outcome(frame, Failure.UNREACHABLE)

    @abstractmethod
    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        """A node within range did not receive a frame, or the frame never left its sender."""

    @abstractmethod
    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        """Nodes overheard a unicast to another node. Only a `promiscuous` medium reports this."""

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        """Several nodes within range did not receive a frame, for the same reason."""
        for node in nodes:
            self.on_lost(frame, node, reason)


class Topology:
    """The links between nodes: two nodes are linked if they are in range, both are up, and the link is not cut."""

    __slots__ = ("_alone", "_contacts", "_cut", "_reach", "_up", "version")

    def __init__(self, nodes: int) -> None:
        self.version = 0
        """Changes with every change of a link, so that results computed from all links can be cached."""
        self._contacts: list[dict[NodeId, None]] = [{} for _ in range(nodes)]
        self._up = [True] * nodes
        self._cut: dict[tuple[NodeId, NodeId], int] = {}
        """Pair of nodes -> the number of faults that cut its link."""
        self._reach: list[Reach | None] = [None] * nodes
        self._alone = [Reach((node,)) for node in range(nodes)]

    def alone(self, node: NodeId) -> Reach:
        """Only this node: the receiver of a unicast."""
        return self._alone[node]

    def reach(self, node: NodeId) -> Reach:
        """All neighbors of a node, in the order in which their contacts began."""
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

    def is_linked(self, a: NodeId, b: NodeId) -> bool:
        """Whether two nodes are linked."""
        up = self._up
        if b not in self._contacts[a] or not up[a] or not up[b]:
            return False
        return not self._cut or (min(a, b), max(a, b)) not in self._cut

    def within(self, node: NodeId, others: Sequence[NodeId]) -> Reach:
        """The neighbors of a node among some others."""
        ids = self.reach(node).ids
        return Reach(tuple([other for other in others if other in ids]))

    def set_contact(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Record that two nodes come into range or leave it."""
        if up:
            self._contacts[a][b] = None
            self._contacts[b][a] = None
        else:
            self._contacts[a].pop(b, None)
            self._contacts[b].pop(a, None)
        self._reach[a] = self._reach[b] = None
        self.version += 1

    def set_node(self, node: NodeId, up: bool) -> None:
        """Record that a node goes down or comes up."""
        self._up[node] = up
        self.version += 1
        self._reach[node] = None
        for other in self._contacts[node]:
            self._reach[other] = None

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Begin or end a cut of a link. Several cuts may overlap; the link is back when all have ended."""
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
    """Whether overheard unicasts are reported."""
    takes_time: bool = True
    """Whether frames have an airtime."""

    @abstractmethod
    def transmit(self, frame: Frame) -> None:
        """Queue a frame of its sender. A full queue drops it and reports the reason."""

    def transmit_each(self, batch: UnicastBatch) -> None:
        """Queue the frames of a batch in the order of their targets."""
        for target in batch.targets:
            self.transmit(batch.to(target))

    def airtime_us(self, frame: Frame) -> int | None:
        """The time on the air of all attempts of a frame that was received, with their acknowledgements."""
        return frame.airtime_us

    @abstractmethod
    def cost_s(self) -> float:
        """The expected time to send a packet of 500 bytes over a link."""
