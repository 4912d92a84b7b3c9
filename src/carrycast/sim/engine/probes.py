"""Probes: periodic samples of node readings, of distances, and of the probes that the protocol offers."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from carrycast.core.model import NodeId
from carrycast.core.protocol import Snapshot
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.kernel import microseconds
from carrycast.sim.engine.network import Network
from carrycast.sim.scenario import RequestedMetric, aggregate
from carrycast.trace import Metrics

Series = dict[str, list[tuple[float, float | None]]]
"""Metric -> time and value of each sample; the value is None if there was nothing to measure."""


class Probes:
    """Takes the samples that a scenario requests. The samples do not influence the run."""

    def __init__(self, asked: Sequence[RequestedMetric], context: RunContext, network: Network) -> None:
        self._asked = [entry for entry in asked if entry.counts == "probe"]
        self._context = context
        self._network = network
        self._kernel = context.kernel
        self._end_us = microseconds(context.scenario.duration_s)
        self.series: Series = {entry.name: [] for entry in self._asked}
        readings: dict[str, Callable[[NodeId], float]] = {
            "load": lambda node: network.nodes[node].computer.load(),
            "energy": lambda node: network.nodes[node].protocol.host.energy(self._kernel.now_s),
            "free_memory_bytes": lambda node: network.nodes[node].protocol.host.free_memory_bytes(self._kernel.now_s),
            "neighbors": lambda node: len(network.view.neighbors(node)),
        }
        self._readings: Mapping[str, Callable[[NodeId], float]] = readings

    def start(self) -> None:
        """Schedule the first samples, at time 0. Each sample schedules the next one."""
        for entry in self._asked:
            self._kernel.at(0, self._sample, (entry, 0))

    def metrics(self, from_s: float, to_s: float) -> Metrics:
        """Each metric, aggregated over the samples in a window."""
        found: Metrics = {}
        for entry in self._asked:
            values = [value for time_s, value in self.series[entry.name] if from_s <= time_s <= to_s]
            found[entry.name] = aggregate([value for value in values if value is not None], entry.of)
        return found

    def _sample(self, due: object) -> None:
        assert isinstance(due, tuple)
        entry, number = due
        value = self._measure(entry)
        if value is not None and not math.isfinite(value):
            value = None
        self.series[entry.name].append((self._kernel.now_s, value))
        next_us = microseconds((number + 1) * entry.every_s)
        if next_us <= self._end_us:
            self._kernel.at(next_us, self._sample, (entry, number + 1))

    def _measure(self, entry: RequestedMetric) -> float | None:
        own = self._context.stack.protocol.probes.get(entry.probe)
        if own is not None:
            found = own(self._take_snapshot())
            return None if found is None else float(found)
        reading = self._readings.get(entry.probe)
        nodes = self._context.roles[entry.role] if entry.role else range(self._context.scenario.nodes)
        up = [node for node in nodes if self._network.nodes[node].up]
        if reading is None:
            return self._aggregate_hops(up, entry.across)
        return aggregate([reading(node) for node in up], entry.across)

    def _aggregate_hops(self, nodes: list[NodeId], across: str) -> float | None:
        """Aggregate the lengths of the shortest paths between nodes that have a path, in both directions."""
        hops = self._network.view.hops()[np.ix_(nodes, nodes)]
        return aggregate(hops[hops > 0].tolist(), across)

    def _take_snapshot(self) -> Snapshot:
        network = self._network
        protocols = {node.id: node.protocol for node in network.nodes if node.up}
        return Snapshot(self._kernel.now_s, protocols, self._context.roles, network.view)
