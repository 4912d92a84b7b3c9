"""The links that faults cut, computed by the simulator's rules, but without its nodes."""

from collections import Counter
from functools import partial

from carrycast.core.model import NodeId
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine import FaultSchedule, FaultyNetwork, Kernel, linked_pairs, microseconds
from carrycast.sim.radio import Topology
from carrycast.sim.scenario import LinkSlow, Scenario, draw_faults, draw_roles

Cut = tuple[int, int, int, int]
"""a, b, start and end in microseconds; b is `EVERYBODY` if a is cut off from all nodes."""
EVERYBODY = -1


def find_cuts(scenario: Scenario, plan: ContactPlan, seed: int) -> list[Cut]:
    """Find all cuts of a run, sorted by start. Random cuts hit links that exist at their time."""
    roles = draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)
    faults = draw_faults(scenario.faults, roles, scenario.nodes, scenario.duration_s, seed)
    if not (faults.cuts or faults.drawn_cuts or faults.absences):
        return []
    kernel = Kernel()
    links = _CutLinks(scenario, kernel)
    timetable = FaultSchedule(faults, kernel, links)
    timetable.draw_cuts(seed, partial(linked_pairs, links.topologies, scenario.nodes), scenario.duration_s)
    timetable.start()
    if faults.drawn_cuts:
        changes = plan.changes(scenario.duration_s)
        columns = (changes.time_s.tolist(), changes.a.tolist(), changes.b.tolist(), changes.up.tolist())
        for time_s, a, b, up in zip(*columns, strict=True):
            kernel.at(microseconds(time_s), links.on_contact, (a, b, up))
    kernel.run(microseconds(scenario.duration_s))
    return links.finish(microseconds(scenario.duration_s))


class _CutLinks(FaultyNetwork):
    """The links of the simulator's network, and a record of every cut."""

    def __init__(self, scenario: Scenario, kernel: Kernel) -> None:
        # One topology for the radio and one for every wire; only the existence of links is used.
        self.topologies = [Topology(scenario.nodes)]
        for wire in scenario.wires:
            wired = Topology(scenario.nodes)
            for a, b in wire.pairs(scenario.nodes):
                wired.set_contact(a, b, up=True)
            self.topologies.append(wired)
        self._kernel = kernel
        # The number of active cuts of a pair, or of a node from all others. It is linked again when the last ends.
        self._standing: Counter[tuple[int, int]] = Counter()
        self._crashed: set[NodeId] = set()
        self._since: dict[tuple[int, int], int] = {}
        self._cuts: list[Cut] = []

    def on_contact(self, change: object) -> None:
        assert isinstance(change, tuple)
        a, b, up = change
        self.topologies[0].set_contact(a, b, up)

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        for topology in self.topologies:
            topology.set_cut(a, b, cut)
        self._record((min(a, b), max(a, b)), cut)

    def set_absent(self, id: NodeId, absent: bool) -> None:
        self._record((id, EVERYBODY), absent)
        self._set_node(id)

    def crash(self, id: NodeId) -> None:
        self._crashed.add(id)
        self._set_node(id)

    def restart(self, id: NodeId) -> None:
        self._crashed.discard(id)
        self._set_node(id)

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """Do nothing: a slow link is not cut."""

    def finish(self, end: int) -> list[Cut]:
        """Return all cuts. Active cuts last to the end."""
        standing = [(*pair, since, end) for pair, since in self._since.items() if since < end]
        return sorted(self._cuts + standing, key=lambda cut: (cut[2], cut[0], cut[1]))

    def _set_node(self, id: NodeId) -> None:
        for topology in self.topologies:
            topology.set_node(id, up=not self._standing[id, EVERYBODY] and id not in self._crashed)

    def _record(self, pair: tuple[int, int], cut: bool) -> None:
        # A link that is cut twice exists again when both cuts have ended, as in the simulator.
        now = self._kernel.now_us
        self._standing[pair] += 1 if cut else -1
        if cut:
            self._since.setdefault(pair, now)
        elif not self._standing[pair] and (since := self._since.pop(pair)) < now:
            self._cuts.append((*pair, since, now))
