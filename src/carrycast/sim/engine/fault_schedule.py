"""Applies the faults of a scenario at their times: crashes, link cuts, absences and slow links."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

from carrycast.core.model import NodeId
from carrycast.core.streams import stream
from carrycast.sim.engine.kernel import US_PER_S, Kernel, microseconds
from carrycast.sim.radio import Topology
from carrycast.sim.scenario import FaultPlan, LinkCuts, LinkSlow, Outage


class SlowLinks:
    """The links that are slow right now, and the messages still in transit over formerly slow links.

    Messages between two nodes stay in order: a message sent after the link has recovered does not overtake an earlier
    one.
    """

    def __init__(self) -> None:
        self._active: list[LinkSlow] = []
        self._extra_us: dict[tuple[NodeId, NodeId], int] = {}
        self._due_us: dict[tuple[NodeId, NodeId], int] = {}
        """Sender and receiver -> when the last message in transit is due."""

    def __bool__(self) -> bool:
        return bool(self._extra_us or self._due_us)

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """Begin or end a fault. Delays of several faults of one link add up."""
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
        """The additional delay of a message between two nodes."""
        return self._extra_us.get((node, neighbor), 0) / US_PER_S

    def due_us(self, now_us: int, sender: NodeId, receiver: NodeId) -> int:
        """The arrival time of a message that the radio delivers now; now, if no fault delays it."""
        pair = (sender, receiver)
        due_us = max(now_us + self._extra_us.get(pair, 0), self._due_us.get(pair, 0))
        if due_us > now_us:
            self._due_us[pair] = due_us
        return due_us

    def on_arrival(self, now_us: int, sender: NodeId, receiver: NodeId) -> None:
        """A delayed message has arrived."""
        if self._due_us.get((sender, receiver), 0) <= now_us:
            self._due_us.pop((sender, receiver), None)


LinkPair = tuple[NodeId, NodeId]


class RandomLinkCuts:
    """One `link_cuts` of a scenario. Each time, it cuts links until `at_once` links are cut, each for `for_s`."""

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
        """Schedule the first cut, one interval after `from_s`."""
        self._schedule_next()

    def _schedule_next(self) -> None:
        fault = self._fault
        self._next_s += self._rng.expovariate(1 / fault.every_s) if fault.exponential else fault.every_s
        if self._next_s <= self._end_s:
            self._kernel.at(microseconds(self._next_s), self._cut_links, None)

    def _cut_links(self, _: object) -> None:
        free = max(0, self._fault.at_once - len(self._cut))
        there = self._links()
        for edge in self._rng.sample(there, min(free, len(there))):
            self._cut[edge] = None
            self._set_cut(*edge, True)
            self._kernel.at(self._kernel.now_us + microseconds(self._fault.for_s), self._restore, edge)
        self._schedule_next()

    def _restore(self, edge: object) -> None:
        assert isinstance(edge, tuple)
        del self._cut[edge]
        a, b = edge
        self._set_cut(a, b, False)


def linked_pairs(topologies: Iterable[Topology], nodes: int) -> list[LinkPair]:
    """The pairs of nodes that are linked right now, over any interface."""
    pairs = {
        (node, other)
        for topology in topologies
        for node in range(nodes)
        for other in topology.reach(node).nodes
        if node < other
    }
    return sorted(pairs)


class FaultyLinks(Protocol):
    """The interface that link faults act on."""

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Cut or restore the link between two nodes."""

    def set_absent(self, id: NodeId, absent: bool) -> None:
        """Cut a node off from all others, or connect it again."""


class FaultyNetwork(FaultyLinks, Protocol):
    """The interface that all faults act on."""

    def crash(self, id: NodeId) -> None:
        """Crash a node: it loses everything but its durable store."""

    def restart(self, id: NodeId) -> None:
        """Start a crashed node again."""

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """Begin or end a slow-link fault."""


class LinkFaultSchedule:
    """The link cuts and absences of one run."""

    def __init__(self, faults: FaultPlan, kernel: Kernel, links: FaultyLinks) -> None:
        self._faults = faults
        self._kernel = kernel
        self._links = links
        self._drawn: list[RandomLinkCuts] = []

    def draw_cuts(self, seed: int, there: Callable[[], list[LinkPair]], duration_s: float) -> None:
        """Create the random cuts; `there` returns the links that exist at the time of a cut."""
        self._drawn = [
            RandomLinkCuts(fault, stream(seed, name), self._kernel, there, self._links.set_cut, duration_s)
            for name, fault in self._faults.drawn_cuts
        ]

    def start(self) -> None:
        """Schedule all faults."""
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
