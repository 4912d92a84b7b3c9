"""The resource monitor [002 §3.3]: load, memory, battery and processing times of a node, its distances to brokers."""

from collections.abc import Iterable

from carrycast.core.model import NodeId, ProcessorId
from carrycast.core.protocol import Capability, Host
from carrycast.protocols.overlay.broker_tables import Information
from carrycast.protocols.overlay.rules import Found

MAX_TIMES = 1024


class ResourceMonitor:
    """CPU load, free memory, battery, and the time that modulators take, as far as the node can tell."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._times: dict[ProcessorId, float] = {}

    def load(self, now: float) -> float:
        """How busy the node's processor is, 0 to 1."""
        if Capability.LOAD not in self._host.offers:
            return 0.0
        return min(max(self._host.load(now), 0.0), 1.0)

    def spent(self, now: float) -> float:
        """The share of its battery that is gone; 0 where nobody knows."""
        if Capability.ENERGY not in self._host.offers:
            return 0.0
        return min(max(1.0 - self._host.energy(now), 0.0), 1.0)

    def free_bytes(self, now: float) -> int | None:
        """Memory that is left; None where nobody knows."""
        if Capability.MEMORY not in self._host.offers:
            return None
        return max(self._host.free_memory_bytes(now), 0)

    def information(self, now: float) -> Information:
        """What the broker tells others of itself."""
        return Information(self.load(now), self.spent(now), self.free_bytes(now), now)

    def ran(self, processor: ProcessorId, cost_s: float) -> None:
        """A modulator has run; its time is a running mean over some ten calls."""
        known = self._times.get(processor)
        if known is None and len(self._times) >= MAX_TIMES:
            del self._times[next(iter(self._times))]
        self._times[processor] = cost_s if known is None else known + (cost_s - known) / 8

    def time_s(self, processor: ProcessorId) -> float:
        """What a call takes, by experience, or by what the host expects."""
        known = self._times.get(processor)
        if known is not None:
            return known
        return next((one.cost_s for one in self._host.processors if one.id == processor), 0.0)

    def can_run(self, processor: ProcessorId) -> bool:
        """Whether the node has it."""
        return any(one.id == processor for one in self._host.processors)

    # [002 §2.3] "by querying the routing table maintained by the wireless network routing protocol".
    def distances(self, now: float, brokers: Iterable[NodeId]) -> list[Found]:
        """Brokers and how far they are, as the router beneath knows; those it knows no way to are left out."""
        if Capability.DISTANCES not in self._host.offers:
            return []
        hops = [(self._host.hops_to(now, broker), broker) for broker in brokers]
        return sorted((float(distance), broker) for distance, broker in hops if distance is not None)
