"""Batteries: what is left after standing by, sending and receiving. A linear model; an empty node goes on working.

The defaults are those of a small 802.11 card, measured by Feeney and Nilsson (INFOCOM 2001): per byte 1.9 uJ to send
and 0.5 uJ to receive, and 0.84 W idle.
"""

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.model import NodeId
from driftcast.radio.medium import Frame, Reach


class Energy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[energy]` of a scenario."""

    battery_j: Annotated[float, Meta(gt=0, description="what a full battery holds; 18 kJ is a phone's of 5 Wh")] = (
        18_000.0
    )
    charge_min: Annotated[float, Meta(ge=0, le=1, description="nodes start with a random charge from this ...")] = 1.0
    charge_max: Annotated[float, Meta(ge=0, le=1, description="... to this share of it")] = 1.0
    idle_w: Annotated[float, Meta(ge=0, description="power of doing nothing")] = 0.84
    send_j_per_byte: Annotated[float, Meta(ge=0)] = 1.9e-6
    receive_j_per_byte: Annotated[float, Meta(ge=0)] = 0.5e-6

    def __post_init__(self) -> None:
        if self.charge_min > self.charge_max:
            raise ValueError("charge_min must not exceed charge_max")


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
