"""Who is within some distance of whom, each node with itself, as sets that change with the movement."""

from carrycast.core.model import NodeId
from carrycast.sim.contacts.plan import MICROSECONDS, ContactPlan
from carrycast.sim.radio.medium import Scheduler


class Vicinity:
    """The surroundings of all nodes, fed by a contact plan of their range."""

    __slots__ = ("_around", "_changes", "_next", "_others", "_scheduler")

    def __init__(self, nodes: int, scheduler: Scheduler) -> None:
        self._others: list[set[NodeId]] = [set() for _ in range(nodes)]
        self._around: list[frozenset[NodeId] | None] = [None] * nodes
        self._scheduler = scheduler
        self._changes: list[tuple[int, bool, NodeId, NodeId]] = []
        self._next = 0

    def around(self, node: NodeId) -> frozenset[NodeId]:
        """The node and everybody near it. Made once per change."""
        around = self._around[node]
        if around is None:
            around = self._around[node] = frozenset(self._others[node] | {node})
        return around

    def set_contact(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Two nodes come close or part."""
        if up:
            self._others[a].add(b)
            self._others[b].add(a)
        else:
            self._others[a].discard(b)
            self._others[b].discard(a)
        self._around[a] = self._around[b] = None

    def follow(self, plan: ContactPlan, duration_s: float) -> None:
        """Play a contact plan: what is due now at once, the rest when its time comes."""
        changes = plan.changes(duration_s)
        times_us = [round(time_s * MICROSECONDS) for time_s in changes.time_s.tolist()]
        columns = (times_us, changes.up.tolist(), changes.a.tolist(), changes.b.tolist())
        self._changes = list(zip(*columns, strict=True))
        self._next = 0
        self._play(None)

    def _play(self, _: object) -> None:
        """Every change that is due; one queue entry stands for all that are to come."""
        now_us, changes = self._scheduler.now_us, self._changes
        while self._next < len(changes):
            time_us, up, a, b = changes[self._next]
            if time_us > now_us:
                self._scheduler.at(time_us, self._play, None)
                return
            self.set_contact(a, b, up)
            self._next += 1
