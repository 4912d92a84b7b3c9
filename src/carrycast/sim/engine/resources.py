"""Batteries: what is left after standing by, sending and receiving. A linear model; an empty node goes on working."""

from random import Random

import msgspec

from carrycast.core.model import Event, EventId, NodeId
from carrycast.sim.radio import Frame, Reach
from carrycast.sim.scenario import EnergySettings


class Batteries:
    """What every node has left."""

    def __init__(self, settings: EnergySettings, nodes: int, rng: Random) -> None:
        self._settings = settings
        self._left_j = [
            settings.battery_j * rng.uniform(settings.charge_min, settings.charge_max) for _ in range(nodes)
        ]

    def on_frame(self, frame: Frame, reach: Reach) -> None:
        """A transmission costs its sender, and everybody who hears it."""
        size_bytes = len(frame.encoded) * frame.attempts * frame.copies
        self._left_j[frame.sender] -= size_bytes * self._settings.send_j_per_byte
        heard_j = len(frame.encoded) * self._settings.receive_j_per_byte
        for node in reach.nodes:
            self._left_j[node] -= heard_j

    def level(self, node: NodeId, time_s: float) -> float:
        """The charge of a node at a time, 0 to 1."""
        left_j = self._left_j[node] - self._settings.idle_w * time_s
        return min(1.0, max(0.0, left_j / self._settings.battery_j))


class Memories:
    """What every node has in use. Only in runs whose scenario says how much there is."""

    def __init__(self, memory_bytes: int, nodes: int) -> None:
        self._memory_bytes = memory_bytes
        self._stored_bytes = [0] * nodes
        self._calls_bytes = [0] * nodes
        self._sizes_bytes: dict[EventId, int] = {}

    def on_event(self, event: Event) -> None:
        """There is a new event."""
        self._sizes_bytes[event.id] = len(msgspec.msgpack.encode(event))

    def on_lease_over(self, id: EventId) -> None:
        """Nobody has it any more."""
        self._sizes_bytes.pop(id, None)

    def on_stored(self, node: NodeId, id: EventId, copies: int) -> None:
        """A node keeps a copy more or less."""
        self._stored_bytes[node] += copies * self._sizes_bytes.get(id, 0)

    def on_call(self, node: NodeId, size_bytes: int) -> None:
        """A call of a processor waits with its events and state, or (below 0) is done."""
        self._calls_bytes[node] += size_bytes

    def on_crash(self, node: NodeId) -> None:
        """What was in memory is gone."""
        self._stored_bytes[node] = self._calls_bytes[node] = 0

    def free_bytes(self, node: NodeId) -> int:
        """What is left; 0 if more is in use than there is, since nothing is taken away for it."""
        return max(0, self._memory_bytes - self._stored_bytes[node] - self._calls_bytes[node])
