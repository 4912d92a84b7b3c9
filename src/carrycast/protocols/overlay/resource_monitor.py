"""The resource monitor [002 §3.3]: load, memory, battery and processing times of a node, its distances to brokers."""

from collections.abc import Iterable

from carrycast.core.model import NodeId, ProcessorId
from carrycast.core.protocol import Capability, Host
from carrycast.protocols.overlay.broker_tables import BrokerInformation
from carrycast.protocols.overlay.rules import FoundBroker

MAX_TIMES = 1024


class ResourceMonitor:
    """CPU load, free memory, battery, and the run times of modulators, as far as the host knows them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._run_times_s: dict[ProcessorId, float] = {}

    def load(self, now: float) -> float:
        """The utilization of the node's processor, 0 to 1."""
        if Capability.LOAD not in self._host.offers:
            return 0.0
        return min(max(self._host.load(now), 0.0), 1.0)

    def battery_used(self, now: float) -> float:
        """The used share of the battery; 0 if it is unknown."""
        if Capability.ENERGY not in self._host.offers:
            return 0.0
        return min(max(1.0 - self._host.energy(now), 0.0), 1.0)

    def free_bytes(self, now: float) -> int | None:
        """Free memory; None if it is unknown."""
        if Capability.MEMORY not in self._host.offers:
            return None
        return max(self._host.free_memory_bytes(now), 0)

    def information(self, now: float) -> BrokerInformation:
        """Return the information that the broker reports to others about itself."""
        return BrokerInformation(self.load(now), self.battery_used(now), self.free_bytes(now), now)

    def record_run(self, processor: ProcessorId, cost_s: float) -> None:
        """Update the mean run time of a processor: an exponential moving average over about eight calls."""
        known = self._run_times_s.get(processor)
        if known is None and len(self._run_times_s) >= MAX_TIMES:
            del self._run_times_s[next(iter(self._run_times_s))]
        self._run_times_s[processor] = cost_s if known is None else known + (cost_s - known) / 8

    def run_time_s(self, processor: ProcessorId) -> float:
        """The measured run time of a processor, or the one that the host expects."""
        known = self._run_times_s.get(processor)
        if known is not None:
            return known
        return next((one.cost_s for one in self._host.processors if one.id == processor), 0.0)

    def can_run(self, processor: ProcessorId) -> bool:
        """Whether the processor is installed on this node."""
        return any(one.id == processor for one in self._host.processors)

    # [002 §2.3] "by querying the routing table maintained by the wireless network routing protocol".
    def known_distances(self, now: float, brokers: Iterable[NodeId]) -> list[FoundBroker]:
        """The brokers to which the router knows a route, and their distances."""
        if Capability.DISTANCES not in self._host.offers:
            return []
        hops = [(self._host.hops_to(now, broker), broker) for broker in brokers]
        return sorted((float(distance), broker) for distance, broker in hops if distance is not None)
