"""Links that are slower than their radio for a while: how much later what goes over them comes, and in what order."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

from carrycast.core.model import NodeId
from carrycast.core.streams import stream
from carrycast.sim.engine.kernel import US_PER_S, Kernel, microseconds
from carrycast.sim.radio.medium import Topology
from carrycast.sim.scenario.faults import FaultPlan, LinkCuts, LinkSlow, Outage


class SlowLinks:
    """The slow links of this moment, and what is still under way over those that were slow.

    Between two nodes order is kept: what comes after the link has recovered does not overtake what came before.
    """

    def __init__(self) -> None:
        self._active: list[LinkSlow] = []
        self._extra_us: dict[tuple[NodeId, NodeId], int] = {}
        self._due_us: dict[tuple[NodeId, NodeId], int] = {}
        """Sender and receiver -> when the last message that is under way is due."""

    def __bool__(self) -> bool:
        return bool(self._extra_us or self._due_us)

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """A fault begins or ends; several of one link add up."""
        if on:
            self._active.append(fault)
        else:
            self._active.remove(fault)
        self._extra_us.clear()
        for one in self._active:
            a, b = one.between
            for pair in ((a, b), (b, a)):
                self._extra_us[pair] = self._extra_us.get(pair, 0) + microseconds(one.delay_s)

    def extra_s(self, node: NodeId, neighbor: NodeId) -> float:
        """How much longer a message takes between the two than their radio says."""
        return self._extra_us.get((node, neighbor), 0) / US_PER_S

    def due_us(self, now_us: int, sender: NodeId, receiver: NodeId) -> int:
        """When a message that the radio brings now is there; now, if nothing holds it up."""
        pair = (sender, receiver)
        due_us = max(now_us + self._extra_us.get(pair, 0), self._due_us.get(pair, 0))
        if due_us > now_us:
            self._due_us[pair] = due_us
        return due_us

    def arrived(self, now_us: int, sender: NodeId, receiver: NodeId) -> None:
        """A message that was under way is there."""
        if self._due_us.get((sender, receiver), 0) <= now_us:
            self._due_us.pop((sender, receiver), None)


LinkPair = tuple[NodeId, NodeId]


class RandomLinkCuts:
    """One `link_cuts` of a scenario. At each strike it cuts so many links that `at_once` are cut, each for a while."""

    def __init__(
        self,
        fault: LinkCuts,
        rng: Random,
        kernel: Kernel,
        links: Callable[[], list[LinkPair]],
        set_cut: Callable[[NodeId, NodeId, bool], None],
        duration_s: float,
    ) -> None:
        self._fault = fault
        self._rng = rng
        self._kernel = kernel
        self._links = links
        self._set_cut = set_cut
        self._end_s = duration_s if fault.to_s is None else min(duration_s, fault.to_s)
        self._cut: dict[LinkPair, None] = {}
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


def linked_pairs(topologies: Iterable[Topology], nodes: int) -> list[LinkPair]:
    """The pairs of nodes that hear each other right now, over whatever interface."""
    pairs = {
        (node, other)
        for topology in topologies
        for node in range(nodes)
        for other in topology.reach(node).nodes
        if node < other
    }
    return sorted(pairs)


class FaultyLinks(Protocol):
    """What faults of links do things to."""

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Two nodes cannot hear each other, or can again."""

    def set_absent(self, id: NodeId, absent: bool) -> None:
        """A node is cut off from all, or is back."""


class FaultyNetwork(FaultyLinks, Protocol):
    """What all faults do things to."""

    def crash(self, id: NodeId) -> None:
        """A node loses everything but its durable store."""

    def restart(self, id: NodeId) -> None:
        """It starts anew."""

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """A link is slow, or no longer."""


class LinkFaultSchedule:
    """Who is cut off from whom, and when, in one run."""

    def __init__(self, faults: FaultPlan, kernel: Kernel, links: FaultyLinks) -> None:
        self._faults = faults
        self._kernel = kernel
        self._links = links
        self._drawn: list[RandomLinkCuts] = []

    def draw_cuts(self, seed: int, there: Callable[[], list[LinkPair]], duration_s: float) -> None:
        """Cuts of links that are there at the time."""
        self._drawn = [
            RandomLinkCuts(fault, stream(seed, name), self._kernel, there, self._links.set_cut, duration_s)
            for name, fault in self._faults.drawn_cuts
        ]

    def start(self) -> None:
        """From here on they come as their times do."""
        links = self._links
        for cut in self._faults.cuts:
            self._at(cut.at_s, links.set_cut, *cut.between, True)
            self._at(cut.at_s + cut.for_s, links.set_cut, *cut.between, False)
        for drawn in self._drawn:
            drawn.start()
        for absence in self._faults.absences:
            self._at(absence.at_s, links.set_absent, absence.node, True)
            self._at(absence.until_s, links.set_absent, absence.node, False)

    def _at(self, time_s: float, act: Callable[..., None], *arguments: object) -> None:
        self._kernel.at(microseconds(time_s), lambda _: act(*arguments), None)


class FaultSchedule(LinkFaultSchedule):
    """All faults of one run."""

    def __init__(self, faults: FaultPlan, kernel: Kernel, network: FaultyNetwork) -> None:
        super().__init__(faults, kernel, network)
        self._network = network

    def start(self) -> None:
        for outage in self._faults.outages:
            self._at(outage.at_s, self._crash, outage)
        super().start()
        for slow in self._faults.slow:
            self._at(slow.at_s, self._network.set_slow, slow, True)
            self._at(slow.at_s + slow.for_s, self._network.set_slow, slow, False)

    def _crash(self, outage: Outage) -> None:
        self._network.crash(outage.node)
        self._at(outage.until_s, self._network.restart, outage.node)
