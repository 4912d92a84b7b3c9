"""Links that are slower than their radio for a while: how much later what goes over them comes, and in what order."""

from carrycast.core.model import NodeId
from carrycast.sim.engine.kernel import US_PER_S, microseconds
from carrycast.sim.scenario.faults import LinkSlow


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
