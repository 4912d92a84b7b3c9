"""The whole network at one moment, for oracles: neighbors, positions and shortest paths."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId, Position
from carrycast.core.protocol import GlobalView
from carrycast.sim.engine.context import RunContext
from carrycast.sim.radio import Medium


class NetworkView(GlobalView):
    """Reads the topologies of all media. Shortest paths are cached until a link changes."""

    def __init__(self, media: Sequence[Medium], context: RunContext) -> None:
        self._topologies = [medium.topology for medium in media]
        self._context = context
        self._hops: NDArray[np.int16] | None = None
        self._hops_version = -1

    @property
    def version(self) -> int:
        return sum(topology.version for topology in self._topologies)

    def neighbors(self, node: NodeId) -> Sequence[NodeId]:
        first, *others = self._topologies
        near = first.reach(node).nodes
        if not others:
            return near
        return tuple(dict.fromkeys(chain(near, *(topology.reach(node).nodes for topology in others))))

    def position(self, node: NodeId) -> Position | None:
        return self._context.position(node)

    def hops(self) -> NDArray[np.int16]:
        if self._hops is None or self._hops_version != self.version:
            self._hops_version = self.version
            self._hops = compute_all_hops([self.neighbors(node) for node in range(self._context.scenario.nodes)])
        return self._hops


def compute_all_hops(neighbors: Sequence[Sequence[NodeId]]) -> NDArray[np.int16]:
    """The shortest paths of a network in which links go both ways, breadth first from all nodes at once.

    The nodes that a node has reached are a row of bits; in each step a node adds the nodes that its neighbors reached
    in the step before. A step costs the number of links times the number of nodes divided by 64.
    """
    nodes = len(neighbors)
    hops = np.full((nodes, nodes), -1, dtype=np.int16)
    np.fill_diagonal(hops, 0)
    degrees = np.fromiter(map(len, neighbors), dtype=np.int64, count=nodes)
    linked = np.flatnonzero(degrees)
    if len(linked):
        targets = np.fromiter(chain.from_iterable(neighbors), dtype=np.int64, count=int(degrees.sum()))
        starts = (np.cumsum(degrees) - degrees)[linked]
        reached = _pack_bits(np.eye(nodes, dtype=np.bool_))
        latest = reached.copy()
        step = 0
        while True:
            step += 1
            new = np.zeros_like(reached)
            new[linked] = np.bitwise_or.reduceat(latest[targets], starts, axis=0) & ~reached[linked]
            if not new.any():
                break
            reached |= new
            hops[np.unpackbits(new.view(np.uint8), axis=1, count=nodes).view(np.bool_)] = step
            latest = new
    hops.setflags(write=False)
    return hops


def _pack_bits(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack rows of booleans, 64 to a word."""
    packed = np.packbits(rows, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
