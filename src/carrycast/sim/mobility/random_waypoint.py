"""Random waypoint: go to a random place at a random speed, pause, and again."""

from math import hypot, log
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

# More legs would take gigabytes of memory. Area and speeds are then probably in different units.
MAX_LEGS = 50_000_000

Speed = Annotated[float, Meta(gt=0, le=1e6)]
Pause = Annotated[float, Meta(ge=0, le=1e9)]


def mean_leg_m(area: Area) -> float:
    """The mean distance of two points drawn uniformly from a rectangle (Ghosh 1951)."""
    a, b = area.width_m, area.height_m
    d = hypot(a, b)
    straight = a**3 / b**2 + b**3 / a**2 + d * (3 - a**2 / b**2 - b**2 / a**2)
    return (straight + 2.5 * (b**2 / a * log((a + d) / b) + a**2 / b * log((b + d) / a))) / 15


def mean_inverse_speed(speed_min_mps: float, speed_max_mps: float) -> float:
    """The mean of 1/v for v uniform in the range: seconds per meter of a leg. Its inverse is the mean speed in time."""
    if speed_max_mps == speed_min_mps:
        return 1 / speed_min_mps
    return log(speed_max_mps / speed_min_mps) / (speed_max_mps - speed_min_mps)


def residual_pause_s(pause_min_s: float, pause_max_s: float, quantile: Floats) -> Floats:
    """The rest of a pause observed at a random time: density proportional to the survival function of U[min, max].

    The survival is 1 up to the minimum a and (b - t) / (b - a) from there to the maximum b, so its integral, the mean
    (a + b) / 2, is inverted piece by piece. A constant pause P gives U[0, P].
    """
    a, b = pause_min_s, pause_max_s
    area = quantile * (a + b) / 2
    beyond = np.maximum(area - a, 0.0)
    late = b - np.sqrt(np.maximum((b - a) ** 2 - 2 * (b - a) * beyond, 0.0))
    return np.where(area <= a, area, late)


class RandomWaypoint(MobilityModel, frozen=True, kw_only=True):
    """Destinations uniform in the area, speed and pause uniform in their ranges.

    `cold` starts all nodes at uniform places, about to move. It is the default because papers usually run it so, but
    the mean speed then decays and nodes gather in the middle during the run. `steady` starts in the stationary
    distribution of the model, so that no warm-up has to be discarded.
    """

    name: ClassVar[str] = "random_waypoint"
    summary: ClassVar[str] = "move to random places at random speeds, with pauses"

    speed_min_mps: Annotated[Speed, Meta(description="lowest speed of a leg")]
    speed_max_mps: Annotated[Speed, Meta(description="highest speed of a leg; uniform between the two")]
    # No pause by default, the simplest form of the model.
    pause_min_s: Annotated[Pause, Meta(description="shortest pause at a destination")] = 0.0
    pause_max_s: Annotated[Pause, Meta(description="longest pause at a destination; uniform between the two")] = 0.0
    start: Annotated[
        Literal["cold", "steady"],
        Meta(description="cold: nodes start from uniform places; steady: in the long-run distribution of the model"),
    ] = "cold"

    def __post_init__(self) -> None:
        if self.speed_min_mps > self.speed_max_mps:
            raise ValueError(
                f"speed_min_mps ({self.speed_min_mps:g}) must not exceed speed_max_mps ({self.speed_max_mps:g})"
            )
        if self.pause_min_s > self.pause_max_s:
            raise ValueError(f"pause_min_s ({self.pause_min_s:g}) must not exceed pause_max_s ({self.pause_max_s:g})")

    def pause_probability(self, area: Area) -> float:
        """The share of time a node pauses, once the model is in its steady state."""
        pause_s = (self.pause_min_s + self.pause_max_s) / 2
        move_s = mean_leg_m(area) * mean_inverse_speed(self.speed_min_mps, self.speed_max_mps)
        return pause_s / (pause_s + move_s)

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Draw one leg for all nodes at a time, until each has reached the end of the run."""
        move_s = mean_leg_m(area) * mean_inverse_speed(self.speed_min_mps, self.speed_max_mps)
        if nodes * (duration_s / move_s + 1) > MAX_LEGS:
            raise UserError(
                f"random_waypoint would make more than {MAX_LEGS} legs; use a larger area, lower speeds, "
                f"fewer nodes or a shorter run"
            )
        walk = _Walk(self, area, duration_s, rng)
        if self.start == "steady":
            walk.start_steady(nodes)
        else:
            walk.start_cold(nodes)
        while len(walk.node):
            walk.advance()
        return walk.trajectories(nodes)


class _Walk:
    """The nodes that have not reached the end of the run: the place of each, and when its next leg begins."""

    def __init__(self, model: RandomWaypoint, area: Area, duration_s: float, rng: np.random.Generator) -> None:
        self.model = model
        self.area = area
        self.duration_s = duration_s
        self.rng = rng
        self.legs: list[tuple[Integers, Floats, Floats, Floats, Floats, Floats, Floats]] = []
        self.node: Integers = np.zeros(0, dtype=np.int64)
        self.place: Floats = np.zeros((0, 2))
        self.ready_s: Floats = np.zeros(0)

    def start_cold(self, nodes: int) -> None:
        """Place all nodes uniformly, about to begin their first leg."""
        self._set(np.arange(nodes), self._draw_places(nodes), np.zeros(nodes))

    def start_steady(self, nodes: int) -> None:
        """Draw the state of all nodes from the stationary distribution [Navidi and Camp 2004]."""
        model = self.model
        pausing = self.rng.random(nodes) < model.pause_probability(self.area)
        left_s = residual_pause_s(model.pause_min_s, model.pause_max_s, self.rng.random(nodes))
        place = self._draw_places(nodes)
        # The probability to observe a leg is proportional to its duration: endpoints by length, speed by 1 / v.
        start, end = self._draw_endpoints(nodes)
        begun = start + (end - start) * self.rng.random((nodes, 1))
        ratio = model.speed_max_mps / model.speed_min_mps
        speed_mps = model.speed_min_mps * ratio ** self.rng.random(nodes)
        node = np.arange(nodes)
        self._set(node, np.where(pausing[:, None], place, begun), np.zeros(nodes))
        goal = np.where(pausing[:, None], place, end)
        self._go(goal, speed_mps, np.where(pausing, left_s, self._draw_pauses(nodes)))

    def advance(self) -> None:
        """Add one leg, and the pause after it, for every remaining node."""
        count = len(self.node)
        goal = self._draw_places(count)
        speed_mps = self.rng.uniform(self.model.speed_min_mps, self.model.speed_max_mps, count)
        self._go(goal, speed_mps, self._draw_pauses(count))

    def trajectories(self, nodes: int) -> Trajectories:
        """Return all legs as trajectories."""
        node = np.concatenate([leg[0] for leg in self.legs])
        columns = [np.concatenate([leg[k] for leg in self.legs]) for k in range(1, 7)]
        return Trajectories.from_legs(nodes, node, *columns)

    def _set(self, node: Integers, place: Floats, ready_s: Floats) -> None:
        on_the_way = ready_s < self.duration_s
        self.node, self.place, self.ready_s = node[on_the_way], place[on_the_way], ready_s[on_the_way]

    def _go(self, goal: Floats, speed_mps: Floats, pause_s: Floats) -> None:
        """Move all remaining nodes to their goals and let them pause there."""
        way = goal - self.place
        length_m = np.hypot(way[:, 0], way[:, 1])
        there_s = self.ready_s + length_m / speed_mps
        velocity = way * (speed_mps / np.where(length_m > 0, length_m, 1.0))[:, None]
        self._add_leg(self.ready_s, there_s, self.place, velocity)
        leave_s = there_s + pause_s
        if self.model.pause_max_s > 0:
            self._add_leg(there_s, leave_s, goal, np.zeros_like(goal))
        self._set(self.node, goal, leave_s)

    def _add_leg(self, start_s: Floats, end_s: Floats, place: Floats, velocity: Floats) -> None:
        end_s = np.minimum(end_s, self.duration_s)
        real = end_s > start_s
        columns = (start_s, end_s, place[:, 0], place[:, 1], velocity[:, 0], velocity[:, 1])
        start, end, x, y, vx, vy = (column[real] for column in columns)
        self.legs.append((self.node[real], start, end, x, y, vx, vy))

    def _draw_places(self, count: int) -> Floats:
        return self.rng.random((count, 2)) * (self.area.width_m, self.area.height_m)

    def _draw_pauses(self, count: int) -> Floats:
        return self.rng.uniform(self.model.pause_min_s, self.model.pause_max_s, count)

    def _draw_endpoints(self, count: int) -> tuple[Floats, Floats]:
        """Draw the two ends of legs with a density proportional to their length, by rejection against the diagonal."""
        diagonal_m = hypot(self.area.width_m, self.area.height_m)
        start, end = np.empty((count, 2)), np.empty((count, 2))
        wanted = np.arange(count)
        while len(wanted):
            a, b = self._draw_places(len(wanted)), self._draw_places(len(wanted))
            length_m = np.hypot(a[:, 0] - b[:, 0], a[:, 1] - b[:, 1])
            taken = self.rng.random(len(wanted)) * diagonal_m < length_m
            start[wanted[taken]], end[wanted[taken]] = a[taken], b[taken]
            wanted = wanted[~taken]
        return start, end
