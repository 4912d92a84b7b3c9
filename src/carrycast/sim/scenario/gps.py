"""Errors of satellite positions: how far off a node takes itself to be, at any time of a run."""

from random import Random

from carrycast.core.streams import stream


class Wandering:
    """The error of one node's position: an offset that wanders, never farther than `error_m`.

    At every multiple of `change_s` it is drawn anew, from everywhere in the disk alike; in between it goes in a
    straight line from each to the next. It follows from the seed, the fault, the node and the time alone, so it is the
    same however often it is asked for and by whom.
    """

    __slots__ = ("_change_s", "_error_m", "_from", "_node", "_purpose", "_seed", "_step", "_to")

    def __init__(self, seed: int, purpose: str, node: int, error_m: float, change_s: float) -> None:
        self._seed = seed
        self._purpose = purpose
        self._node = node
        self._error_m = error_m
        self._change_s = change_s
        self._step = -1
        self._from = self._to = (0.0, 0.0)

    def at(self, time_s: float) -> tuple[float, float]:
        """How far off, east and north, in meters."""
        steps = time_s / self._change_s
        step = int(steps)
        if step != self._step:
            # One is usually known from the step before.
            self._from = self._to if step == self._step + 1 and step > 0 else self._drawn(step)
            self._to = self._drawn(step + 1)
            self._step = step
        share = steps - step
        (x_m, y_m), (to_x_m, to_y_m) = self._from, self._to
        return x_m + (to_x_m - x_m) * share, y_m + (to_y_m - y_m) * share

    def _drawn(self, step: int) -> tuple[float, float]:
        x, y = _in_disk(stream(self._seed, f"{self._purpose} step {step}", self._node))
        return x * self._error_m, y * self._error_m


def _in_disk(rng: Random) -> tuple[float, float]:
    """A point of the unit disk. Drawn until it is one: sine and cosine are not rounded alike by every machine."""
    while True:
        x, y = rng.uniform(-1.0, 1.0), rng.uniform(-1.0, 1.0)
        if x * x + y * y <= 1.0:
            return x, y
