"""Cuts of links that are drawn, while a run goes, from the links that there are."""

from collections.abc import Callable, Iterable
from random import Random

from carrycast.core.model import NodeId
from carrycast.sim.engine.kernel import Kernel, microseconds
from carrycast.sim.radio.medium import Topology
from carrycast.sim.scenario.faults import LinkCuts

Edge = tuple[NodeId, NodeId]


class DrawnCuts:
    """One `link_cuts` of a scenario. At each strike it cuts so many links that `at_once` are cut, each for a while."""

    def __init__(
        self,
        fault: LinkCuts,
        rng: Random,
        kernel: Kernel,
        links: Callable[[], list[Edge]],
        set_cut: Callable[[NodeId, NodeId, bool], None],
        duration_s: float,
    ) -> None:
        self._fault = fault
        self._rng = rng
        self._kernel = kernel
        self._links = links
        self._set_cut = set_cut
        self._end_s = duration_s if fault.to_s is None else min(duration_s, fault.to_s)
        self._cut: dict[Edge, None] = {}
        self._next_s = fault.from_s

    def start(self) -> None:
        """Wait for the first strike, one interval after the start."""
        self._wait()

    def _wait(self) -> None:
        fault = self._fault
        self._next_s += self._rng.expovariate(1 / fault.every_s) if fault.exponential else fault.every_s
        if self._next_s <= self._end_s:
            self._kernel.at(microseconds(self._next_s), self._strike, None)

    def _strike(self, _: object) -> None:
        free = max(0, self._fault.at_once - len(self._cut))
        there = self._links()
        for edge in self._rng.sample(there, min(free, len(there))):
            self._cut[edge] = None
            self._set_cut(*edge, True)
            self._kernel.at(self._kernel.now_us + microseconds(self._fault.for_s), self._heal, edge)
        self._wait()

    def _heal(self, edge: object) -> None:
        assert isinstance(edge, tuple)
        del self._cut[edge]
        a, b = edge
        self._set_cut(a, b, False)


def links_there(topologies: Iterable[Topology], nodes: int) -> list[Edge]:
    """The pairs of nodes that hear each other right now, over whatever interface."""
    pairs = {
        (node, other)
        for topology in topologies
        for node in range(nodes)
        for other in topology.reach(node).nodes
        if node < other
    }
    return sorted(pairs)
