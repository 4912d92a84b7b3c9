"""When which link comes and goes: contacts, wires and faults of a run, worked out before by the simulator's rules."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Interface
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine import RADIO, FaultyLinks, Kernel, LinkFaultSchedule, linked_pairs, microseconds
from carrycast.sim.radio import Topology
from carrycast.sim.scenario import FaultPlan, Scenario


class LinkChange(NamedTuple):
    """Two nodes hear each other over an interface from a time on, or no longer do."""

    time_s: float
    a: NodeId
    b: NodeId
    interface: Interface
    up: bool


def link_changes(scenario: Scenario, plan: ContactPlan, faults: FaultPlan, seed: int) -> list[LinkChange]:
    """All of a run, in order. Drawn cuts strike the links that are there at the time, as they do in the simulator."""
    kernel = Kernel()
    links = _Links(scenario, kernel)
    timetable = LinkFaultSchedule(faults, kernel, links)
    there = partial(linked_pairs, list(links.topologies.values()), scenario.nodes)
    timetable.draw_cuts(seed, there, scenario.duration_s)
    timetable.start()
    for wire in scenario.wires:
        for a, b in wire.pairs(scenario.nodes):
            links.set_contact(a, b, wire.interface, up=True)
    changes = plan.changes(scenario.duration_s)
    columns = (changes.time_s.tolist(), changes.a.tolist(), changes.b.tolist(), changes.up.tolist())
    for time_s, a, b, up in zip(*columns, strict=True):
        kernel.at(microseconds(time_s), links.on_contact, (a, b, up))
    kernel.run(microseconds(scenario.duration_s))
    return links.changes


class _Links(FaultyLinks):
    """Who hears whom over what, and every change of it."""

    def __init__(self, scenario: Scenario, kernel: Kernel) -> None:
        names = [*([] if scenario.has_no_radio else [RADIO]), *(wire.interface for wire in scenario.wires)]
        self.topologies = {name: Topology(scenario.nodes) for name in names}
        self.changes: list[LinkChange] = []
        self._kernel = kernel
        self._nodes = scenario.nodes
        self._up: set[tuple[NodeId, NodeId, Interface]] = set()

    def on_contact(self, change: object) -> None:
        assert isinstance(change, tuple)
        a, b, up = change
        self.set_contact(a, b, RADIO, up)

    def set_contact(self, a: NodeId, b: NodeId, interface: Interface, up: bool) -> None:
        self.topologies[interface].set_contact(a, b, up)
        self._note([(a, b)])

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        for topology in self.topologies.values():
            topology.set_cut(a, b, cut)
        self._note([(a, b)])

    def set_absent(self, id: NodeId, absent: bool) -> None:
        for topology in self.topologies.values():
            topology.set_node(id, up=not absent)
        self._note([(id, other) for other in range(self._nodes) if other != id])

    def _note(self, pairs: Iterable[tuple[NodeId, NodeId]]) -> None:
        for one, other in pairs:
            a, b = min(one, other), max(one, other)
            for interface, topology in self.topologies.items():
                up, key = topology.linked(a, b), (a, b, interface)
                if up != (key in self._up):
                    (self._up.add if up else self._up.discard)(key)
                    self.changes.append(LinkChange(self._kernel.now_s, a, b, interface, up))
