"""The batteries and the memory of simulated nodes. The battery model is linear.

Nodes with empty batteries go on working, unless the scenario enforces the energy: then their radios are off.
"""

from random import Random

import msgspec

from carrycast.core.model import Event, EventId, NodeId
from carrycast.sim.radio import Frame, Reach
from carrycast.sim.scenario import EnergySettings


class Batteries:
    """The charge of every node after idling, sending and receiving."""

    def __init__(self, settings: EnergySettings, nodes: int, rng: Random) -> None:
        self._settings = settings
        self._left_j = [
            settings.battery_j * rng.uniform(settings.charge_min, settings.charge_max) for _ in range(nodes)
        ]

    def on_frame(self, frame: Frame, reach: Reach, airtime_us: int | None) -> None:
        """Subtract the energy of a transmission from its sender and its receivers."""
        settings, repeated = self._settings, frame.attempts * frame.copies
        sent_j = len(frame.encoded) * repeated * settings.send_j_per_byte
        heard_j = len(frame.encoded) * settings.receive_j_per_byte
        if airtime_us is not None:
            if settings.send_w is not None:
                sent_j = settings.send_w * airtime_us / 1e6
            if settings.receive_w is not None:
                heard_j = settings.receive_w * airtime_us / repeated / 1e6
        self._left_j[frame.sender] -= sent_j
        for node in reach.nodes:
            self._left_j[node] -= heard_j

    def is_empty(self, node: NodeId, time_s: float) -> bool:
        """Whether a node has no energy left and the scenario enforces that."""
        return self._settings.enforced and self._left_j[node] <= self._settings.idle_w * time_s

    @property
    def enforced(self) -> bool:
        """Whether nodes with empty batteries are silent and deaf."""
        return self._settings.enforced

    def level(self, node: NodeId, time_s: float) -> float:
        """The charge of a node at a time, 0 to 1."""
        left_j = self._left_j[node] - self._settings.idle_w * time_s
        return min(1.0, max(0.0, left_j / self._settings.battery_j))


class Memories:
    """The memory that every node uses. Exists only if the scenario sets `computer.memory_bytes`."""

    def __init__(self, memory_bytes: int, nodes: int) -> None:
        self._memory_bytes = memory_bytes
        self._stored_bytes = [0] * nodes
        self._calls_bytes = [0] * nodes
        self._sizes_bytes: dict[EventId, int] = {}

    def on_event(self, event: Event) -> None:
        """Remember the size of a new event."""
        self._sizes_bytes[event.id] = len(msgspec.msgpack.encode(event))

    def on_expired(self, id: EventId) -> None:
        """An event has expired."""
        self._sizes_bytes.pop(id, None)

    def on_stored(self, node: NodeId, id: EventId, copies: int) -> None:
        """A node stores copies of an event or, if `copies` is negative, removes them."""
        self._stored_bytes[node] += copies * self._sizes_bytes.get(id, 0)

    def on_call(self, node: NodeId, size_bytes: int) -> None:
        """A processor call is queued with its events and state or, if `size_bytes` is negative, has ended."""
        self._calls_bytes[node] += size_bytes

    def on_crash(self, node: NodeId) -> None:
        """A crash frees the memory of a node."""
        self._stored_bytes[node] = self._calls_bytes[node] = 0

    def free_bytes(self, node: NodeId) -> int:
        """The free memory of a node; 0 if it uses more than it has, since usage is not limited."""
        return max(0, self._memory_bytes - self._stored_bytes[node] - self._calls_bytes[node])
