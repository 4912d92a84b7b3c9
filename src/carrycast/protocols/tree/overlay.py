"""Which links make the tree. A broker has its parent and its children; a client has its home broker and nobody else.

Where links are given, each link of two brokers belongs to the tree, and a repair is a link that comes back. Where they
are not, brokers build a tree as MAODV and COMAN do [000 §V]: of each connected part one broker is the leader, the one
with the least id. It starts a round now and then, which travels down the tree; who has lost its parent takes a neighbor
that is nearer to the leader, which nobody below it is, and who finds none leads a part of its own until two parts meet.
"""

from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Port
from carrycast.protocols.tree.messages import MAX_DEPTH, Group


class Overlay:
    """What all kinds have in common: the neighbors over tree links, in the order in which they came."""

    def __init__(self) -> None:
        self.neighbors: dict[NodeId, None] = {}

    def found(self, now: float, node: NodeId) -> None:
        """A broker is linked."""

    def lost(self, now: float, node: NodeId) -> None:
        """A broker is no longer linked."""

    def heard(self, now: float, sender: NodeId, group: Group) -> None:
        """A linked broker says where it stands."""

    def tick(self, now: float) -> None:
        """Time for a round."""


class GivenTree(Overlay):
    """Every link of two brokers is a link of the tree."""

    def found(self, now: float, node: NodeId) -> None:
        self.neighbors[node] = None

    def lost(self, now: float, node: NodeId) -> None:
        self.neighbors.pop(node, None)


class HomeBroker(Overlay):
    """A client's only tree link: to the first broker that it met of those still there. It changes when that is lost."""

    def __init__(self) -> None:
        super().__init__()
        self._linked: dict[NodeId, None] = {}

    @property
    def home(self) -> NodeId | None:
        """The broker that serves the client."""
        return next(iter(self.neighbors), None)

    def found(self, now: float, node: NodeId) -> None:
        self._linked[node] = None
        self._attach()

    def lost(self, now: float, node: NodeId) -> None:
        self._linked.pop(node, None)
        self.neighbors.pop(node, None)
        self._attach()

    def _attach(self) -> None:
        if not self.neighbors and self._linked:
            self.neighbors[next(iter(self._linked))] = None


class _Round(NamedTuple):
    """Rounds of a leader that started anew are newer than all before."""

    incarnation: int
    number: int


class BuiltTree(Overlay):
    """One broker's part in building and repairing the tree."""

    def __init__(self, node: NodeId, incarnation: int, port: Port, patience_s: float) -> None:
        super().__init__()
        self._node = node
        self._port = port
        self._patience_s = patience_s
        self._groups: dict[NodeId, Group | None] = {}
        """What each linked broker said last."""
        self._leader = node
        self._round = _Round(incarnation, 0)
        self._own_round = self._round
        self._depth = 0
        self._parent: NodeId | None = None
        self._heard_s = 0.0
        """When the leader's newest round came."""
        self._left: dict[NodeId, _Round] = {}
        """Leaders that were given up, and the last round of each that counts no more."""

    @property
    def leader(self) -> NodeId:
        """Whose tree this is."""
        return self._leader

    @property
    def parent(self) -> NodeId | None:
        """Nobody, for a leader."""
        return self._parent

    def found(self, now: float, node: NodeId) -> None:
        self._groups[node] = None
        self._say()

    def lost(self, now: float, node: NodeId) -> None:
        self._groups.pop(node, None)
        self.neighbors.pop(node, None)
        if node == self._parent:
            self._repair(now)

    def heard(self, now: float, sender: NodeId, group: Group) -> None:
        if sender not in self._groups:
            return
        self._groups[sender] = group
        if self._is_better(group):
            self._join(now, sender, group)
        elif sender == self._parent:
            self._follow(now, sender, group)
        self._settle()

    def tick(self, now: float) -> None:
        if self._leader == self._node:
            self._own_round = self._round = _Round(self._own_round.incarnation, self._own_round.number + 1)
            self._heard_s = now
        elif now - self._heard_s > self._patience_s:
            # The leader is gone, or a circle of parents has closed, which no round can enter.
            self._lead(now)
            return
        self._say()

    def _is_better(self, group: Group) -> bool:
        """Whether a neighbor is in the tree of a lesser leader, whose rounds still come."""
        left = self._left.get(group.leader)
        if group.depth >= MAX_DEPTH or group.parent == self._node:
            return False
        return group.leader < self._leader and (left is None or _round(group) > left)

    def _follow(self, now: float, parent: NodeId, group: Group) -> None:
        if group.leader != self._leader or group.parent == self._node or group.depth >= MAX_DEPTH:
            # It has left this tree, or takes this node for its own parent.
            self._repair(now)
            return
        newer = _round(group) > self._round
        if newer or group.depth + 1 != self._depth:
            self._heard_s = now if newer else self._heard_s
            self._round = max(self._round, _round(group))
            self._depth = group.depth + 1
            self._say()

    def _repair(self, now: float) -> None:
        """[000 §V] A link is added between the two trees: to a neighbor that is nearer to the leader, as no node below
        this one is."""
        nearer = [
            (group.depth, node)
            for node, group in self._groups.items()
            if group is not None
            and group.leader == self._leader
            and group.depth < MAX_DEPTH
            # Nodes below are deeper; of two as deep, that lost one parent, only one may take the other.
            and (group.depth, node) < (self._depth, self._node)
            and group.parent != self._node
            and node != self._parent
        ]
        if nearer:
            _, node = min(nearer)
            group = self._groups[node]
            assert group is not None
            self._parent, self._depth = node, group.depth + 1
            self._settle()
            self._say()
        else:
            self._lead(now)

    def _join(self, now: float, parent: NodeId, group: Group) -> None:
        """[000 §V] Two parts have met: the one with the lesser leader takes in the other, node by node."""
        self._leader, self._round, self._depth = group.leader, _round(group), group.depth + 1
        self._parent = parent
        self._heard_s = now
        self._settle()
        self._say()

    def _lead(self, now: float) -> None:
        if self._leader != self._node:
            self._left[self._leader] = max(self._round, self._left.get(self._leader, self._round))
            while len(self._left) > MAX_DEPTH:
                del self._left[next(iter(self._left))]
        self._own_round = _Round(self._own_round.incarnation, self._own_round.number + 1)
        self._leader, self._round, self._depth, self._parent = self._node, self._own_round, 0, None
        self._heard_s = now
        self._settle()
        self._say()

    def _settle(self) -> None:
        """Tree links are those to the parent and to whoever says that this node is its parent."""
        kept = {
            node: None
            for node, group in self._groups.items()
            if node == self._parent or (group is not None and group.parent == self._node)
        }
        self.neighbors = {node: None for node in self.neighbors if node in kept} | kept

    def _say(self) -> None:
        self._port.broadcast(Group(self._leader, *self._round, self._depth, self._parent))


def _round(group: Group) -> _Round:
    return _Round(group.incarnation, group.round)
