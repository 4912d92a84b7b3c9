"""Batteries: what is left after standing by, sending and receiving. A linear model; an empty node goes on working."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.sim.radio.medium import Frame, Reach
from carrycast.sim.scenario.resources import Energy


class Batteries:
    """What every node has left."""

    def __init__(self, settings: Energy, nodes: int, rng: Random) -> None:
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
