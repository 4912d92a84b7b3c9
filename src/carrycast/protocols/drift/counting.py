"""Who around holds an event, for an application that waits until enough do: as many as are missing are asked, and again
ever more seldom, each time others."""

import heapq
from collections.abc import Collection

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.holders import Holders
from carrycast.core.protocol import Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.comparing import LONGER
from carrycast.protocols.drift.messages import Check, in_parts
from carrycast.protocols.drift.settings import DriftSettings

CHECK = "check"
MICROSECOND_S = 1e-6
"""The accuracy of all times."""


class Counting:
    """The events of one node that are counted."""

    def __init__(self, port: Port, settings: DriftSettings, around: Around, held: Collection[EventId]) -> None:
        self._port = port
        self.settings = settings
        self._around = around
        self._held = held
        self._holders = Holders()
        self._due: list[tuple[float, int, EventId]] = []
        """When to ask next, and how often that was done."""

    def count(self, now: float, id: EventId, copies: int) -> None:
        """Until so many are known. What is published meanwhile is asked for together with it."""
        if id in self._held:
            self._holders.count(id, copies)
            due = (now + self.settings.wait_s, 0, id)
            heapq.heappush(self._due, due)
            if self._due[0] is due:
                self._arm(now)

    def holds(self, node: NodeId, id: EventId) -> None:
        """A neighbor has said that it holds an event."""
        if self._holders.add(id, node):
            self._port.acknowledge_replica(id, node)

    def on_timer(self, now: float) -> None:
        """Ask for what is due."""
        asked: dict[NodeId, list[EventId]] = {}
        while self._due and self._due[0][0] <= now + MICROSECOND_S:
            _, times, id = heapq.heappop(self._due)
            if id not in self._held:
                self._holders.forget(id)
            if id not in self._holders:
                continue
            for node in self._whom(id, times):
                asked.setdefault(node, []).append(id)
            after_s = min(self.settings.news_s * LONGER**times, self.settings.hash_max_s)
            heapq.heappush(self._due, (now + after_s, times + 1, id))
        for node, ids in asked.items():
            for runs in in_parts(ids):
                self._port.send(node, Check(runs))
        self._arm(now)

    def stop(self) -> None:
        """Ask nobody any more."""
        self._due.clear()
        self._port.cancel_timer(CHECK)

    def _whom(self, id: EventId, times: int) -> list[NodeId]:
        """As many of those of whom it is not known as are missing, the next ones each time."""
        known, missing = self._holders.known(id), self._holders.missing(id)
        unknown = [node for node in self._around if node not in known]
        first = times * missing % len(unknown) if unknown else 0
        return [*unknown[first:], *unknown[:first]][:missing]

    def _arm(self, now: float) -> None:
        if self._due:
            # No longer than the longest interval, should the clock have been set back since.
            self._port.set_timer(CHECK, min(max(0.0, self._due[0][0] - now), self.settings.hash_max_s))
