"""The link changes of a run, computed in advance from contacts, wires and faults by the simulator's rules."""

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
    """The link between two nodes over an interface comes up or goes down."""

    time_s: float
    a: NodeId
    b: NodeId
    interface: Interface
    up: bool


def compute_link_changes(scenario: Scenario, plan: ContactPlan, faults: FaultPlan, seed: int) -> list[LinkChange]:
    """All link changes of a run, in order. Random cuts affect links that exist at the time, as in the simulator."""
    kernel = Kernel()
    links = _LinkRecorder(scenario, kernel)
    schedule = LinkFaultSchedule(faults, kernel, links)
    find_links = partial(linked_pairs, list(links.topologies.values()), scenario.nodes)
    schedule.draw_cuts(seed, find_links, scenario.duration_s)
    schedule.start()
    for wire in scenario.wires:
        for a, b in wire.pairs(scenario.nodes):
            links.set_contact(a, b, wire.interface, up=True)
    changes = plan.changes(scenario.duration_s)
    columns = (changes.time_s.tolist(), changes.a.tolist(), changes.b.tolist(), changes.up.tolist())
    for time_s, a, b, up in zip(*columns, strict=True):
        kernel.at(microseconds(time_s), links.on_contact, (a, b, up))
    kernel.run(microseconds(scenario.duration_s))
    return links.changes


class _LinkRecorder(FaultyLinks):
    """The current links over each interface, and all their changes."""

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
        self._record_changes([(a, b)])

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        for topology in self.topologies.values():
            topology.set_cut(a, b, cut)
        self._record_changes([(a, b)])

    def set_absent(self, id: NodeId, absent: bool) -> None:
        for topology in self.topologies.values():
            topology.set_node(id, up=not absent)
        self._record_changes([(id, other) for other in range(self._nodes) if other != id])

    def _record_changes(self, pairs: Iterable[tuple[NodeId, NodeId]]) -> None:
        for one, other in pairs:
            a, b = min(one, other), max(one, other)
            for interface, topology in self.topologies.items():
                up, key = topology.is_linked(a, b), (a, b, interface)
                if up != (key in self._up):
                    (self._up.add if up else self._up.discard)(key)
                    self.changes.append(LinkChange(self._kernel.now_s, a, b, interface, up))
