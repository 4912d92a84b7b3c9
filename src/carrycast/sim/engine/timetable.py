"""When the faults of a run befall whom. Each is put on the queue beforehand, or draws its own times as it goes."""

from collections.abc import Callable
from typing import Protocol

from carrycast.core.model import NodeId
from carrycast.core.streams import stream
from carrycast.sim.engine.cuts import DrawnCuts, Edge
from carrycast.sim.engine.kernel import Kernel, microseconds
from carrycast.sim.scenario.faults import FaultPlan, LinkSlow, Outage


class Links(Protocol):
    """What faults of links do things to."""

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Two nodes cannot hear each other, or can again."""

    def set_absent(self, id: NodeId, absent: bool) -> None:
        """A node is cut off from all, or is back."""


class Network(Links, Protocol):
    """What all faults do things to."""

    def crash(self, id: NodeId) -> None:
        """A node loses everything but its durable store."""

    def restart(self, id: NodeId) -> None:
        """It starts anew."""

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """A link is slow, or no longer."""


class LinkTimetable:
    """Who is cut off from whom, and when, in one run."""

    def __init__(self, faults: FaultPlan, kernel: Kernel, links: Links) -> None:
        self._faults = faults
        self._kernel = kernel
        self._links = links
        self._drawn: list[DrawnCuts] = []

    def draw_cuts(self, seed: int, there: Callable[[], list[Edge]], duration_s: float) -> None:
        """Cuts of links that are there at the time."""
        self._drawn = [
            DrawnCuts(fault, stream(seed, name), self._kernel, there, self._links.set_cut, duration_s)
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


class Timetable(LinkTimetable):
    """All faults of one run."""

    def __init__(self, faults: FaultPlan, kernel: Kernel, network: Network) -> None:
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
