"""Amounts that a scenario asks for: the values that protocols noted, and what they handed to their routers."""

from array import array
from collections.abc import Mapping, Sequence

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact
from carrycast.sim.scenario.measures import Asked, aggregate

_Members = frozenset[NodeId] | None
"""The nodes that an entry is about; None for all."""


class Amounts:
    """Keeps what is needed for its entries, of the measured window alone."""

    def __init__(self, asked: Sequence[Asked], nodes: int, window_s: float, roles: Mapping[str, list[NodeId]]) -> None:
        self._nodes = nodes
        self._window_s = window_s
        self._members: dict[str, _Members] = {
            entry.name: frozenset(roles[entry.role]) if entry.role else None for entry in asked
        }
        self._values: dict[str, list[tuple[Asked, array[float]]]] = {}
        """Fact -> the entries about it, and the values noted for each."""
        for entry in asked:
            if entry.counts == "values":
                self._values.setdefault(entry.fact, []).append((entry, array("d")))
        self._wants_routed = any(entry.counts == "routed" for entry in asked)
        self._routed: dict[tuple[str, NodeId], tuple[int, int]] = {}
        """Message and node -> how many it handed over, and how many bytes they had."""

    def on_fact(self, node: NodeId, fact: Fact) -> None:
        """A protocol noted something."""
        if fact.value is None:
            return
        for entry, values in self._values.get(fact.kind, ()):
            members = self._members[entry.name]
            if members is None or node in members:
                values.append(fact.value)

    def on_route(self, node: NodeId, message: str, size_bytes: int) -> None:
        """A protocol handed a message to its router."""
        if self._wants_routed:
            count, total_bytes = self._routed.get((message, node), (0, 0))
            self._routed[message, node] = (count + 1, total_bytes + size_bytes)

    def value(self, entry: Asked) -> float | int | None:
        """What became of one entry."""
        if entry.counts == "values":
            values = next(values for one, values in self._values[entry.fact] if one is entry)
            return aggregate(values, entry.of)
        members = self._members[entry.name]
        found = 0
        for (message, node), (count, size_bytes) in self._routed.items():
            if (not entry.messages or message in entry.messages) and (members is None or node in members):
                found += count if entry.unit == "messages" else size_bytes
        if entry.unit == "bits":
            found *= 8
        if entry.per == "run":
            return found
        share = (self._nodes if members is None else len(members)) * (
            self._window_s if entry.per == "node_second" else 1.0
        )
        # Nobody, and a window of no length, have no rate.
        return found / share if share > 0 else None
