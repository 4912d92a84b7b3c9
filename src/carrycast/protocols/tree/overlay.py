"""The links of the tree. A broker is linked to its parent and its children, a client to its broker only.

Where links are given, each link of two brokers belongs to the tree, and a repair is a link that comes back. Where they
are not, brokers build a spanning tree as MAODV and COMAN do [000 §V]. Each connected component has a leader, the broker
with the smallest id, which starts a round periodically; the round travels down the tree. A broker that has lost its
parent takes a neighbor that is nearer to the leader as its new parent, which no node of its own subtree is. A broker
that finds none becomes the leader of a component of its own until two components merge.
"""

from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Port
from carrycast.protocols.tree.messages import MAX_DEPTH, GroupHello


class TreeOverlay:
    """The neighbors over tree links, in the order in which they came."""

    def __init__(self) -> None:
        self.neighbors: dict[NodeId, None] = {}

    def on_broker_up(self, now: float, node: NodeId) -> None:
        """A link to a broker has come up."""

    def on_broker_down(self, now: float, node: NodeId) -> None:
        """The link to a broker has gone down."""

    def on_group_hello(self, now: float, sender: NodeId, group: GroupHello) -> None:
        """A linked broker sends its position in the tree."""

    def on_group_timer(self, now: float) -> None:
        """The group timer has fired."""


class GivenTree(TreeOverlay):
    """Every link of two brokers is a link of the tree."""

    def on_broker_up(self, now: float, node: NodeId) -> None:
        self.neighbors[node] = None

    def on_broker_down(self, now: float, node: NodeId) -> None:
        self.neighbors.pop(node, None)


class HomeBrokerLink(TreeOverlay):
    """A client's only tree link: to the broker that has been linked the longest. It changes when that link is lost."""

    def __init__(self) -> None:
        super().__init__()
        self._linked: dict[NodeId, None] = {}

    @property
    def home(self) -> NodeId | None:
        """The broker that serves the client."""
        return next(iter(self.neighbors), None)

    def on_broker_up(self, now: float, node: NodeId) -> None:
        self._linked[node] = None
        self._attach()

    def on_broker_down(self, now: float, node: NodeId) -> None:
        self._linked.pop(node, None)
        self.neighbors.pop(node, None)
        self._attach()

    def _attach(self) -> None:
        if not self.neighbors and self._linked:
            self.neighbors[next(iter(self._linked))] = None


class _Round(NamedTuple):
    """The number of a leader's round. Rounds after a restart of the leader are newer than all before."""

    incarnation: int
    number: int


class BuiltTree(TreeOverlay):
    """The state of one broker in a tree that brokers build and repair."""

    def __init__(self, node: NodeId, incarnation: int, port: Port, patience_s: float) -> None:
        super().__init__()
        self._node = node
        self._port = port
        self._patience_s = patience_s
        self._groups: dict[NodeId, GroupHello | None] = {}
        """The last hello of each linked broker."""
        self._leader = node
        self._round = _Round(incarnation, 0)
        self._own_round = self._round
        self._depth = 0
        self._parent: NodeId | None = None
        self._round_s = 0.0
        """When the leader's newest round arrived."""
        self._abandoned: dict[NodeId, _Round] = {}
        """Leaders that were given up, and the last round of each that is ignored."""

    @property
    def leader(self) -> NodeId:
        """The leader of the tree."""
        return self._leader

    @property
    def parent(self) -> NodeId | None:
        """The parent in the tree; None for a leader."""
        return self._parent

    def on_broker_up(self, now: float, node: NodeId) -> None:
        self._groups[node] = None
        self._send_hello()

    def on_broker_down(self, now: float, node: NodeId) -> None:
        self._groups.pop(node, None)
        self.neighbors.pop(node, None)
        if node == self._parent:
            self._repair(now)

    def on_group_hello(self, now: float, sender: NodeId, group: GroupHello) -> None:
        if sender not in self._groups:
            return
        self._groups[sender] = group
        if self._is_better(group):
            self._join(now, sender, group)
        elif sender == self._parent:
            self._follow(now, sender, group)
        self._update_neighbors()

    def on_group_timer(self, now: float) -> None:
        if self._leader == self._node:
            self._own_round = self._round = _Round(self._own_round.incarnation, self._own_round.number + 1)
            self._round_s = now
        elif now - self._round_s > self._patience_s:
            # The leader has failed, or parents form a cycle, which no round can enter.
            self._become_leader(now)
            return
        self._send_hello()

    def _is_better(self, group: GroupHello) -> bool:
        """Whether a neighbor is in the tree of a leader with a smaller id, whose rounds still arrive."""
        abandoned = self._abandoned.get(group.leader)
        if group.depth >= MAX_DEPTH or group.parent == self._node:
            return False
        return group.leader < self._leader and (abandoned is None or _get_round(group) > abandoned)

    def _follow(self, now: float, parent: NodeId, group: GroupHello) -> None:
        if group.leader != self._leader or group.parent == self._node or group.depth >= MAX_DEPTH:
            # The parent has left this tree, or takes this node as its own parent.
            self._repair(now)
            return
        newer = _get_round(group) > self._round
        if newer or group.depth + 1 != self._depth:
            self._round_s = now if newer else self._round_s
            self._round = max(self._round, _get_round(group))
            self._depth = group.depth + 1
            self._send_hello()

    def _repair(self, now: float) -> None:
        """[000 §V] Add a link between the two parts: take a neighbor that is nearer to the leader as the new parent,
        which no node of this subtree is."""
        nearer = [
            (group.depth, node)
            for node, group in self._groups.items()
            if group is not None
            and group.leader == self._leader
            and group.depth < MAX_DEPTH
            # Nodes of the subtree are deeper. Of two nodes of equal depth that lost a parent, only one may take the
            # other.
            and (group.depth, node) < (self._depth, self._node)
            and group.parent != self._node
            and node != self._parent
        ]
        if nearer:
            _, node = min(nearer)
            group = self._groups[node]
            assert group is not None
            self._parent, self._depth = node, group.depth + 1
            self._update_neighbors()
            self._send_hello()
        else:
            self._become_leader(now)

    def _join(self, now: float, parent: NodeId, group: GroupHello) -> None:
        """[000 §V] Two components merge: the nodes of the other join the one whose leader has the smaller id."""
        self._leader, self._round, self._depth = group.leader, _get_round(group), group.depth + 1
        self._parent = parent
        self._round_s = now
        self._update_neighbors()
        self._send_hello()

    def _become_leader(self, now: float) -> None:
        if self._leader != self._node:
            self._abandoned[self._leader] = max(self._round, self._abandoned.get(self._leader, self._round))
            while len(self._abandoned) > MAX_DEPTH:
                del self._abandoned[next(iter(self._abandoned))]
        self._own_round = _Round(self._own_round.incarnation, self._own_round.number + 1)
        self._leader, self._round, self._depth, self._parent = self._node, self._own_round, 0, None
        self._round_s = now
        self._update_neighbors()
        self._send_hello()

    def _update_neighbors(self) -> None:
        """Tree links are those to the parent and to all nodes whose parent is this node."""
        kept = {
            node: None
            for node, group in self._groups.items()
            if node == self._parent or (group is not None and group.parent == self._node)
        }
        self.neighbors = {node: None for node in self.neighbors if node in kept} | kept

    def _send_hello(self) -> None:
        self._port.broadcast(GroupHello(self._leader, *self._round, self._depth, self._parent))


def _get_round(group: GroupHello) -> _Round:
    return _Round(group.incarnation, group.round)
